//! The row-wise part between the products of a pair of tiles.
//!
//! Hidden scores are replaced, never multiplied: what lies there may be anything, and nothing of it may come through.

use std::array::from_fn;

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

/// In passes over all rows, so that the rows' chains of operations overlap.
#[inline(always)]
fn soften_body(scores: &mut [f32], sight: &Sight, scale: f32, running: &mut Running<'_>) {
    let rows = sight.rows;
    let scores = &mut scores.as_chunks_mut::<TILE>().0[..rows];
    let before: [f32; TILE] = from_fn(|row| running.maxima[row]);
    for (row, scores) in scores.iter_mut().enumerate() {
        show(scores, scale, sight.from[row], sight.to[row]);
        running.maxima[row] = row_maximum(scores, before[row]);
    }
    let (mut shifts, mut rescales) = ([0.0; TILE], [0.0; TILE]);
    for row in 0..TILE {
        let maximum = running.maxima[row];
        // A row that has seen nothing yet keeps minus infinity; 0 stands in for it in the differences.
        let nothing = maximum == f32::NEG_INFINITY;
        let shift = if nothing { 0.0 } else { maximum };
        shifts[row] = shift;
        rescales[row] = exp(before[row] - shift);
    }
    for (row, scores) in scores.iter_mut().enumerate() {
        for score in scores.iter_mut() {
            *score = exp(*score - shifts[row]);
        }
    }
    for (row, scores) in scores.iter().enumerate() {
        running.totals[row] = running.totals[row].mul_add(rescales[row], row_sum(scores));
    }
    let width = running.out.len() / TILE;
    let outputs = running.out.chunks_exact_mut(width).take(rows);
    for (row, out) in outputs.enumerate() {
        let rescale = rescales[row];
        // What a row that has seen nothing keeps is zero, or not begun.
        if rescale != 1.0 && before[row] != f32::NEG_INFINITY {
            out.iter_mut().for_each(|out| *out *= rescale);
        }
    }
}

/// Scales the seen scores of a row; the others become minus infinity.
#[inline(always)]
fn show(scores: &mut [f32; TILE], scale: f32, from: i32, to: i32) {
    for (score, column) in scores.iter_mut().zip(COLUMNS) {
        let seen = (column >= from) & (column < to);
        *score = if seen {
            *score * scale
        } else {
            f32::NEG_INFINITY
        };
    }
}

/// The columns of a tile by number: an index would be compared in 64 bits, and a zipped range is no vector at all.
const COLUMNS: [i32; TILE] = {
    let mut columns = [0; TILE];
    let mut column = 1;
    while column < TILE {
        columns[column] = columns[column - 1] + 1;
        column += 1;
    }
    columns
};

#[inline(always)]
fn row_maximum(scores: &[f32; TILE], before: f32) -> f32 {
    let mut lanes = [before; 16];
    for scores in scores.as_chunks::<16>().0 {
        lanes = from_fn(|j| larger(lanes[j], scores[j]));
    }
    let eight: [f32; 8] = from_fn(|j| larger(lanes[j], lanes[j + 8]));
    let four: [f32; 4] = from_fn(|j| larger(eight[j], eight[j + 4]));
    let two: [f32; 2] = from_fn(|j| larger(four[j], four[j + 2]));
    larger(two[0], two[1])
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b < a { a } else { b }
}

#[inline(always)]
fn row_sum(weights: &[f32; TILE]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for weights in weights.as_chunks::<16>().0 {
        lanes = from_fn(|j| lanes[j] + weights[j]);
    }
    sum_lanes(lanes)
}

isa_dispatch! {
    /// Divides the outputs by their sums and turns the sums into log-sum-exps, for the first rows.
    pub(super) fn finish(rows: usize, running: &mut Running<'_>) = finish_body;
}

#[inline(always)]
fn finish_body(rows: usize, running: &mut Running<'_>) {
    let width = running.out.len() / TILE;
    let mut factors = [0.0; TILE];
    let sums = running.totals.iter_mut().zip(running.maxima.iter());
    for ((total, maximum), factor) in sums.zip(&mut factors) {
        *factor = 1.0 / *total;
        *total = maximum + ln(*total);
    }
    for (out, factor) in running.out.chunks_exact_mut(width).zip(factors).take(rows) {
        out.iter_mut().for_each(|out| *out *= factor);
    }
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
        for ((score, d), column) in scores.iter_mut().zip(d).zip(COLUMNS) {
            let seen = (column >= from) & (column < to);
            let weight = exp(*score * scale - shift);
            let d_score = weight * (*d - along) * scale;
            *score = if seen { weight } else { 0.0 };
            *d = if seen { d_score } else { 0.0 };
        }
    }
}

isa_dispatch! {
    /// Copies a row; zeros become positive.
    pub(super) fn copy(from: &[f32], to: &mut [f32]) = copy_body;
}

#[inline(always)]
fn copy_body(from: &[f32], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from + 0.0;
    }
}

isa_dispatch! {
    /// Writes the product of each row of `a` with that of `b`, both `width` wide and `stride` apart.
    pub(super) fn row_products(a: &[f32], b: &[f32], stride: usize, width: usize, to: &mut [f32]) =
        row_products_body;
}

#[inline(always)]
fn row_products_body(a: &[f32], b: &[f32], stride: usize, width: usize, to: &mut [f32]) {
    for (row, to) in to.iter_mut().enumerate() {
        let cells = row * stride..row * stride + width;
        *to = dot(&a[cells.clone()], &b[cells]);
    }
}
