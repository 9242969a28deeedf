//! A left matrix packed for the micro-kernel: its strips of rows, one after another, each `(k, rows of the strip)`.
//!
//! The innermost loop then reads one stream from front to back instead of one for each row, and the strip that follows is
//! the next in memory. Packing moves numbers and computes none, so it changes no bit.

use std::ops::Range;

use super::{even_cuts, strip};
use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::Isa;
use crate::cpu::transpose::interleave;

/// Rows from which packing pays for its own pass over the matrix.
const FEWEST_ROWS: usize = 64;

/// Strips that one task packs.
const STRIPS: usize = 8;

/// A packed matrix `(rows, depth)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    numbers: &'a [f32],
    depth: usize,
}

impl<'a> Packed<'a> {
    /// Says whether a matrix of `rows` is better packed.
    pub(crate) fn pays(isa: Isa, rows: usize) -> bool {
        rows >= FEWEST_ROWS && !strip::strips(isa).packed.is_empty()
    }

    /// Packs the columns `depth` of `x (rows, width)` into `space`, which is as long as they are.
    ///
    /// # Panics
    /// When `space` has another length, the columns leave the matrix, or where [`Packed::pays`] never holds.
    pub(crate) fn new(
        cpu: &Cpu,
        x: &[f32],
        width: usize,
        depth: Range<usize>,
        space: &'a mut [f32],
    ) -> Self {
        let (rows, k) = (x.len() / width, depth.len());
        assert!(
            depth.end <= width && space.len() == rows * k,
            "{} numbers for columns {depth:?} of {rows} rows of {width}",
            space.len()
        );
        let strips: Vec<_> = even_cuts(rows, strip::strips(cpu.isa()).packed.len()).collect();
        let parts = DisjointMut::matrix(space, k);
        cpu.for_each(strips.len().div_ceil(STRIPS), |task| {
            for rows in strips.iter().skip(task * STRIPS).take(STRIPS) {
                let from = &x[rows.start * width + depth.start..];
                let mut to = parts.rows(rows.clone());
                interleave(cpu.isa(), rows.len(), k, from, width, &mut to);
            }
        });
        Self {
            numbers: space,
            depth: k,
        }
    }

    /// Returns the strip of some rows.
    pub(super) fn strip(&self, rows: &Range<usize>) -> &'a [f32] {
        &self.numbers[rows.start * self.depth..rows.end * self.depth]
    }

    /// Panics unless this is a matrix `(rows, k)` packed for `isa`.
    pub(super) fn check(&self, isa: Isa, rows: usize, k: usize) {
        assert!(
            k == self.depth && self.numbers.len() == rows * k,
            "{} packed numbers in rows of {} are not {rows} rows of {k}",
            self.numbers.len(),
            self.depth
        );
        assert!(
            !strip::strips(isa).packed.is_empty(),
            "{isa} takes no packed rows"
        );
    }
}
