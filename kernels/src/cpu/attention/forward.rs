//! Forward: key tiles in ascending order, with a running maximum.

use std::ops::Range;

use super::TILE;
use super::group::Group;
use super::products::{against, gather, turn};
use super::softmax::{Running, finish, soften};
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::scratch;

/// Holds what a task keeps of its query tiles from key tile to key tile; a slot is a tile of one member.
struct Kept<'a> {
    /// `(slots, TILE)`.
    maxima: &'a mut [f32],
    /// `(slots, TILE)`.
    totals: &'a mut [f32],
    /// `(slots, TILE, head_dim)`.
    out: &'a mut [f32],
}

impl<'a> Kept<'a> {
    /// Takes the start of a buffer and returns the rest of it.
    fn new(slots: usize, dim: usize, buffer: &'a mut [f32]) -> (Self, &'a mut [f32]) {
        let rows = slots * TILE;
        let (maxima, rest) = buffer.split_at_mut(rows);
        let (totals, rest) = rest.split_at_mut(rows);
        let (out, rest) = rest.split_at_mut(rows * dim);
        maxima.fill(f32::NEG_INFINITY);
        totals.fill(0.0);
        out.fill(0.0);
        let kept = Self {
            maxima,
            totals,
            out,
        };
        (kept, rest)
    }

    fn slot(&mut self, slot: usize) -> Running<'_> {
        let rows = slot * TILE..(slot + 1) * TILE;
        let dim = self.out.len() / self.maxima.len();
        Running {
            maxima: &mut self.maxima[rows.clone()],
            totals: &mut self.totals[rows.clone()],
            out: &mut self.out[rows.start * dim..rows.end * dim],
        }
    }
}

/// Computes `out (rows, heads * head_dim)` and `log_sum_exp (rows, heads)` of a run of query tiles for a group's heads.
pub(crate) fn run(
    group: &Group<'_>,
    tiles: Range<usize>,
    q: &[f32],
    out: &DisjointMut<'_, f32>,
    log_sum_exp: &DisjointMut<'_, f32>,
) {
    let (dim, members) = (group.heads.head_dim, group.members());
    let slots = tiles.len() * members;
    let len = slots * TILE * (2 + dim) + TILE * (TILE + dim);
    scratch::with(len, |buffer| {
        let (mut kept, rest) = Kept::new(slots, dim, buffer);
        let (scores, turned) = rest.split_at_mut(TILE * TILE);
        for index in 0..group.key_tiles() {
            let keys = group.keys(index);
            let mut is_turned = false;
            for (place, tile) in tiles.clone().enumerate() {
                let queries = group.queries(tile);
                let Some(sight) = group.sight(queries, &keys) else {
                    continue;
                };
                if !is_turned {
                    turn(group, keys.rows, keys.keys, turned);
                    is_turned = true;
                }
                for member in 0..members {
                    let mut running = kept.slot(place * members + member);
                    let q = group.strided(q, queries, member);
                    against(group, &sight, q, turned, scores);
                    soften(group.isa, scores, &sight, group.scale(), &mut running);
                    gather(group, &sight, scores, keys.values, running.out);
                }
            }
        }
        write(group, tiles, &mut kept, out, log_sum_exp);
    });
}

/// Writes the results of a run of query tiles.
fn write(
    group: &Group<'_>,
    tiles: Range<usize>,
    kept: &mut Kept<'_>,
    out: &DisjointMut<'_, f32>,
    log_sum_exp: &DisjointMut<'_, f32>,
) {
    let (dim, members) = (group.heads.head_dim, group.members());
    for (place, tile) in tiles.enumerate() {
        let queries = group.queries(tile);
        let first = group.sequence.rows.start + queries.first;
        let rows = first..first + queries.rows;
        let mut out = out.tile(rows.clone(), group.columns());
        let mut sums = log_sum_exp.tile(rows, group.query_heads());
        for member in 0..members {
            let running = kept.slot(place * members + member);
            for row in 0..queries.rows {
                let from = &running.out[row * dim..(row + 1) * dim];
                let to = &mut out.row(row)[member * dim..(member + 1) * dim];
                let (maximum, total) = (running.maxima[row], running.totals[row]);
                sums.row(row)[member] = finish(group.isa, from, maximum, total, to);
            }
        }
    }
}
