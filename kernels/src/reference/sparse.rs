//! A sparse delta of a weight, by the formula.

use crate::ops::sparse::Pattern;

/// Returns the delta as a matrix `(out, in)`.
pub fn dense(pattern: &Pattern, values: &[f64]) -> Vec<f64> {
    let mut dense = vec![0.0; pattern.outputs() * pattern.inputs()];
    for (j, value) in values.iter().enumerate() {
        dense[place(pattern, j)] = *value;
    }
    dense
}

/// Returns the gradient of the values: that of the whole matrix, `dy^T x`, at the places.
pub fn gradient(pattern: &Pattern, x: &[f64], dy: &[f64]) -> Vec<f64> {
    let (outputs, inputs) = (pattern.outputs(), pattern.inputs());
    let dense = super::block_sum::outer(dy, outputs, x, inputs, 1.0);
    (0..pattern.len())
        .map(|j| dense[place(pattern, j)])
        .collect()
}

fn place(pattern: &Pattern, j: usize) -> usize {
    pattern.rows()[j] as usize * pattern.inputs() + pattern.columns()[j] as usize
}
