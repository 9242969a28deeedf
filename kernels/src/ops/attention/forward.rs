//! Forward with a running maximum over key tiles.

use super::head::{Head, Queries, exp_row};
use super::TILE;
use crate::cpu::disjoint::Tile;
use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::{exp, sum_lanes};
use crate::cpu::scratch;

/// All query heads of one key head of one sequence; `out` has the group's columns, `sums` its heads.
pub(super) fn group(head: &Head<'_>, q: &[f32], out: &mut Tile<'_, f32>, sums: &mut Tile<'_, f32>) {
    let dim = head.heads.head_dim;
    scratch::with(TILE * (TILE + dim), |buffer| {
        let (scores, output) = buffer.split_at_mut(TILE * TILE);
        for queries in head.query_tiles() {
            for member in 0..head.heads.group() {
                let totals = tile(head, q, queries, member, scores, output);
                for row in 0..queries.rows() {
                    let result = &output[row * dim..][..dim];
                    let columns = member * dim..(member + 1) * dim;
                    out.row(queries.from + row)[columns].copy_from_slice(result);
                    sums.row(queries.from + row)[member] = totals[row];
                }
            }
        }
    });
}

/// One query tile of one head into `output` `(rows, head_dim)`; returns the log-sum-exp of each row.
fn tile(
    head: &Head<'_>,
    q: &[f32],
    queries: Queries,
    member: usize,
    scores: &mut [f32],
    output: &mut [f32],
) -> [f32; TILE] {
    let (dim, rows) = (head.heads.head_dim, queries.rows());
    let (mut maxima, mut totals) = ([f32::NEG_INFINITY; TILE], [0.0f32; TILE]);
    output[..rows * dim].fill(0.0);
    let q = head.strided(q, queries, member);
    for tile in head.key_tiles(queries) {
        head.scores(q, queries, tile, scores);
        for row in 0..rows {
            let scores = &mut scores[row * TILE..][..TILE];
            let before = maxima[row];
            let maximum = row_maximum(head.isa, scores, before);
            // A row that has seen nothing yet keeps minus infinity; 0 stands in for it in the differences.
            let shift = if maximum == f32::NEG_INFINITY { 0.0 } else { maximum };
            exp_row(head.isa, scores, shift);
            let rescale = exp(before - shift);
            totals[row] = totals[row].mul_add(rescale, row_sum(head.isa, scores));
            maxima[row] = maximum;
            if rescale != 1.0 {
                multiply(head.isa, &mut output[row * dim..][..dim], rescale);
            }
        }
        head.add_values(rows, scores, tile, output);
    }
    for row in 0..rows {
        multiply(head.isa, &mut output[row * dim..][..dim], 1.0 / totals[row]);
        totals[row] = maxima[row] + totals[row].ln();
    }
    totals
}

isa_dispatch! {
    fn row_maximum(scores: &[f32], before: f32) -> f32 = row_maximum_body;
}

#[inline(always)]
fn row_maximum_body(scores: &[f32], before: f32) -> f32 {
    let mut lanes = [before; 16];
    for scores in scores.as_chunks::<16>().0 {
        for j in 0..16 {
            // NaN is kept: the row's result must show it.
            lanes[j] = if scores[j] < lanes[j] { lanes[j] } else { scores[j] };
        }
    }
    let mut maximum = before;
    for lane in lanes {
        maximum = if lane < maximum { maximum } else { lane };
    }
    maximum
}

isa_dispatch! {
    fn row_sum(weights: &[f32]) -> f32 = row_sum_body;
}

#[inline(always)]
fn row_sum_body(weights: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for weights in weights.as_chunks::<16>().0 {
        for j in 0..16 {
            lanes[j] += weights[j];
        }
    }
    sum_lanes(lanes)
}

isa_dispatch! {
    fn multiply(values: &mut [f32], factor: f32) = multiply_body;
}

#[inline(always)]
fn multiply_body(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}
