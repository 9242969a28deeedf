//! Backward: weights from the saved log-sum-exp, gradients tile by tile.
//!
//! With P the weights, dP = d_out V^T, D = sum(d_out * out) of a row: dS = P (dP - D) / sqrt(head_dim),
//! dq = dS K, dK = dS^T q, dV = P^T d_out.

use super::head::{Head, Queries, exp_row, row_dot};
use super::{Heads, Sequence, SequenceGradient, TILE};
use crate::cpu::disjoint::{DisjointMut, Tile};
use crate::cpu::isa::isa_dispatch;
use crate::cpu::micro::{self, Strided};

/// What forward saw and made, and the gradient of what it made; `(rows, heads * head_dim)` each.
pub(super) struct Saved<'a> {
    pub(super) q: &'a [f32],
    pub(super) out: &'a [f32],
    /// `(rows, heads)`.
    pub(super) log_sum_exp: &'a [f32],
    pub(super) d_out: &'a [f32],
}

/// Gradients of one sequence's keys and values, shared among the tasks of its heads.
pub(super) struct Targets<'a> {
    keys: DisjointMut<'a, f32>,
    values: DisjointMut<'a, f32>,
    prefix: Option<(DisjointMut<'a, f32>, DisjointMut<'a, f32>)>,
}

impl<'a> Targets<'a> {
    pub(super) fn new(
        heads: &Heads,
        sequence: &Sequence<'_>,
        gradient: &'a mut SequenceGradient<'_>,
    ) -> Self {
        let kv = heads.kv_width();
        assert!(
            sequence.start.is_multiple_of(TILE),
            "backward over a chunk that starts at position {}: cut at multiples of {TILE}",
            sequence.start
        );
        assert_eq!(gradient.dkeys.len(), sequence.keys.len(), "gradient of keys");
        assert_eq!(gradient.dvalues.len(), sequence.values.len(), "gradient of values");
        let prefix = match (&sequence.prefix, &mut gradient.prefix) {
            (Some(prefix), Some(gradient)) => {
                let size = sequence.rows.len().div_ceil(TILE) * prefix.keys.len();
                assert_eq!(gradient.dkeys.len(), size, "gradient of a prefix's keys");
                assert_eq!(gradient.dvalues.len(), size, "gradient of a prefix's values");
                let keys = DisjointMut::matrix(&mut *gradient.dkeys, kv);
                Some((keys, DisjointMut::matrix(&mut *gradient.dvalues, kv)))
            }
            (None, None) => None,
            _ => panic!("a prefix without a gradient, or a gradient without a prefix"),
        };
        Self {
            keys: DisjointMut::matrix(&mut *gradient.dkeys, kv),
            values: DisjointMut::matrix(&mut *gradient.dvalues, kv),
            prefix,
        }
    }
}

/// Sums of one head's gradients, `(tiles, TILE, head_dim)` each.
struct Sums {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// All query heads of one key head of one sequence; `dq` has the group's columns.
pub(super) fn group(
    head: &Head<'_>,
    saved: &Saved<'_>,
    targets: &Targets<'_>,
    dq: &mut Tile<'_, f32>,
) {
    let dim = head.heads.head_dim;
    let columns = head.kv_head * dim..(head.kv_head + 1) * dim;
    let size = head.tiles() * TILE * dim;
    let mut sums = Sums { keys: vec![0.0; size], values: vec![0.0; size] };
    let own = head.prefix_tiles() * TILE * dim;
    let keys = head.sequence.keys.len() / head.heads.kv_width();
    // Earlier calls (later chunks) have added to these already: their chains go on.
    let mut key_target = targets.keys.tile(0..keys, columns.clone());
    let mut value_target = targets.values.tile(0..keys, columns.clone());
    for row in 0..keys {
        sums.keys[own + row * dim..][..dim].copy_from_slice(key_target.row(row));
        sums.values[own + row * dim..][..dim].copy_from_slice(value_target.row(row));
    }
    let mut buffers = Buffers::new(dim);
    for (block, queries) in head.query_tiles().into_iter().enumerate().rev() {
        sums.keys[..own].fill(0.0);
        sums.values[..own].fill(0.0);
        for member in 0..head.heads.group() {
            tile(head, saved, queries, member, &mut sums, &mut buffers);
            for row in 0..queries.rows() {
                let columns = member * dim..(member + 1) * dim;
                let result = &buffers.dq[row * dim..][..dim];
                dq.row(queries.from + row)[columns].copy_from_slice(result);
            }
        }
        if let Some((keys, values)) = &targets.prefix {
            let rows = block * head.prefix_tokens..(block + 1) * head.prefix_tokens;
            let mut keys = keys.tile(rows.clone(), columns.clone());
            let mut values = values.tile(rows, columns.clone());
            for row in 0..head.prefix_tokens {
                keys.row(row).copy_from_slice(&sums.keys[row * dim..][..dim]);
                values.row(row).copy_from_slice(&sums.values[row * dim..][..dim]);
            }
        }
    }
    for row in 0..keys {
        key_target.row(row).copy_from_slice(&sums.keys[own + row * dim..][..dim]);
        value_target.row(row).copy_from_slice(&sums.values[own + row * dim..][..dim]);
    }
}

struct Buffers {
    weights: Vec<f32>,
    d_scores: Vec<f32>,
    dq: Vec<f32>,
}

impl Buffers {
    fn new(dim: usize) -> Self {
        let square = vec![0.0; TILE * TILE];
        Self { weights: square.clone(), d_scores: square, dq: vec![0.0; TILE * dim] }
    }
}

/// One query tile of one head: fills `buffers.dq`, adds to the sums.
fn tile(
    head: &Head<'_>,
    saved: &Saved<'_>,
    queries: Queries,
    member: usize,
    sums: &mut Sums,
    buffers: &mut Buffers,
) {
    let (dim, rows) = (head.heads.head_dim, queries.rows());
    let q = head.strided(saved.q, queries, member);
    let d_out = head.strided(saved.d_out, queries, member);
    let out = head.strided(saved.out, queries, member);
    let mut along = [0.0f32; TILE];
    for (row, along) in along.iter_mut().enumerate().take(rows) {
        let at = row * d_out.row;
        *along = row_dot(head.isa, &d_out.slice[at..at + dim], &out.slice[at..at + dim]);
    }
    let first_row = head.sequence.rows.start + queries.from;
    let query_head = head.kv_head * head.heads.group() + member;
    buffers.dq[..rows * dim].fill(0.0);
    for tile in head.key_tiles(queries) {
        head.scores(q, queries, tile, &mut buffers.weights);
        head.against_values(d_out, rows, tile, &mut buffers.d_scores);
        for row in 0..rows {
            let sum = saved.log_sum_exp[(first_row + row) * head.heads.heads + query_head];
            let weights = &mut buffers.weights[row * TILE..][..TILE];
            exp_row(head.isa, weights, sum);
            let d_scores = &mut buffers.d_scores[row * TILE..][..TILE];
            score_gradient(head.isa, weights, d_scores, along[row], head.scale());
        }
        head.add_keys(rows, &buffers.d_scores, tile, &mut buffers.dq);
        let cells = tile * TILE * dim..(tile + 1) * TILE * dim;
        let turned = |slice| Strided { slice, row: 1, column: TILE };
        let (weights, d_scores) = (turned(&buffers.weights[..]), turned(&buffers.d_scores[..]));
        let keys = &mut sums.keys[cells.clone()];
        micro::tile(head.isa, TILE, dim, rows, d_scores, q.slice, q.row, keys, dim, true);
        let values = &mut sums.values[cells];
        micro::tile(head.isa, TILE, dim, rows, weights, d_out.slice, d_out.row, values, dim, true);
    }
}

isa_dispatch! {
    fn score_gradient(weights: &[f32], d: &mut [f32], along: f32, scale: f32) = score_gradient_body;
}

#[inline(always)]
fn score_gradient_body(weights: &[f32], d: &mut [f32], along: f32, scale: f32) {
    for (d, weight) in d.iter_mut().zip(weights) {
        *d = weight * (*d - along) * scale;
    }
}
