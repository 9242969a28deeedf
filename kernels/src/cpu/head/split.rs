//! The two products of a sweep from split numbers: a slice of the weight is the left of one and the right of the other.

use super::{PANEL, SLICE, Slice};
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::Isa;
use crate::cpu::scratch;
use crate::cpu::split::{self, Left};
use crate::cpu::transpose::transpose;

/// Room for packed operands of a block of rows.
pub(super) struct Space<'s> {
    /// The rows of the block, as columns.
    x: &'s mut [u32],
    /// A slice as rows, then as panels.
    slice: &'s mut [u32],
    /// What the logits became, one row a row.
    raised: &'s mut [u32],
}

impl<'s> Space<'s> {
    /// Returns the words that a block of `columns` rows needs.
    pub(super) fn words(depth: usize, columns: usize) -> usize {
        Self::parts(depth, columns).iter().sum()
    }

    fn parts(depth: usize, columns: usize) -> [usize; 3] {
        let slice = split::left_words(SLICE, depth).max(split::right_words(SLICE, depth));
        let raised = split::left_words(columns, SLICE);
        [split::right_words(depth, columns), slice, raised]
    }

    /// Packs the rows of a block, which lie in panels `(depth, PANEL)`.
    pub(super) fn new(isa: Isa, panels: &[f32], depth: usize, words: &'s mut [u32]) -> Self {
        let columns = panels.len() / depth;
        let [of_x, of_slice, of_raised] = Self::parts(depth, columns);
        let (x, words) = words.split_at_mut(of_x);
        let (slice, words) = words.split_at_mut(of_slice);
        let to = x.chunks_exact_mut(split::right_words(depth, PANEL));
        for (to, panel) in to.zip(panels.chunks_exact(depth * PANEL)) {
            split::pack_right(isa, panel, PANEL, depth, PANEL, to);
        }
        let raised = &mut words[..of_raised];
        Self { x, slice, raised }
    }

    /// Computes the logits `(tokens, columns)` of a slice. A token whose weight is not finite, as an adapter's may be, has
    /// logits that are not numbers.
    pub(super) fn logits(&mut self, isa: Isa, slice: Slice<'_>, logits: &mut [f32]) {
        let Slice { tokens, depth, .. } = slice;
        let columns = logits.len() / tokens;
        let space = &mut self.slice[..split::left_words(tokens, depth)];
        let left = Left::alone(isa, slice.numbers, slice.stride, tokens, depth, space);
        let all = DisjointMut::matrix(logits, columns);
        let mut c = all.tile(0..tokens, 0..columns);
        split::product(isa, left, self.x, &mut c, false);
        for token in left.odd_rows() {
            c.row(token).fill(f32::NAN);
        }
    }

    /// Computes `sums (rows, depth) (+)= e W` of a slice, where `e` is what its logits `(tokens, columns)` became. A row
    /// with an `e` that is not finite gets sums that are not numbers.
    pub(super) fn gather(
        &mut self,
        isa: Isa,
        slice: Slice<'_>,
        raised: &[f32],
        sums: &mut [f32],
        more: bool,
    ) {
        let Slice { tokens, depth, .. } = slice;
        let (rows, columns) = (sums.len() / depth, raised.len() / tokens);
        let space = &mut self.raised[..split::left_words(rows, tokens)];
        let left = scratch::with(rows * tokens, |turned| {
            transpose(isa, tokens, rows, raised, columns, turned, tokens);
            Left::alone(isa, turned, tokens, rows, tokens, space)
        });
        split::pack_right(isa, slice.numbers, slice.stride, tokens, depth, self.slice);
        let all = DisjointMut::matrix(sums, depth);
        let mut c = all.tile(0..rows, 0..depth);
        split::product(isa, left, self.slice, &mut c, more);
        for row in left.odd_rows() {
            c.row(row).fill(f32::NAN);
        }
    }
}
