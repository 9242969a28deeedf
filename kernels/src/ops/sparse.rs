//! A sparse trainable delta of a weight: `y += x (M * D)^T` with a fixed pattern `M`, as in diff pruning.
//!
//! The places are stored by output row; place `j` changes output `o_j` by input `i_j` with the trainable `values[j]`.
//!
//! - [`forward`]: `y[t][o] += sum_j values[j] x[t][i_j]` over the places of `o`
//! - [`backward`]: `dx[t][i] += sum_j values[j] dy[t][o_j]` over the places of `i`
//! - [`gradient`]: `gradient[j] = sum_t dy[t][o_j] x[t][i_j]`, by blocks as in [`block_sum`](crate::ops::block_sum)
//!
//! Canonical order: chains of fused multiply-adds in the order of the places onto what `y` or `dx` holds.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::block_sum::{Source, Task, run};
use crate::cpu::disjoint::DisjointMut;
use crate::ops::block_sum::Nodes;

pub(crate) mod pattern;

pub use pattern::Pattern;

/// Adds `x (tokens, in)` times the delta to `y (tokens, out)`.
///
/// # Panics
/// When the shapes do not fit.
pub fn forward(cpu: &Cpu, pattern: &Pattern, values: &[f32], x: &[f32], y: &mut [f32]) {
    let tokens = pattern.tokens(Some(values), x.len(), y.len());
    let (step, outputs, inputs) = (pattern.step(), pattern.outputs(), pattern.inputs());
    let y = DisjointMut::matrix(y, outputs);
    cpu.for_each(tokens.div_ceil(step), |task| {
        let range = task * step..tokens.min((task + 1) * step);
        let x = &x[range.start * inputs..range.end * inputs];
        let mut y = y.rows(range);
        for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
            for ((value, column), row) in values.iter().zip(pattern.columns()).zip(pattern.rows()) {
                let y = &mut y[*row as usize];
                *y = value.mul_add(x[*column as usize], *y);
            }
        }
    });
}

/// Adds `dy (tokens, out)` times the delta to `dx (tokens, in)`.
///
/// # Panics
/// When the shapes do not fit.
pub fn backward(cpu: &Cpu, pattern: &Pattern, values: &[f32], dy: &[f32], dx: &mut [f32]) {
    let tokens = pattern.tokens(Some(values), dx.len(), dy.len());
    let (step, outputs, inputs) = (pattern.step(), pattern.outputs(), pattern.inputs());
    let dx = DisjointMut::matrix(dx, inputs);
    cpu.for_each(tokens.div_ceil(step), |task| {
        let range = task * step..tokens.min((task + 1) * step);
        let dy = &dy[range.start * outputs..range.end * outputs];
        let mut dx = dx.rows(range);
        for (dy, dx) in dy.chunks_exact(outputs).zip(dx.chunks_exact_mut(inputs)) {
            for ((value, column), row) in values.iter().zip(pattern.columns()).zip(pattern.rows()) {
                let dx = &mut dx[*column as usize];
                *dx = value.mul_add(dy[*row as usize], *dx);
            }
        }
    });
}

/// Blocks that are added to the gradient of the values.
#[derive(Debug)]
pub struct Values<'a> {
    /// Number of the first of the blocks in the job's optimizer step.
    pub first_block: u64,
    /// Rows of each block, consecutive blocks of the step.
    pub blocks: &'a [Range<usize>],
    /// `(tokens, in)`.
    pub x: &'a [f32],
    /// `(tokens, out)`.
    pub dy: &'a [f32],
    /// Sums that wait.
    pub nodes: &'a mut Nodes,
    /// One number a place, overwritten: given with the last blocks of the step, and only then.
    pub gradient: Option<&'a mut [f32]>,
}

/// Adds blocks to the gradient of the values.
///
/// # Panics
/// When shapes do not fit, a block comes twice, or a step is finished while blocks are missing.
pub fn gradient(cpu: &Cpu, pattern: &Pattern, sum: Values<'_>) {
    let tokens = pattern.tokens(None, sum.x.len(), sum.dy.len());
    for rows in sum.blocks {
        assert!(
            rows.start <= rows.end && rows.end <= tokens,
            "block of rows {rows:?} outside of {tokens}"
        );
    }
    let last = sum.gradient.is_some();
    let program = sum.nodes.program(sum.first_block, sum.blocks.len(), last);
    let source = Source::Places {
        blocks: sum.blocks,
        pattern,
        x: sum.x,
        dy: sum.dy,
    };
    let task = Task {
        program,
        source,
        rank: 1,
        width: pattern.len(),
        nodes: sum.nodes,
        gradient: sum.gradient,
    };
    run(cpu, vec![task]);
}

#[cfg(test)]
mod tests;
