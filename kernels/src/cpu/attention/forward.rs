//! Forward: key tiles in ascending order, with a running maximum.

use std::ops::Range;

use super::TILE;
use super::group::Group;
use super::products::{against, gather, turn};
use super::softmax::{LANES, Running, copy, finish, soften};
use super::tiles::Queries;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::micro::Strided;
use crate::cpu::scratch;

/// Holds what a task keeps of its query tiles from key tile to key tile; a slot is a tile of one member.
struct Kept<'a> {
    /// `(slots, TILE)`.
    maxima: &'a mut [f32],
    /// `(slots, TILE, LANES)`.
    totals: &'a mut [f32],
    /// `(slots, TILE, head_dim)`; begun by the first key tile that is seen.
    out: &'a mut [f32],
}

impl<'a> Kept<'a> {
    /// Takes the start of a buffer and returns the rest of it.
    fn new(slots: usize, dim: usize, buffer: &'a mut [f32]) -> (Self, &'a mut [f32]) {
        let rows = slots * TILE;
        let (maxima, rest) = buffer.split_at_mut(rows);
        let (totals, rest) = rest.split_at_mut(rows * LANES);
        let (out, rest) = rest.split_at_mut(rows * dim);
        maxima.fill(f32::NEG_INFINITY);
        totals.fill(0.0);
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
            totals: &mut self.totals[rows.start * LANES..rows.end * LANES],
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
    let len = slots * TILE * (1 + LANES + dim) + TILE * (TILE + dim);
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
                let begun = index != group.first_keys(queries);
                for stack in Stack::all(group, queries) {
                    let mut running = kept.slot(place * members + stack.members.start);
                    let sight = sight.repeated(stack.members.len());
                    against(group, &sight, stack.left(group, q), turned, scores);
                    soften(group.isa, scores, &sight, group.scale(), &mut running);
                    let (values, out) = (keys.values, running.out);
                    gather(group, &sight, scores, values, out, begun);
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
    let mut row_sums = [0.0; TILE];
    for (place, tile) in tiles.enumerate() {
        let queries = group.queries(tile);
        let first = group.sequence.rows.start + queries.first;
        let rows = first..first + queries.rows;
        let mut out = out.tile(rows.clone(), group.columns());
        let mut sums = log_sum_exp.tile(rows, group.query_heads());
        for stack in Stack::all(group, queries) {
            let mut running = kept.slot(place * members + stack.members.start);
            finish(group.isa, &mut running, &mut row_sums);
            for (at, sum) in row_sums.iter().enumerate().take(stack.len()) {
                let (row, member) = stack.cell(at);
                let from = &running.out[at * dim..(at + 1) * dim];
                let to = &mut out.row(row)[member * dim..(member + 1) * dim];
                copy(group.isa, from, to);
                sums.row(row)[member] = *sum;
            }
        }
    }
}

/// Rows that meet a key tile together: those of one head, or, when there is only one, that of all heads.
struct Stack {
    queries: Queries,
    members: Range<usize>,
}

impl Stack {
    fn all(group: &Group<'_>, queries: Queries) -> impl Iterator<Item = Self> {
        let members = group.members();
        let step = if queries.rows == 1 { TILE } else { 1 };
        (0..members).step_by(step).map(move |first| Self {
            queries,
            members: first..(first + step).min(members),
        })
    }

    fn len(&self) -> usize {
        self.queries.rows * self.members.len()
    }

    /// Its rows of `q (rows, heads * head_dim)`.
    fn left<'a>(&self, group: &Group<'_>, q: &'a [f32]) -> Strided<'a> {
        let left = group.strided(q, self.queries, self.members.start);
        let row = if self.queries.rows == 1 {
            group.heads.head_dim
        } else {
            left.row
        };
        Strided { row, ..left }
    }

    /// Row and member of its row `at`.
    fn cell(&self, at: usize) -> (usize, usize) {
        match self.queries.rows {
            1 => (0, self.members.start + at),
            _ => (at, self.members.start),
        }
    }
}
