//! The row-wise part between the products of a pair of tiles.
//!
//! Hidden scores are replaced, never multiplied: what lies there may be anything, and nothing of it may come through.

use super::TILE;
use super::sight::Sight;
use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::{dot, exp, ln, sum_lanes};

/// What forward keeps of earlier key tiles, for the rows of a query tile and one head.
#[derive(Debug)]
pub(super) struct Running<'a> {
    /// Largest score so far, `(TILE)`.
    pub(super) maxima: &'a mut [f32],
    /// Sum of e^(score - maximum), `(TILE)`.
    pub(super) totals: &'a mut [f32],
    /// Sum of e^(score - maximum) times value, `(TILE, head_dim)`.
    pub(super) out: &'a mut [f32],
}

isa_dispatch! {
    /// Turns `scores (rows, TILE)` into weights e^(scale * score - maximum) and brings what was kept to the new maximum.
    pub(super) fn soften(scores: &mut [f32], sight: &Sight, scale: f32, running: &mut Running<'_>) =
        soften_body;
}

#[inline(always)]
fn soften_body(scores: &mut [f32], sight: &Sight, scale: f32, running: &mut Running<'_>) {
    let width = running.out.len() / TILE;
    let rows = scores.as_chunks_mut::<TILE>().0;
    for (row, scores) in rows.iter_mut().enumerate().take(sight.rows) {
        show(scores, scale, sight.from[row], sight.to[row]);
        let before = running.maxima[row];
        let maximum = row_maximum(scores, before);
        // A row that has seen nothing yet keeps minus infinity; 0 stands in for it in the differences.
        let shift = if maximum == f32::NEG_INFINITY {
            0.0
        } else {
            maximum
        };
        for score in scores.iter_mut() {
            *score = exp(*score - shift);
        }
        let rescale = exp(before - shift);
        running.totals[row] = running.totals[row].mul_add(rescale, row_sum(scores));
        running.maxima[row] = maximum;
        // Nothing is kept of a row that had seen nothing.
        if rescale != 1.0 && before != f32::NEG_INFINITY {
            for out in &mut running.out[row * width..(row + 1) * width] {
                *out *= rescale;
            }
        }
    }
}

/// Scales the seen scores of a row; the others become minus infinity.
#[inline(always)]
fn show(scores: &mut [f32; TILE], scale: f32, from: i32, to: i32) {
    for (column, score) in (0i32..).zip(scores) {
        let seen = (column >= from) & (column < to);
        *score = if seen {
            *score * scale
        } else {
            f32::NEG_INFINITY
        };
    }
}

#[inline(always)]
fn row_maximum(scores: &[f32; TILE], before: f32) -> f32 {
    let mut lanes = [before; 16];
    for scores in scores.as_chunks::<16>().0 {
        for j in 0..16 {
            lanes[j] = if scores[j] < lanes[j] {
                lanes[j]
            } else {
                scores[j]
            };
        }
    }
    for half in [8, 4, 2, 1] {
        for j in 0..half {
            let other = lanes[j + half];
            lanes[j] = if other < lanes[j] { lanes[j] } else { other };
        }
    }
    lanes[0]
}

#[inline(always)]
fn row_sum(weights: &[f32; TILE]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for weights in weights.as_chunks::<16>().0 {
        for j in 0..16 {
            lanes[j] += weights[j];
        }
    }
    sum_lanes(lanes)
}

isa_dispatch! {
    /// Divides the output of a row by its sum into `to`, and returns the log-sum-exp.
    pub(super) fn finish(out: &[f32], maximum: f32, total: f32, to: &mut [f32]) -> f32 = finish_body;
}

#[inline(always)]
fn finish_body(out: &[f32], maximum: f32, total: f32, to: &mut [f32]) -> f32 {
    let factor = 1.0 / total;
    for (to, out) in to.iter_mut().zip(out) {
        *to = out * factor + 0.0;
    }
    maximum + ln(total)
}

isa_dispatch! {
    /// Turns `scores (rows, TILE)` into weights e^(scale * score - log_sum_exp), and `d (rows, TILE)`, gradients of weights,
    /// into gradients of unscaled scores; both are 0 where hidden.
    pub(super) fn weigh(
        scores: &mut [f32],
        d: &mut [f32],
        sight: &Sight,
        scale: f32,
        log_sum_exp: &[f32],
        along: &[f32],
    ) = weigh_body;
}

#[inline(always)]
fn weigh_body(
    scores: &mut [f32],
    d: &mut [f32],
    sight: &Sight,
    scale: f32,
    log_sum_exp: &[f32],
    along: &[f32],
) {
    let rows = scores.as_chunks_mut::<TILE>().0;
    let rows = rows.iter_mut().zip(d.as_chunks_mut::<TILE>().0);
    for (row, (scores, d)) in rows.enumerate().take(sight.rows) {
        let (from, to) = (sight.from[row], sight.to[row]);
        let (shift, along) = (log_sum_exp[row], along[row]);
        for ((column, score), d) in (0i32..).zip(scores).zip(d) {
            let seen = (column >= from) & (column < to);
            let weight = exp(*score * scale - shift);
            *score = if seen { weight } else { 0.0 };
            *d = if seen {
                weight * (*d - along) * scale
            } else {
                0.0
            };
        }
    }
}

isa_dispatch! {
    /// Adds nothing: turns negative zeros into zeros.
    pub(super) fn settle(x: &mut [f32]) = settle_body;
}

#[inline(always)]
fn settle_body(x: &mut [f32]) {
    for x in x {
        *x += 0.0;
    }
}

isa_dispatch! {
    /// Sum of a[i] * b[i] in the canonical order.
    pub(super) fn row_dot(a: &[f32], b: &[f32]) -> f32 = dot;
}
