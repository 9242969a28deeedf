//! Small products in the canonical order: `c[i][j] = fma(a[i][k], b[k][j], c[i][j])` for `k` from 0 upward.
//!
//! The chain of an element starts from zero, or from what `c` holds when accumulating, so a long product may be cut
//! along `k` at any place without changing a bit.
#![allow(
    unsafe_code,
    reason = "the micro-kernel works on addresses; lengths are checked before"
)]

use std::ops::Range;

use crate::cpu::disjoint::Tile;
use crate::cpu::isa::Isa;
use crate::cpu::scratch;

mod dots;
mod lanes;
mod packed;
mod strip;

pub(crate) use packed::Packed;
use strip::{Place, Strip};

/// Columns of a panel: the right matrix cut into pieces that the micro-kernel likes.
pub(crate) const PANEL: usize = 32;

/// Most rows of any micro-kernel.
pub(crate) const MOST_ROWS: usize = 14;

/// A matrix inside a slice: element `(i, k)` is at `i * row + k * column`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided<'a> {
    /// The elements, from `(0, 0)` on.
    pub(crate) slice: &'a [f32],
    /// Distance between rows.
    pub(crate) row: usize,
    /// Distance between columns.
    pub(crate) column: usize,
}

/// Computes `c (m, n) (+)= a (m, k) b (k, n)`, where `b` has `ldb` and `c` has `ldc` elements from row to row.
///
/// # Panics
/// When a slice is too short for its shape.
#[expect(clippy::too_many_arguments, reason = "the shape of a product")]
pub(crate) fn tile(
    isa: Isa,
    m: usize,
    n: usize,
    k: usize,
    a: Strided<'_>,
    b: &[f32],
    ldb: usize,
    c: &mut [f32],
    ldc: usize,
    accumulate: bool,
) {
    check(a.slice.len(), m, a.row, k, a.column, "left matrix");
    check(b.len(), k, ldb, n, 1, "right matrix");
    check(c.len(), m, ldc, n, 1, "result");
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !accumulate {
            (0..m).for_each(|i| c[i * ldc..i * ldc + n].fill(0.0));
        }
        return;
    }
    let place = Place {
        k,
        a: a.slice.as_ptr(),
        row: a.row,
        column: a.column,
        b: b.as_ptr(),
        ldb,
        c: c.as_mut_ptr(),
        ldc,
        accumulate,
    };
    let whole = n - n % PANEL;
    for first in (0..whole).step_by(PANEL) {
        // SAFETY: the checks above cover all m rows, k steps and the PANEL columns from `first` on; `c` is borrowed
        // mutably.
        unsafe { whole_panel(isa, m, shifted(place, first)) };
    }
    if whole < n {
        let width = n - whole;
        scratch::with(k * PANEL, |padded| {
            for (step, out) in padded.chunks_exact_mut(PANEL).enumerate() {
                out[..width].copy_from_slice(&b[step * ldb + whole..][..width]);
                out[width..].fill(0.0);
            }
            // SAFETY: the checks above cover the left matrix and the `width` last columns of the result; the right
            // matrix is the padded copy with k rows of PANEL.
            unsafe {
                let place = Place {
                    b: padded.as_ptr(),
                    ldb: PANEL,
                    ..shifted(place, whole)
                };
                cut_panel(isa, m, width, place);
            }
        });
    }
}

/// The left matrix of a product of panels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left<'a> {
    Strided(Strided<'a>),
    Packed(Packed<'a>),
}

/// Computes `c (m, n) (+)= a (m, k) b (k, n)`, where `b` lies in panels of [`PANEL`] columns, one after another, each
/// `(k, PANEL)`, the last one filled up with anything.
///
/// # Panics
/// When a slice is too short for its shape.
pub(crate) fn panels(
    isa: Isa,
    k: usize,
    a: Left<'_>,
    b: &[f32],
    c: &mut Tile<'_, f32>,
    accumulate: bool,
) {
    let (m, n) = (c.rows(), c.columns());
    match a {
        Left::Strided(a) => check(a.slice.len(), m, a.row, k, a.column, "left matrix"),
        Left::Packed(a) => a.check(isa, m, k),
    }
    check(b.len(), n.div_ceil(PANEL) * k, PANEL, PANEL, 1, "panels");
    assert!(k > 0, "a product of panels needs a depth");
    if m == 0 || n == 0 {
        return;
    }
    let strips = strip::strips(isa);
    let (most, by_rows) = match a {
        Left::Strided(_) => (strips.by_rows.len(), strips.by_rows),
        Left::Packed(_) => (strips.packed.len(), strips.packed),
    };
    for rows in even_cuts(m, most) {
        let (a, row, column) = match a {
            Left::Strided(a) => (a.slice[rows.start * a.row..].as_ptr(), a.row, a.column),
            Left::Packed(a) => (a.strip(&rows).as_ptr(), 1, rows.len()),
        };
        for first in (0..n).step_by(PANEL) {
            // SAFETY: the rows and columns lie inside the tile, which is exclusive; the checks above cover `a` and `b`.
            unsafe {
                let place = Place {
                    k,
                    a,
                    row,
                    column,
                    b: b.as_ptr().add(first * k),
                    ldb: PANEL,
                    c: c.pointer().add(rows.start * c.stride() + first),
                    ldc: c.stride(),
                    accumulate,
                };
                if n - first >= PANEL {
                    whole_strip(by_rows, strips.columns, rows.len(), place);
                } else {
                    cut_strip(by_rows, strips.columns, rows.len(), n - first, place);
                }
            }
        }
    }
}

/// Computes `out (rows, ranks) = scale * x (rows, width) p (ranks, width)^T` as dot products of 16 lanes.
///
/// # Panics
/// When the slices do not fit the shape.
pub(crate) fn dots(isa: Isa, width: usize, x: &[f32], p: &[f32], scale: f32, out: &mut [f32]) {
    let (rows, ranks) = (x.len() / width, p.len() / width);
    assert!(
        x.len() == rows * width && p.len() == ranks * width && out.len() == rows * ranks,
        "{} and {} values in rows of {width} do not make {} dots",
        x.len(),
        p.len(),
        out.len()
    );
    let tiles = dots::tiles(isa);
    let (runs, rest) = (width / dots::LANES, width % dots::LANES);
    let padded = if rest > 0 { dots::LANES } else { 0 };
    scratch::with((rows + ranks) * padded, |rests| {
        let (x_rests, p_rests) = rests.split_at_mut(rows * padded);
        if rest > 0 {
            pad(x, width, rest, x_rests);
            pad(p, width, rest, p_rests);
        }
        for i in even_cuts(rows, tiles.len()) {
            for r in even_cuts(ranks, tiles[0].len()) {
                let rest_at = |rests: &[f32], row: usize| match rest {
                    0 => std::ptr::null(),
                    _ => rests[row * dots::LANES..].as_ptr(),
                };
                let place = dots::Place {
                    runs,
                    width,
                    x: x[i.start * width..].as_ptr(),
                    p: p[r.start * width..].as_ptr(),
                    x_rest: rest_at(x_rests, i.start),
                    p_rest: rest_at(p_rests, r.start),
                    out: out[i.start * ranks + r.start..].as_mut_ptr(),
                    stride: ranks,
                    scale,
                };
                // SAFETY: rows and ranks are cut from what the check above found in the three slices; the rests have
                // 16 numbers for each; `isa` proves the instructions.
                unsafe { tiles[i.len() - 1][r.len() - 1](place) };
            }
        }
    });
}

/// Copies the last `rest` elements of each row, filled up with zeros.
fn pad(x: &[f32], width: usize, rest: usize, rests: &mut [f32]) {
    for (to, x) in rests
        .chunks_exact_mut(dots::LANES)
        .zip(x.chunks_exact(width))
    {
        to[..rest].copy_from_slice(&x[width - rest..]);
        to[rest..].fill(0.0);
    }
}

/// Moves to another column of `b` and `c`.
///
/// # Safety
/// Both matrices have more than `columns` columns.
unsafe fn shifted(place: Place, columns: usize) -> Place {
    // SAFETY: the caller's promise.
    unsafe {
        Place {
            b: place.b.add(columns),
            c: place.c.add(columns),
            ..place
        }
    }
}

/// Computes `m` rows of [`PANEL`] columns.
///
/// # Safety
/// The elements of all three matrices for `m` rows, `k` steps and [`PANEL`] columns are readable, those of the result
/// also writable and not used by anyone else.
unsafe fn whole_panel(isa: Isa, m: usize, place: Place) {
    let strips = strip::strips(isa);
    for rows in even_cuts(m, strips.by_rows.len()) {
        // SAFETY: the strip lies inside the caller's panel, and `isa` proves the instructions.
        unsafe {
            let place = lowered(place, rows.start);
            whole_strip(strips.by_rows, strips.columns, rows.len(), place);
        }
    }
}

/// Computes `m` rows of the first `width` columns of a panel that is filled up to [`PANEL`].
///
/// # Safety
/// As [`whole_panel`], but the result has only `width` columns, `width <= PANEL`.
unsafe fn cut_panel(isa: Isa, m: usize, width: usize, place: Place) {
    let strips = strip::strips(isa);
    for rows in even_cuts(m, strips.by_rows.len()) {
        // SAFETY: the strip lies inside the caller's panel, and `isa` proves the instructions.
        unsafe {
            let place = lowered(place, rows.start);
            cut_strip(strips.by_rows, strips.columns, rows.len(), width, place);
        }
    }
}

/// Moves to another row of `a` and `c`.
///
/// # Safety
/// Both matrices have more than `rows` rows.
unsafe fn lowered(place: Place, rows: usize) -> Place {
    // SAFETY: the caller's promise.
    unsafe {
        Place {
            a: place.a.add(rows * place.row),
            c: place.c.add(rows * place.ldc),
            ..place
        }
    }
}

/// Computes a strip of [`PANEL`] columns by functions that take `columns` at once.
///
/// # Safety
/// As [`whole_panel`]; `rows` is one of the numbers that `by_rows` has, and the processor has its instructions.
unsafe fn whole_strip(by_rows: &[Strip], columns: usize, rows: usize, place: Place) {
    for first in (0..PANEL).step_by(columns) {
        // SAFETY: the columns lie inside the caller's panel.
        unsafe { by_rows[rows - 1](shifted(place, first)) };
    }
}

/// Computes a strip of the first `width` columns of a panel that is filled up to [`PANEL`].
///
/// # Safety
/// As [`whole_strip`], but the result has only `width` columns, `width <= PANEL`.
unsafe fn cut_strip(by_rows: &[Strip], columns: usize, rows: usize, width: usize, place: Place) {
    let mut sums = [0.0f32; MOST_ROWS * PANEL];
    // SAFETY: rows and columns lie inside the caller's panel; `sums` has rows of PANEL for the most rows of any strip,
    // and only `width` columns of the result are touched.
    unsafe {
        if place.accumulate {
            for i in 0..rows {
                let from = place.c.add(i * place.ldc);
                std::ptr::copy_nonoverlapping(from, sums[i * PANEL..].as_mut_ptr(), width);
            }
        }
        for first in (0..width).step_by(columns) {
            let place = Place {
                b: place.b.add(first),
                c: sums.as_mut_ptr().add(first),
                ldc: PANEL,
                ..place
            };
            by_rows[rows - 1](place);
        }
        for i in 0..rows {
            let to = place.c.add(i * place.ldc);
            std::ptr::copy_nonoverlapping(sums[i * PANEL..].as_ptr(), to, width);
        }
    }
}

/// Cuts `0..rows` into the fewest ranges of at most `most`, as even as possible.
fn even_cuts(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let cuts = rows.div_ceil(most);
    (0..cuts).map(move |cut| rows * cut / cuts..rows * (cut + 1) / cuts)
}

/// Panics unless a slice of `len` holds `(rows, columns)` at the given distances.
fn check(len: usize, rows: usize, row: usize, columns: usize, column: usize, name: &str) {
    if rows == 0 || columns == 0 {
        return;
    }
    let last = (rows - 1)
        .saturating_mul(row)
        .saturating_add((columns - 1).saturating_mul(column));
    assert!(
        last < len,
        "{name}: {rows} x {columns} at distances {row} and {column} does not fit into {len} values"
    );
}

#[cfg(test)]
mod tests;
