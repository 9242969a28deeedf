//! The row-wise part between the products of a pair of tiles.
//!
//! Hidden scores are replaced, never multiplied: what lies there may be anything, and no weight has anything of it. What a
//! weight of zero is multiplied with then is another matter: see `products`.

use std::array::from_fn;

use super::TILE;
use super::sight::Sight;
use crate::cpu::isa::{Isa, isa_dispatch};
use crate::cpu::math::{dot, exp, ln};
use crate::cpu::transpose::transpose;

/// What forward keeps of earlier key tiles, for the rows of a query tile and one head.
#[derive(Debug)]
pub(super) struct Running<'a> {
    /// Largest score so far, `(TILE)`.
    pub(super) maxima: &'a mut [f32],
    /// Sum of e^(score - maximum) by lane, column j in lane j % LANES; `(TILE, LANES)`.
    pub(super) totals: &'a mut [f32],
    /// Sum of e^(score - maximum) times value, `(TILE, head_dim)`.
    pub(super) out: &'a mut [f32],
}

/// Lanes of a row.
pub(super) const LANES: usize = 16;

/// Turns `scores (rows, TILE)` into weights e^(scale * score - maximum) and brings what was kept to the new maximum.
///
/// In passes over all rows, so that their chains of operations overlap; lanes of many rows are turned together.
pub(super) fn soften(
    isa: Isa,
    scores: &mut [f32],
    sight: &Sight,
    scale: f32,
    running: &mut Running<'_>,
) {
    let (mut lanes, mut turned) = ([0.0; TILE * LANES], [0.0; TILE * LANES]);
    show(isa, scores, sight, scale, &mut lanes);
    transpose(isa, TILE, LANES, &lanes, LANES, &mut turned, TILE);
    weigh_anew(isa, scores, sight.rows, &turned, running);
}

isa_dispatch! {
    /// Scales the seen scores, makes the others minus infinity, and writes the largest of each lane, `(TILE, LANES)`.
    fn show(scores: &mut [f32], sight: &Sight, scale: f32, lanes: &mut [f32]) = show_body;
}

#[inline(always)]
fn show_body(scores: &mut [f32], sight: &Sight, scale: f32, lanes: &mut [f32]) {
    let rows = scores.as_chunks_mut::<TILE>().0.iter_mut();
    let rows = rows.zip(lanes.as_chunks_mut::<LANES>().0);
    for (row, (scores, lanes)) in rows.enumerate().take(sight.rows) {
        let (from, to) = (sight.from[row], sight.to[row]);
        for (score, column) in scores.iter_mut().zip(COLUMNS) {
            let seen = (column >= from) & (column < to);
            *score = if seen {
                *score * scale
            } else {
                f32::NEG_INFINITY
            };
        }
        let mut most = [f32::NEG_INFINITY; LANES];
        for scores in scores.as_chunks::<LANES>().0 {
            most = from_fn(|j| larger(most[j], scores[j]));
        }
        *lanes = most;
    }
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b < a { a } else { b }
}

isa_dispatch! {
    /// Turns shown scores into weights, given the largest of each lane, `(LANES, TILE)`.
    fn weigh_anew(scores: &mut [f32], rows: usize, lanes: &[f32], running: &mut Running<'_>) =
        weigh_anew_body;
}

#[inline(always)]
fn weigh_anew_body(scores: &mut [f32], rows: usize, lanes: &[f32], running: &mut Running<'_>) {
    let (mut shifts, mut rescales) = ([0.0; TILE], [0.0; TILE]);
    let mut maxima: [f32; TILE] = from_fn(|row| running.maxima[row]);
    for lane in lanes.as_chunks::<TILE>().0 {
        maxima = from_fn(|row| larger(maxima[row], lane[row]));
    }
    for row in 0..TILE {
        let (before, maximum) = (running.maxima[row], maxima[row]);
        // A row that has seen nothing yet keeps minus infinity; 0 stands in for it in the differences.
        let nothing = maximum == f32::NEG_INFINITY;
        let shift = if nothing { 0.0 } else { maximum };
        shifts[row] = shift;
        // What a row that has seen nothing keeps is zero, or not begun.
        let fresh = before == f32::NEG_INFINITY;
        rescales[row] = if fresh { 1.0 } else { exp(before - shift) };
        running.maxima[row] = maximum;
    }
    let scores = scores.as_chunks_mut::<TILE>().0.iter_mut();
    let totals = running.totals.as_chunks_mut::<LANES>().0;
    for (row, (scores, totals)) in scores.zip(totals).enumerate().take(rows) {
        let (shift, rescale) = (shifts[row], rescales[row]);
        for score in scores.iter_mut() {
            *score = exp(*score - shift);
        }
        let mut sum: [f32; LANES] = from_fn(|j| totals[j] * rescale);
        for weights in scores.as_chunks::<LANES>().0 {
            sum = from_fn(|j| sum[j] + weights[j]);
        }
        *totals = sum;
    }
    let width = running.out.len() / TILE;
    let outputs = running.out.chunks_exact_mut(width).zip(rescales);
    for (out, rescale) in outputs.take(rows) {
        if rescale != 1.0 {
            out.iter_mut().for_each(|out| *out *= rescale);
        }
    }
}

/// Divides the outputs by their sums and writes the log-sum-exps.
pub(super) fn finish(isa: Isa, running: &mut Running<'_>, log_sum_exp: &mut [f32; TILE]) {
    let mut turned = [0.0; TILE * LANES];
    transpose(isa, TILE, LANES, running.totals, LANES, &mut turned, TILE);
    divide(isa, &mut turned, running, log_sum_exp);
}

isa_dispatch! {
    /// Divides the outputs by their sums, given by lane, `(LANES, TILE)`.
    fn divide(lanes: &mut [f32], running: &mut Running<'_>, log_sum_exp: &mut [f32; TILE]) = divide_body;
}

#[inline(always)]
fn divide_body(lanes: &mut [f32], running: &mut Running<'_>, log_sum_exp: &mut [f32; TILE]) {
    // The tree of `sum_lanes`, for all rows at once.
    let lanes = lanes.as_chunks_mut::<TILE>().0;
    for half in [8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            low.iter_mut()
                .zip(high)
                .for_each(|(low, high)| *low += *high);
        }
    }
    let totals = &lanes[0];
    let factors = totals.map(|total| 1.0 / total);
    for ((sum, maximum), total) in log_sum_exp.iter_mut().zip(&*running.maxima).zip(totals) {
        *sum = maximum + ln(*total);
    }
    let width = running.out.len() / TILE;
    for (out, factor) in running.out.chunks_exact_mut(width).zip(factors) {
        out.iter_mut().for_each(|out| *out *= factor);
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

isa_dispatch! {
    /// Turns `scores (rows, TILE)` into weights e^(scale * score - log_sum_exp), and `d (rows, TILE)`, gradients of
    /// weights, into gradients of unscaled scores; both are 0 where hidden.
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
