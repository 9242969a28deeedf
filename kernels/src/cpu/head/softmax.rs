//! The running softmax of rows over slices of the vocabulary; logits lie transposed, one row a lane.
//!
//! The exponential of the target is kept out of the sums: with `others = sum_{j != target} e^(l_j - max)` neither
//! `loss = ln(others + e_target) - ln(e_target)` nor `p_target - 1 = -others / total` loses digits when the target is likely.

use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::exp;

/// Rows that are worked on together.
pub(super) const LANES: usize = 16;

/// Exponentials that are added up in single precision before double precision takes over.
const RUN: usize = 16;

/// What is known of [`LANES`] rows after some slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    /// Target of each row.
    pub(super) targets: [u32; LANES],
    /// Greatest logit, and the first token that has it.
    pub(super) best: [f32; LANES],
    pub(super) argmax: [u32; LANES],
    /// Sum of `e^(logit - best)` without the target.
    pub(super) others: [f64; LANES],
    /// Logit of the target, once its slice came.
    pub(super) target: [f32; LANES],
}

impl Lanes {
    /// Starts before the first slice.
    pub(super) fn new(targets: [u32; LANES]) -> Self {
        Self {
            targets,
            best: [f32::NEG_INFINITY; LANES],
            argmax: [0; LANES],
            others: [0.0; LANES],
            target: [f32::NEG_INFINITY; LANES],
        }
    }
}

isa_dispatch! {
    /// Turns the logits `(tokens from first on, rows)` of a slice into `e^(logit - best)`, zero for targets, and writes
    /// the factor of what was summed before to `rescale` (rows).
    pub(super) fn slice(logits: &mut [f32], stride: usize, first: u32, lanes: &mut [Lanes], rescale: &mut [f32]) =
        slice_body;
}

#[inline(always)]
fn slice_body(
    logits: &mut [f32],
    stride: usize,
    first: u32,
    lanes: &mut [Lanes],
    rescale: &mut [f32],
) {
    let (rescale, _) = rescale.as_chunks_mut::<LANES>();
    for (place, (lanes, rescale)) in lanes.iter_mut().zip(rescale).enumerate() {
        let column = place * LANES;
        *rescale = raise(logits, stride, column, first, lanes);
        take_targets(logits, stride, column, first, lanes);
        for (others, factor) in lanes.others.iter_mut().zip(*rescale) {
            *others *= f64::from(factor);
        }
        for run in logits.chunks_mut(RUN * stride) {
            let mut sums = [0.0f32; LANES];
            for row in run.chunks_exact_mut(stride) {
                let row = lane_row(row, column);
                for j in 0..LANES {
                    row[j] = exp(row[j] - lanes.best[j]);
                    sums[j] += row[j];
                }
            }
            for (others, sum) in lanes.others.iter_mut().zip(sums) {
                *others += f64::from(sum);
            }
        }
    }
}

#[inline(always)]
fn lane_row(row: &mut [f32], column: usize) -> &mut [f32; LANES] {
    (&mut row[column..column + LANES])
        .try_into()
        .expect("a slice of that length")
}

/// Takes the greatest logits of a slice into account and returns the factors of earlier sums.
#[inline(always)]
fn raise(
    logits: &mut [f32],
    stride: usize,
    column: usize,
    first: u32,
    lanes: &mut Lanes,
) -> [f32; LANES] {
    let mut top = [f32::NEG_INFINITY; LANES];
    for row in logits.chunks_exact_mut(stride) {
        let row = lane_row(row, column);
        for j in 0..LANES {
            top[j] = if row[j] > top[j] { row[j] } else { top[j] };
        }
    }
    let mut rescale = [1.0f32; LANES];
    for j in 0..LANES {
        if top[j] > lanes.best[j] {
            let mut token = first;
            for row in logits.chunks_exact(stride) {
                // Bits of equal numbers differ for zeros only, which are equal here too.
                if row[column + j] >= top[j] {
                    break;
                }
                token += 1;
            }
            lanes.argmax[j] = token;
            rescale[j] = exp(lanes.best[j] - top[j]);
            lanes.best[j] = top[j];
        }
    }
    rescale
}

/// Notes the logits of targets in this slice and keeps them out of the sums.
#[inline(always)]
fn take_targets(logits: &mut [f32], stride: usize, column: usize, first: u32, lanes: &mut Lanes) {
    let tokens = logits.len() / stride;
    for j in 0..LANES {
        let token = lanes.targets[j].wrapping_sub(first) as usize;
        if token < tokens {
            let logit = &mut logits[token * stride + column + j];
            lanes.target[j] = *logit;
            *logit = f32::NEG_INFINITY;
        }
    }
}
