//! One key and value head of one sequence, cut into tiles.

use std::ops::Range;

use super::TILE;
use super::sight::Sight;
use super::tiles::{Keys, Queries};
use crate::cpu::Isa;
use crate::cpu::micro::Strided;
use crate::ops::attention::{Heads, Sequence};

/// A key and value head of one sequence, with the query heads that share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) isa: Isa,
    pub(crate) heads: Heads,
    pub(crate) sequence: &'a Sequence<'a>,
    pub(crate) kv_head: usize,
}

impl<'a> Group<'a> {
    /// Returns the number of query heads that share the key head.
    pub(crate) fn members(&self) -> usize {
        self.heads.heads / self.heads.kv_heads
    }

    /// Returns the distance between two rows of keys.
    pub(super) fn kv_width(&self) -> usize {
        self.heads.kv_heads * self.heads.head_dim
    }

    /// Returns the head's columns in a row of keys or values.
    pub(super) fn kv_columns(&self) -> Range<usize> {
        let dim = self.heads.head_dim;
        self.kv_head * dim..(self.kv_head + 1) * dim
    }

    /// Returns the columns of the query heads in a row of queries or outputs.
    pub(super) fn columns(&self) -> Range<usize> {
        let width = self.members() * self.heads.head_dim;
        self.kv_head * width..(self.kv_head + 1) * width
    }

    /// Returns the query heads.
    pub(super) fn query_heads(&self) -> Range<usize> {
        self.kv_head * self.members()..(self.kv_head + 1) * self.members()
    }

    /// Returns the factor of the scores.
    pub(super) fn scale(&self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "widths are small")]
        let width = self.heads.head_dim as f64;
        #[expect(clippy::cast_possible_truncation, reason = "the one rounding")]
        let scale = (1.0 / width.sqrt()) as f32;
        scale
    }

    /// Returns the number of query tiles in the call.
    pub(crate) fn query_tiles(&self) -> usize {
        let (start, rows) = (self.sequence.start, self.sequence.rows.len());
        (start + rows).div_ceil(TILE) - start / TILE
    }

    /// Returns query tile `index` of the call.
    pub(super) fn queries(&self, index: usize) -> Queries {
        let (start, rows) = (self.sequence.start, self.sequence.rows.len());
        let tile = start / TILE + index;
        let position = start.max(tile * TILE);
        Queries {
            first: position - start,
            rows: (start + rows).min((tile + 1) * TILE) - position,
            position,
        }
    }

    /// Returns the number of tokens of the prefix.
    pub(super) fn prefix_tokens(&self) -> usize {
        let prefix = self.sequence.prefix.as_ref();
        prefix.map_or(0, |prefix| prefix.keys.len() / self.kv_width())
    }

    /// Returns the number of tiles of the prefix.
    pub(crate) fn prefix_tiles(&self) -> usize {
        self.prefix_tokens().div_ceil(TILE)
    }

    /// Returns the number of key tiles, the prefix included.
    pub(crate) fn key_tiles(&self) -> usize {
        let tokens = self.sequence.start + self.sequence.rows.len();
        self.prefix_tiles() + tokens.div_ceil(TILE)
    }

    /// Returns key tile `index`, the prefix's tiles first.
    pub(super) fn keys(&self, index: usize) -> Keys<'a> {
        let (prefix_tiles, width) = (self.prefix_tiles(), self.kv_width());
        let (keys, values, tile) = match self.sequence.prefix {
            Some(prefix) if index < prefix_tiles => (prefix.keys, prefix.values, index),
            _ => {
                let tile = index - prefix_tiles;
                (self.sequence.keys, self.sequence.values, tile)
            }
        };
        let first = tile * TILE;
        let from = first * width + self.kv_columns().start;
        Keys {
            index,
            keys: &keys[from..],
            values: &values[from..],
            first,
            rows: (keys.len() / width - first).min(TILE),
            prefix: index < prefix_tiles,
        }
    }

    /// Returns what a query tile sees of a key tile, or `None` when that is nothing.
    pub(super) fn sight(&self, queries: Queries, keys: &Keys<'_>) -> Option<Sight> {
        let window = self.heads.window.unwrap_or(usize::MAX);
        let ahead = if keys.prefix { self.prefix_tokens() } else { 0 };
        let queries = Queries {
            position: queries.position + ahead,
            ..queries
        };
        Sight::causal(queries, keys, window)
    }

    /// Returns the first key tile that a query tile sees; it sees all from there to its own.
    pub(super) fn first_keys(&self, queries: Queries) -> usize {
        let window = self.heads.window.unwrap_or(usize::MAX);
        let prefix = self.prefix_tokens();
        let lowest = (prefix + queries.position + 1).saturating_sub(window);
        match lowest.checked_sub(prefix) {
            Some(own) => self.prefix_tiles() + own / TILE,
            None => lowest / TILE,
        }
    }

    /// Counts the pairs of tiles that see each other, for the query and key tiles in the ranges.
    pub(crate) fn pairs(&self, queries: Range<usize>, keys: Range<usize>) -> usize {
        let seen = |index| {
            let queries = self.queries(index);
            let last = (queries.position + queries.rows - 1) / TILE;
            let end = keys.end.min(self.prefix_tiles() + last + 1);
            end.saturating_sub(keys.start.max(self.first_keys(queries)))
        };
        queries.map(seen).sum()
    }

    /// Returns a query tile's rows of head `member`, in a `(rows, heads * head_dim)` array.
    pub(super) fn strided<'b>(
        &self,
        array: &'b [f32],
        queries: Queries,
        member: usize,
    ) -> Strided<'b> {
        let dim = self.heads.head_dim;
        let width = self.heads.heads * dim;
        let row = self.sequence.rows.start + queries.first;
        let column = self.columns().start + member * dim;
        Strided {
            slice: &array[row * width + column..],
            row: width,
            column: 1,
        }
    }
}
