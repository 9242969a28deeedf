//! One key and value head of one sequence, laid out for the micro-kernel.

use super::{Heads, Sequence, TILE};
use crate::cpu::isa::{Isa, isa_dispatch};
use crate::cpu::math::{dot, exp};
use crate::cpu::micro::{self, Strided};
use crate::cpu::transpose::transpose;

/// Keys and values of one head in tiles of [`TILE`] rows, the prefix's tiles first, rows beyond the end zero.
pub(super) struct Head<'a> {
    pub(super) isa: Isa,
    pub(super) heads: Heads,
    pub(super) sequence: &'a Sequence<'a>,
    pub(super) kv_head: usize,
    pub(super) prefix_tokens: usize,
    prefix_tiles: usize,
    /// `(tiles, TILE, head_dim)`.
    keys: Vec<f32>,
    /// `(tiles, head_dim, TILE)`.
    keys_transposed: Vec<f32>,
    /// `(tiles, TILE, head_dim)`.
    values: Vec<f32>,
    /// `(tiles, head_dim, TILE)`; for backward only.
    values_transposed: Vec<f32>,
}

/// A tile of queries: rows `from` to `to` of the call, the first at position `position`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queries {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) position: usize,
}

impl Queries {
    pub(super) fn rows(&self) -> usize {
        self.to - self.from
    }
}

impl<'a> Head<'a> {
    pub(super) fn new(
        isa: Isa,
        heads: Heads,
        sequence: &'a Sequence<'a>,
        kv_head: usize,
        backward: bool,
    ) -> Self {
        let kv = heads.kv_width();
        let prefix_tokens = sequence.prefix.map_or(0, |prefix| prefix.keys.len() / kv);
        let prefix_tiles = prefix_tokens.div_ceil(TILE);
        let tiles = prefix_tiles + (sequence.keys.len() / kv).div_ceil(TILE);
        let size = tiles * TILE * heads.head_dim;
        let mut head = Self {
            isa,
            heads,
            sequence,
            kv_head,
            prefix_tokens,
            prefix_tiles,
            keys: vec![0.0; size],
            keys_transposed: vec![0.0; size],
            values: vec![0.0; size],
            values_transposed: vec![0.0; if backward { size } else { 0 }],
        };
        if let Some(prefix) = sequence.prefix {
            head.lay(0, prefix.keys, prefix.values);
        }
        head.lay(prefix_tiles, sequence.keys, sequence.values);
        head
    }

    /// Copies this head's columns into tiles from `first` on, plain and transposed.
    fn lay(&mut self, first: usize, keys: &[f32], values: &[f32]) {
        let (dim, kv) = (self.heads.head_dim, self.heads.kv_width());
        let column = self.kv_head * dim;
        let start = first * TILE * dim;
        for (row, out) in keys.chunks_exact(kv).zip(self.keys[start..].chunks_exact_mut(dim)) {
            out.copy_from_slice(&row[column..column + dim]);
        }
        for (row, out) in values.chunks_exact(kv).zip(self.values[start..].chunks_exact_mut(dim)) {
            out.copy_from_slice(&row[column..column + dim]);
        }
        let tiles = (keys.len() / kv).div_ceil(TILE);
        for tile in first..first + tiles {
            let cells = tile * TILE * dim..(tile + 1) * TILE * dim;
            let to = &mut self.keys_transposed[cells.clone()];
            transpose(self.isa, TILE, dim, &self.keys[cells.clone()], dim, to, TILE);
            if !self.values_transposed.is_empty() {
                let to = &mut self.values_transposed[cells.clone()];
                transpose(self.isa, TILE, dim, &self.values[cells], dim, to, TILE);
            }
        }
    }

    /// The factor of the scores.
    pub(super) fn scale(&self) -> f32 {
        (1.0 / (self.heads.head_dim as f64).sqrt()) as f32
    }

    /// Query tiles of the call, ascending; cut at multiples of [`TILE`] from the sequence's start.
    pub(super) fn query_tiles(&self) -> Vec<Queries> {
        let (start, rows) = (self.sequence.start, self.sequence.rows.len());
        let mut tiles = Vec::new();
        let mut from = 0;
        while from < rows {
            let position = start + from;
            let to = rows.min(from + TILE - position % TILE);
            tiles.push(Queries { from, to, position });
            from = to;
        }
        tiles
    }

    /// Key tiles that some row of a query tile sees, ascending, the prefix's first.
    pub(super) fn key_tiles(&self, queries: Queries) -> impl Iterator<Item = usize> + use<> {
        let last = queries.position + queries.rows() - 1;
        let first = match self.heads.window {
            Some(window) => (queries.position + 1).saturating_sub(window) / TILE,
            None => 0,
        };
        let (prefix, first, last) = (self.prefix_tiles, first, last / TILE);
        (0..prefix).chain(prefix + first..=prefix + last)
    }

    /// The keys that row `row` of a query tile sees within a key tile, as a range of its columns.
    fn seen(&self, queries: Queries, row: usize, tile: usize) -> (usize, usize) {
        if tile < self.prefix_tiles {
            return (0, (self.prefix_tokens - tile * TILE).min(TILE));
        }
        let position = queries.position + row;
        let first = (tile - self.prefix_tiles) * TILE;
        let end = (position + 1).saturating_sub(first).min(TILE);
        let from = match self.heads.window {
            Some(window) => (position + 1).saturating_sub(window).saturating_sub(first),
            None => 0,
        };
        (from.min(end), end)
    }

    fn cells(&self, tile: usize) -> std::ops::Range<usize> {
        let size = TILE * self.heads.head_dim;
        tile * size..(tile + 1) * size
    }

    /// First column of query head `member` of the group in a row of queries.
    pub(super) fn column(&self, member: usize) -> usize {
        (self.kv_head * self.heads.group() + member) * self.heads.head_dim
    }

    /// Rows of a query tile, for head `member`, of a `(rows, heads * head_dim)` array.
    pub(super) fn strided<'b>(&self, array: &'b [f32], queries: Queries, member: usize) -> Strided<'b> {
        let width = self.heads.width();
        let row = self.sequence.rows.start + queries.from;
        Strided { slice: &array[row * width + self.column(member)..], row: width, column: 1 }
    }

    /// Scores `(rows, TILE)` of a query tile against a key tile; unseen ones are minus infinity.
    pub(super) fn scores(
        &self,
        q: Strided<'_>,
        queries: Queries,
        tile: usize,
        scores: &mut [f32],
    ) {
        let rows = queries.rows();
        let keys = &self.keys_transposed[self.cells(tile)];
        let dim = self.heads.head_dim;
        micro::tile(self.isa, rows, TILE, dim, q, keys, TILE, scores, TILE, false);
        for (row, scores) in scores.chunks_exact_mut(TILE).take(rows).enumerate() {
            let (from, to) = self.seen(queries, row, tile);
            mask(self.isa, scores, self.scale(), from, to);
        }
    }

    /// c `(rows, head_dim)` += weights `(rows, TILE)` times the values of a tile.
    pub(super) fn add_values(&self, rows: usize, weights: &[f32], tile: usize, c: &mut [f32]) {
        let (dim, values) = (self.heads.head_dim, &self.values[self.cells(tile)]);
        let weights = Strided { slice: weights, row: TILE, column: 1 };
        micro::tile(self.isa, rows, dim, TILE, weights, values, dim, c, dim, true);
    }

    /// c `(rows, head_dim)` += weights `(rows, TILE)` times the keys of a tile.
    pub(super) fn add_keys(&self, rows: usize, weights: &[f32], tile: usize, c: &mut [f32]) {
        let (dim, keys) = (self.heads.head_dim, &self.keys[self.cells(tile)]);
        let weights = Strided { slice: weights, row: TILE, column: 1 };
        micro::tile(self.isa, rows, dim, TILE, weights, keys, dim, c, dim, true);
    }

    /// c `(rows, TILE)` = gradients of outputs `(rows, head_dim)` times the transposed values of a tile.
    pub(super) fn against_values(&self, d_out: Strided<'_>, rows: usize, tile: usize, c: &mut [f32]) {
        let (dim, values) = (self.heads.head_dim, &self.values_transposed[self.cells(tile)]);
        micro::tile(self.isa, rows, TILE, dim, d_out, values, TILE, c, TILE, false);
    }

    /// Number of tiles.
    pub(super) fn tiles(&self) -> usize {
        self.keys.len() / (TILE * self.heads.head_dim)
    }

    /// Tiles of the prefix.
    pub(super) fn prefix_tiles(&self) -> usize {
        self.prefix_tiles
    }
}

isa_dispatch! {
    fn mask(scores: &mut [f32], scale: f32, from: usize, to: usize) = mask_body;
}

#[inline(always)]
fn mask_body(scores: &mut [f32], scale: f32, from: usize, to: usize) {
    scores[..from].fill(f32::NEG_INFINITY);
    scores[to..].fill(f32::NEG_INFINITY);
    for score in &mut scores[from..to] {
        *score *= scale;
    }
}

isa_dispatch! {
    /// Sum of a[i] * b[i] in the canonical order.
    pub(super) fn row_dot(a: &[f32], b: &[f32]) -> f32 = dot;
}

isa_dispatch! {
    /// Turns scores of one row into e^(score - shift), and returns nothing: weights are used again.
    pub(super) fn exp_row(scores: &mut [f32], shift: f32) = exp_row_body;
}

#[inline(always)]
fn exp_row_body(scores: &mut [f32], shift: f32) {
    for score in scores {
        *score = exp(*score - shift);
    }
}
