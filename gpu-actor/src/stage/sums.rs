//! Gradients summed over tokens in the canonical order: per block of a sequence, then by the job's fixed tree.
//!
//! Thin callers of [`kernels::ops::block_sum`]: they turn a job's blocks, which are rows of the batch, into rows of
//! the job's own slices.

use std::ops::Range;

use kernels::ops::block_sum::{self, Columns, Outer, Partials};

use super::gradient::Slot;
use super::pass::Pass;
use super::timing::Operator;
use crate::batch::JobSlice;

/// The job's blocks counted from its first row.
pub(super) fn blocks(job: &JobSlice) -> Vec<Range<usize>> {
    let first = job.rows.start;
    job.blocks
        .iter()
        .map(|block| block.start - first..block.end - first)
        .collect()
}

/// Gradient of a low-rank half: sum over tokens of left `(rows, rank)` times right `(rows, width)`, times `scale`.
pub(super) fn outer(
    pass: &Pass<'_>,
    job: &JobSlice,
    (left, rank): (&[f32], usize),
    (right, width): (&[f32], usize),
    scale: f32,
    slot: Slot<'_>,
) {
    let (blocks, first_block) = (blocks(job), job.first_block);
    let Slot { nodes, gradient } = slot;
    let (left_rows, blocks) = (0..job.rows.len(), &blocks[..]);
    let sum = Outer {
        first_block,
        blocks,
        left_rows,
        left,
        rank,
        right,
        width,
        scale,
        nodes,
        gradient,
    };
    pass.time(Operator::GradientSums, || {
        block_sum::outer(pass.cpu, &mut [sum])
    });
}

/// Gradient of an added vector: sum over tokens of `values` `(rows, width)`; with `factors` of their products.
pub(super) fn columns(
    pass: &Pass<'_>,
    job: &JobSlice,
    values: &[f32],
    factors: Option<&[f32]>,
    width: usize,
    slot: Slot<'_>,
) {
    let (blocks, first_block) = (blocks(job), job.first_block);
    let (Slot { nodes, gradient }, blocks) = (slot, &blocks[..]);
    let sum = Columns {
        first_block,
        blocks,
        values,
        factors,
        width,
        nodes,
        gradient,
    };
    pass.time(Operator::GradientSums, || {
        block_sum::columns(pass.cpu, &mut [sum])
    });
}

/// Gradient `(width)` given block by block.
pub(super) fn partials(
    pass: &Pass<'_>,
    job: &JobSlice,
    parts: &[&[f32]],
    width: usize,
    slot: Slot<'_>,
) {
    let (Slot { nodes, gradient }, first_block) = (slot, job.first_block);
    let sum = Partials {
        first_block,
        parts,
        width,
        nodes,
        gradient,
    };
    pass.time(Operator::GradientSums, || {
        block_sum::partials(pass.cpu, &mut [sum])
    });
}

/// The job's blocks in terms of its labelled rows: block b holds labelled rows `range`, possibly none.
pub(super) fn labelled_blocks(job: &JobSlice, rows: &[usize]) -> Vec<Range<usize>> {
    let mut at = 0;
    job.blocks
        .iter()
        .map(|block| {
            let end = at
                + rows[at..]
                    .iter()
                    .take_while(|&&row| row < block.end)
                    .count();
            let range = at..end;
            at = end;
            range
        })
        .collect()
}
