//! Backward: weights from the saved log-sum-exp, gradients pair by pair.
//!
//! With P the weights, dP = d_out V^T and D = sum(d_out * out) of a row: dS = P (dP - D) / sqrt(head_dim), dq = dS K,
//! dK = dS^T q, dV = P^T d_out. The chain of a query's gradient runs over key tiles upward, that of a key's over query
//! tiles downward with heads upward within. A task meets pairs in that order; it may leave the one or the other sum to
//! another task, which then computes the same P and dS again.

use std::ops::Range;

use super::TILE;
use super::group::Group;
use super::products::{against, gather, scatter, turn};
use super::sight::Sight;
use super::softmax::{copy, row_products, weigh};
use super::tasks::{Part, Task};
use super::tiles::{Keys, Queries};
use crate::cpu::disjoint::{DisjointMut, Tile};
use crate::cpu::scratch;

/// What forward saw and made, and the gradient of what it made; `(rows, heads * head_dim)` each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) out: &'a [f32],
    /// `(rows, heads)`.
    pub(crate) log_sum_exp: &'a [f32],
    pub(crate) d_out: &'a [f32],
}

/// Where the gradients of one sequence's keys and values go; shared among tasks.
pub(crate) struct Targets<'a> {
    /// `(start + rows, kv_width)`, added to.
    pub(crate) keys: DisjointMut<'a, f32>,
    /// Likewise.
    pub(crate) values: DisjointMut<'a, f32>,
    /// `(query tiles * tokens, kv_width)` of keys and of values, overwritten.
    pub(crate) prefix: Option<(DisjointMut<'a, f32>, DisjointMut<'a, f32>)>,
}

/// The buffers of a task.
struct Buffers<'a> {
    /// Keys and values of the key tile, `(head_dim, TILE)`.
    keys_turned: &'a mut [f32],
    values_turned: &'a mut [f32],
    /// Weights and gradients of scores, `(TILE, TILE)`.
    weights: &'a mut [f32],
    d_scores: &'a mut [f32],
    /// `(TILE, head_dim)` each.
    d_keys: &'a mut [f32],
    d_values: &'a mut [f32],
    d_q: &'a mut [f32],
    /// D of each row of the run of query tiles, `(tiles, members, TILE)`.
    along: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    fn len(dim: usize, slots: usize) -> usize {
        TILE * (5 * dim + 2 * TILE + slots)
    }

    fn new(dim: usize, buffer: &'a mut [f32]) -> Self {
        let mut rest = buffer;
        let mut take = |len: usize| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            part
        };
        Self {
            keys_turned: take(TILE * dim),
            values_turned: take(TILE * dim),
            weights: take(TILE * TILE),
            d_scores: take(TILE * TILE),
            d_keys: take(TILE * dim),
            d_values: take(TILE * dim),
            d_q: take(TILE * dim),
            along: rest,
        }
    }
}

/// One task under way.
struct Work<'a> {
    group: &'a Group<'a>,
    saved: &'a Saved<'a>,
    tiles: Range<usize>,
    part: Part,
}

/// Makes the task's sums: those of queries need all key tiles, those of keys all query tiles of the call.
pub(crate) fn run(
    task: &Task<'_>,
    saved: &Saved<'_>,
    targets: &Targets<'_>,
    dq: &DisjointMut<'_, f32>,
) {
    let group = &task.group;
    let (dim, members) = (group.heads.head_dim, group.members());
    let slots = task.tiles.len() * members;
    let work = Work {
        group,
        saved,
        tiles: task.tiles.clone(),
        part: task.part,
    };
    scratch::with(Buffers::len(dim, slots), |buffer| {
        let mut buffers = Buffers::new(dim, buffer);
        work.fill_along(buffers.along);
        // A task that makes no sums of queries takes no rows.
        let rows = match task.part {
            Part::Keys => 0..0,
            Part::All | Part::Queries => work.rows(),
        };
        let mut dq = dq.tile(rows, group.columns());
        for index in task.key_tiles.clone() {
            let keys = group.keys(index);
            turn(group, keys.rows, keys.keys, buffers.keys_turned);
            turn(group, keys.rows, keys.values, buffers.values_turned);
            if keys.prefix {
                work.meet_prefix(&keys, targets, &mut dq, &mut buffers);
            } else {
                work.meet(&keys, targets, &mut dq, &mut buffers);
            }
        }
    });
}

impl Work<'_> {
    /// Rows of the call that the run covers.
    fn rows(&self) -> Range<usize> {
        let start = self.group.sequence.rows.start;
        let last = self.group.queries(self.tiles.end - 1);
        let first = self.group.queries(self.tiles.start);
        start + first.first..start + last.first + last.rows
    }

    /// D of every row and member.
    fn fill_along(&self, along: &mut [f32]) {
        let (group, saved) = (self.group, self.saved);
        let dim = group.heads.head_dim;
        let mut slots = along.chunks_exact_mut(TILE);
        for tile in self.tiles.clone() {
            let queries = group.queries(tile);
            for (member, along) in (0..group.members()).zip(&mut slots) {
                let d_out = group.strided(saved.d_out, queries, member);
                let out = group.strided(saved.out, queries, member);
                let (a, b, stride) = (d_out.slice, out.slice, out.row);
                row_products(group.isa, a, b, stride, dim, &mut along[..queries.rows]);
            }
        }
    }

    /// Meets a tile of the sequence's own keys: earlier calls (later chunks) may have begun its chains.
    fn meet(
        &self,
        keys: &Keys<'_>,
        targets: &Targets<'_>,
        dq: &mut Tile<'_, f32>,
        buffers: &mut Buffers<'_>,
    ) {
        let group = self.group;
        let sums = self.part != Part::Queries;
        // A task that makes no sums of keys takes no rows.
        let end = if sums { keys.rows } else { 0 };
        let rows = keys.first..keys.first + end;
        let mut d_keys = targets.keys.tile(rows.clone(), group.kv_columns());
        let mut d_values = targets.values.tile(rows, group.kv_columns());
        load(&mut d_keys, buffers.d_keys);
        load(&mut d_values, buffers.d_values);
        for tile in self.tiles.clone().rev() {
            let queries = group.queries(tile);
            if let Some(sight) = group.sight(queries, keys) {
                self.pairs(tile, queries, keys, &sight, dq, buffers);
            }
        }
        store(group, buffers.d_keys, &mut d_keys);
        store(group, buffers.d_values, &mut d_values);
    }

    /// Meets a tile of the prefix: each query tile has sums of its own.
    fn meet_prefix(
        &self,
        keys: &Keys<'_>,
        targets: &Targets<'_>,
        dq: &mut Tile<'_, f32>,
        buffers: &mut Buffers<'_>,
    ) {
        let group = self.group;
        let (d_keys, d_values) = targets.prefix.as_ref().expect("checked at the entry");
        let tokens = group.prefix_tokens();
        for tile in self.tiles.clone().rev() {
            let queries = group.queries(tile);
            buffers.d_keys.fill(0.0);
            buffers.d_values.fill(0.0);
            if let Some(sight) = group.sight(queries, keys) {
                self.pairs(tile, queries, keys, &sight, dq, buffers);
            }
            if self.part != Part::Queries {
                let first = tile * tokens + keys.first;
                let rows = first..first + keys.rows;
                let mut to = d_keys.tile(rows.clone(), group.kv_columns());
                store(group, buffers.d_keys, &mut to);
                let mut to = d_values.tile(rows, group.kv_columns());
                store(group, buffers.d_values, &mut to);
            }
        }
    }

    /// Meets a key tile with a query tile of all members, and adds to the sums.
    fn pairs(
        &self,
        tile: usize,
        queries: Queries,
        keys: &Keys<'_>,
        sight: &Sight,
        dq: &mut Tile<'_, f32>,
        buffers: &mut Buffers<'_>,
    ) {
        let group = self.group;
        let members = group.members();
        for member in 0..members {
            let q = group.strided(self.saved.q, queries, member);
            let d_out = group.strided(self.saved.d_out, queries, member);
            against(group, sight, q, buffers.keys_turned, buffers.weights);
            against(group, sight, d_out, buffers.values_turned, buffers.d_scores);
            let slot = (tile - self.tiles.start) * members + member;
            let along = &buffers.along[slot * TILE..][..queries.rows];
            self.weigh(
                queries,
                member,
                sight,
                along,
                buffers.weights,
                buffers.d_scores,
            );
            if self.part != Part::Keys {
                self.add_queries(queries, member, keys, sight, dq, buffers);
            }
            if self.part != Part::Queries {
                scatter(group, sight, buffers.d_scores, q, buffers.d_keys);
                scatter(group, sight, buffers.weights, d_out, buffers.d_values);
            }
        }
    }

    /// Adds to the gradient of a query tile's rows; the first key tile that it sees begins it.
    fn add_queries(
        &self,
        queries: Queries,
        member: usize,
        keys: &Keys<'_>,
        sight: &Sight,
        dq: &mut Tile<'_, f32>,
        buffers: &mut Buffers<'_>,
    ) {
        let group = self.group;
        let dim = group.heads.head_dim;
        // The first row of `dq` is the run's.
        let first = queries.first - group.queries(self.tiles.start).first;
        let columns = member * dim..(member + 1) * dim;
        let begun = keys.index != group.first_keys(queries);
        let sums = &mut buffers.d_q[..queries.rows * dim];
        if begun {
            for (row, sums) in sums.chunks_exact_mut(dim).enumerate() {
                sums.copy_from_slice(&dq.row(first + row)[columns.clone()]);
            }
        }
        gather(group, sight, buffers.d_scores, keys.keys, sums, begun);
        for (row, sums) in sums.chunks_exact(dim).enumerate() {
            copy(group.isa, sums, &mut dq.row(first + row)[columns.clone()]);
        }
    }

    fn weigh(
        &self,
        queries: Queries,
        member: usize,
        sight: &Sight,
        along: &[f32],
        scores: &mut [f32],
        d: &mut [f32],
    ) {
        let group = self.group;
        let head = group.query_heads().start + member;
        let first = group.sequence.rows.start + queries.first;
        let mut sums = [0.0f32; TILE];
        for (row, sum) in sums.iter_mut().enumerate().take(queries.rows) {
            *sum = self.saved.log_sum_exp[(first + row) * group.heads.heads + head];
        }
        weigh(group.isa, scores, d, sight, group.scale(), &sums, along);
    }
}

/// Copies a target into `(rows, columns)`.
fn load(from: &mut Tile<'_, f32>, to: &mut [f32]) {
    let columns = from.columns();
    for (row, to) in (0..from.rows()).zip(to.chunks_exact_mut(columns)) {
        to.copy_from_slice(from.row(row));
    }
}

/// Copies `(rows, columns)` into a target.
fn store(group: &Group<'_>, from: &[f32], to: &mut Tile<'_, f32>) {
    let (rows, columns) = (to.rows(), to.columns());
    for (row, from) in (0..rows).zip(from.chunks_exact(columns)) {
        copy(group.isa, from, to.row(row));
    }
}
