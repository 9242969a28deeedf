//! Products of split numbers: operands packed as pieces of bf16, in the order in which tiles read them.
//!
//! What is computed stands in [`reference::split`](crate::reference::split). Words of 32 bits hold two neighbours along
//! the reduction, the first in the lower half. A tile is 16 rows of 16 words. A step of 32 numbers is six tiles: high,
//! middle and low, each of the first and the second 16 rows (of a strip of the left) or columns (of a panel of the right).
//!
//! The bits of an element depend on its row and column alone: tiles and `emulated` give the same, for any company.

use std::ops::Range;

use super::Cpu;
use super::disjoint::{DisjointMut, Tile};
use super::isa::{Isa, isa_dispatch};
use super::micro;
use super::pieces::{DEPTH, HEADER, PANEL, PIECES, SIDE, STEP, STRIP, TILE};
use super::transpose::fetch;

mod emulated;

// A panel of numbers becomes one of pieces.
const _: () = assert!(PANEL == micro::PANEL);

/// Numbers of a row of the left from those that are packed to those that are asked for.
const AHEAD: usize = 2 * DEPTH;

/// Rows of the right from the one that is packed to the one that is asked for.
const AHEAD_ROWS: usize = 16;

/// The upper half of a word.
const UPPER: u32 = 0xffff_0000;

/// The bits of infinity: those of the exponent.
const INFINITE: u32 = 0x7f80_0000;

/// Rows of a left matrix `(rows, depth)`, packed strip by strip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left<'a> {
    words: &'a [u32],
    rows: usize,
    depth: usize,
}

/// Returns the words of a left matrix, packed.
pub(crate) fn left_words(rows: usize, depth: usize) -> usize {
    rows.div_ceil(STRIP) * strip_words(depth)
}

/// Returns the words of a right matrix, packed.
pub(crate) fn right_words(depth: usize, columns: usize) -> usize {
    columns.div_ceil(PANEL) * panel_words(depth)
}

fn strip_words(depth: usize) -> usize {
    HEADER + panel_words(depth)
}

fn panel_words(depth: usize) -> usize {
    depth.div_ceil(DEPTH) * STEP
}

impl<'a> Left<'a> {
    /// Packs the columns `depth` of `x (rows, width)` into `space`, which has [`left_words`]. A row with a number that is
    /// not finite becomes zeros, and is one of [`Left::odd_rows`].
    ///
    /// # Panics
    /// When `space` has another length or the columns leave the matrix.
    pub(crate) fn new(
        cpu: &Cpu,
        x: &[f32],
        width: usize,
        depth: Range<usize>,
        space: &'a mut [u32],
    ) -> Self {
        let rows = x.len() / width;
        assert!(depth.end <= width, "columns {depth:?} of rows of {width}");
        let words = strip_words(depth.len());
        assert_eq!(
            space.len(),
            left_words(rows, depth.len()),
            "words of a left matrix"
        );
        let strips = DisjointMut::matrix(space, words);
        cpu.for_each(rows.div_ceil(STRIP), |strip| {
            let first = strip * STRIP;
            let from = &x[first * width..rows.min(first + STRIP) * width];
            let mut to = strips.rows(strip..strip + 1);
            pack_strip(cpu.isa(), from, width, depth.clone(), &mut to);
        });
        Self::packed(space, rows, depth.len())
    }

    /// Packs `depth` numbers of each of `rows` rows, `width` numbers from row to row, on this thread.
    ///
    /// # Panics
    /// When `space` has another length than [`left_words`], or `x` is too short.
    pub(crate) fn alone(
        isa: Isa,
        x: &[f32],
        width: usize,
        rows: usize,
        depth: usize,
        space: &'a mut [u32],
    ) -> Self {
        assert_eq!(
            space.len(),
            left_words(rows, depth),
            "words of a left matrix"
        );
        let strips = space.chunks_exact_mut(strip_words(depth));
        for (to, first) in strips.zip((0..rows).step_by(STRIP)) {
            let from = &x[first * width..rows.min(first + STRIP) * width];
            pack_strip(isa, from, width, 0..depth, to);
        }
        Self::packed(space, rows, depth)
    }

    fn packed(words: &'a [u32], rows: usize, depth: usize) -> Self {
        Self { words, rows, depth }
    }

    /// Returns the rows that held a number that is not finite.
    pub(crate) fn odd_rows(self) -> impl Iterator<Item = usize> + 'a {
        let strips = self.words.chunks_exact(strip_words(self.depth)).enumerate();
        strips
            .filter(|(_, words)| words[0] != 0)
            .flat_map(|(strip, words)| {
                let odd = move |row: &usize| words[0] >> row & 1 == 1;
                (0..STRIP).filter(odd).map(move |row| strip * STRIP + row)
            })
    }
}

/// Packs `from (depth, width)`, `stride` numbers from row to row, into panels; `to` has [`right_words`]. What is not
/// finite makes its column so.
///
/// # Panics
/// When a slice is too short for its shape.
pub(crate) fn pack_right(
    isa: Isa,
    from: &[f32],
    stride: usize,
    depth: usize,
    width: usize,
    to: &mut [u32],
) {
    let to = &mut to[..right_words(depth, width)];
    for (to, first) in to
        .chunks_exact_mut(panel_words(depth))
        .zip((0..width).step_by(PANEL))
    {
        let columns = PANEL.min(width - first);
        pack_panel(isa, &from[first..], stride, depth, columns, to);
    }
}

/// Computes `c (m, n) (+)= a b`, where `right` holds the panels of `b`.
///
/// # Panics
/// When a slice is too short for its shape.
pub(crate) fn product(
    isa: Isa,
    left: Left<'_>,
    right: &[u32],
    c: &mut Tile<'_, f32>,
    accumulate: bool,
) {
    assert_eq!(c.rows(), left.rows, "rows of left and result");
    let steps = left.depth.div_ceil(DEPTH);
    match isa.tiles() {
        Some(tiles) => tiles.product(left.words, right, steps, c, accumulate),
        None => emulated::product(isa, left.words, right, steps, c, accumulate),
    }
}

/// Returns high, middle and low, each in the upper half of a word.
#[inline(always)]
fn pieces(x: &[f32; SIDE]) -> [[u32; SIDE]; PIECES] {
    let (mut high, mut middle, mut low) = ([0; SIDE], [0; SIDE], [0; SIDE]);
    for i in 0..SIDE {
        let bits = x[i].to_bits();
        let near = bits.wrapping_add(0x8000) & UPPER;
        // The largest numbers would become infinite.
        high[i] = if near & INFINITE == INFINITE {
            bits & UPPER
        } else {
            near
        };
        let rest = x[i] - f32::from_bits(high[i]);
        middle[i] = rest.to_bits().wrapping_add(0x8000) & UPPER;
        low[i] = (rest - f32::from_bits(middle[i])).to_bits();
    }
    [high, middle, low]
}

isa_dispatch! {
    /// Packs up to [`STRIP`] rows.
    fn pack_strip(from: &[f32], width: usize, depth: Range<usize>, to: &mut [u32]) = pack_strip_body;
}

#[inline(always)]
fn pack_strip_body(from: &[f32], width: usize, depth: Range<usize>, to: &mut [u32]) {
    let (header, steps) = to.split_at_mut(HEADER);
    header.fill(0);
    let (steps, _) = steps.as_chunks_mut::<STEP>();
    let rows = from.len() / width;
    let mut largest = [[0u32; SIDE]; STRIP];
    // Step by step, not row by row: a row of a strip lies in few sets of the first-level cache.
    for (step, to) in steps.iter_mut().enumerate() {
        let first = depth.start + step * DEPTH;
        for (row, largest) in largest.iter_mut().enumerate().take(rows) {
            let x = &from[row * width + first..row * width + depth.end.min(first + DEPTH)];
            fetch(x.as_ptr().wrapping_add(AHEAD));
            fetch(x.as_ptr().wrapping_add(AHEAD + DEPTH / 2));
            match x.first_chunk() {
                Some(x) => pack_run(x, row * SIDE, to, largest),
                None => pack_run(&filled(x), row * SIDE, to, largest),
            }
        }
        // Tiles of a piece follow each other, as do their rows.
        for piece in to.chunks_exact_mut(2 * TILE) {
            piece[rows * SIDE..].fill(0);
        }
    }
    for (row, largest) in largest.iter().enumerate() {
        if largest.iter().any(|&bits| bits >= INFINITE) {
            header[0] |= 1 << row;
            for piece in steps.as_flattened_mut().chunks_exact_mut(2 * TILE) {
                piece[row * SIDE..][..SIDE].fill(0);
            }
        }
    }
}

/// Packs a step of one row.
#[inline(always)]
fn pack_run(x: &[f32; DEPTH], place: usize, to: &mut [u32; STEP], largest: &mut [u32; SIDE]) {
    let (mut even, mut odd) = ([0.0; SIDE], [0.0; SIDE]);
    for i in 0..SIDE {
        even[i] = x[2 * i];
        odd[i] = x[2 * i + 1];
    }
    for i in 0..SIDE {
        let most = (even[i].to_bits() << 1).max(odd[i].to_bits() << 1) >> 1;
        largest[i] = largest[i].max(most);
    }
    pack_pairs(&even, &odd, place, 2 * TILE, to);
}

/// Writes 16 words of each piece, `between` words from one to the next.
#[inline(always)]
fn pack_pairs(
    even: &[f32; SIDE],
    odd: &[f32; SIDE],
    place: usize,
    between: usize,
    to: &mut [u32; STEP],
) {
    let (even, odd) = (pieces(even), pieces(odd));
    for piece in 0..PIECES {
        let to = &mut to[piece * between + place..][..SIDE];
        for i in 0..SIDE {
            to[i] = even[piece][i] >> 16 | odd[piece][i] & UPPER;
        }
    }
}

isa_dispatch! {
    /// Packs up to [`PANEL`] columns.
    fn pack_panel(from: &[f32], stride: usize, depth: usize, columns: usize, to: &mut [u32]) = pack_panel_body;
}

#[inline(always)]
fn pack_panel_body(from: &[f32], stride: usize, depth: usize, columns: usize, to: &mut [u32]) {
    let (steps, _) = to.as_chunks_mut::<STEP>();
    for (step, to) in steps.iter_mut().enumerate() {
        for pair in 0..SIDE {
            let k = step * DEPTH + 2 * pair;
            let (even, odd) = if columns == PANEL && k + 1 < depth {
                (
                    whole(from, k * stride, stride),
                    whole(from, (k + 1) * stride, stride),
                )
            } else {
                let row = |k: usize| {
                    if k < depth {
                        &from[k * stride..][..columns]
                    } else {
                        &[]
                    }
                };
                (filled(row(k)), filled(row(k + 1)))
            };
            let ((even, _), (odd, _)) = (even.as_chunks::<SIDE>(), odd.as_chunks::<SIDE>());
            for half in 0..2 {
                let place = half * TILE + pair * SIDE;
                pack_pairs(&even[half], &odd[half], place, 2 * TILE, to);
            }
        }
    }
}

/// Returns the row of a panel at a place, and asks for one that follows.
#[inline(always)]
fn whole(from: &[f32], at: usize, stride: usize) -> [f32; PANEL] {
    let ahead = from.as_ptr().wrapping_add(at + AHEAD_ROWS * stride);
    fetch(ahead);
    fetch(ahead.wrapping_add(PANEL / 2));
    *from[at..].first_chunk().expect("a whole row")
}

/// Returns numbers with zeros after them.
fn filled<const LENGTH: usize>(row: &[f32]) -> [f32; LENGTH] {
    let mut filled = [0.0; LENGTH];
    filled[..row.len()].copy_from_slice(row);
    filled
}

#[cfg(test)]
mod tests;
