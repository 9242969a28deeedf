//! The places of a sparse delta.

use std::ops::Range;

/// Multiplications of a task.
const TASK: usize = 1 << 15;

/// Places of a sparse delta `(out, in)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    inputs: usize,
    /// First place of each output, and the number of places.
    starts: Vec<usize>,
    /// Input of each place.
    columns: Vec<u32>,
    /// Output of each place.
    rows: Vec<u32>,
}

impl Pattern {
    /// Makes a pattern of the inputs `columns` of each output: those of output `o` are
    /// `columns[starts[o]..starts[o + 1]]`, ascending.
    ///
    /// # Panics
    /// When `starts` does not have `outputs + 1` ascending entries from 0 to the number of columns, or the columns of an
    /// output are not ascending inputs.
    pub fn new(outputs: usize, inputs: usize, starts: Vec<usize>, columns: Vec<u32>) -> Self {
        assert_eq!(starts.len(), outputs + 1, "one start an output and the end");
        assert!(
            starts[0] == 0 && starts[outputs] == columns.len() && starts.is_sorted(),
            "starts must ascend from 0 to {}",
            columns.len()
        );
        let mut rows = Vec::with_capacity(columns.len());
        for (row, edge) in starts.windows(2).enumerate() {
            let columns = &columns[edge[0]..edge[1]];
            let inside = |column: u32| usize::try_from(column).is_ok_and(|column| column < inputs);
            assert!(
                columns.is_sorted_by(|a, b| a < b) && columns.iter().all(|&column| inside(column)),
                "columns of output {row} must ascend below {inputs}"
            );
            let row = u32::try_from(row).expect("outputs are counted in 32 bits");
            rows.extend(columns.iter().map(|_| row));
        }
        Self {
            inputs,
            starts,
            columns,
            rows,
        }
    }

    /// Returns the number of places.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Says whether there are no places.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the output dimension.
    pub fn outputs(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the input dimension.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the input of each place.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Returns the output of each place.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Returns the places of one output.
    pub fn places(&self, output: usize) -> Range<usize> {
        self.starts[output]..self.starts[output + 1]
    }

    /// Checks the shapes and returns the number of tokens.
    pub(super) fn tokens(&self, values: Option<&[f32]>, narrow: usize, wide: usize) -> usize {
        if let Some(values) = values {
            assert_eq!(values.len(), self.len(), "values of a sparse delta");
        }
        let tokens = narrow / self.inputs.max(1);
        assert_eq!(narrow, tokens * self.inputs, "whole rows of the inputs");
        assert_eq!(wide, tokens * self.outputs(), "rows of the outputs");
        tokens
    }

    /// Returns the number of tokens that make a task.
    pub(super) fn step(&self) -> usize {
        (TASK / self.len().max(1)).max(1)
    }
}
