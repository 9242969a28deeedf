//! Low-rank products of adapters over row ranges: `low = scale * x P^T` ([`shrink`]) and `y += scale * low P` ([`grow`]).
//!
//! `P` is `(rank, width)`: the `A` of LoRA, or its `B` transposed. Canonical order: a dot product along `width` puts
//! element `i` into lane `i % 16` as a chain of fused multiply-adds and then folds the lanes (8, 4, 2, 1); an element of
//! `y` is a chain of fused multiply-adds onto what it holds, over the rank from 0 upward, of `scale * low` and `P`.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::isa_dispatch;

/// One adapter's matrix and the rows it serves.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Rows of `x` or `y` that it serves.
    pub rows: Range<usize>,
    /// Rank of the adapter, from 1.
    pub rank: usize,
    /// `P (rank, width)`.
    pub matrix: &'a [f32],
    /// Factor of the product.
    pub scale: f32,
    /// Where its `(rows, rank)` starts in the low buffer.
    pub low: usize,
}

impl Part<'_> {
    fn low(&self) -> Range<usize> {
        self.low..self.low + self.rows.len() * self.rank
    }
}

/// Computes `low_i (rows, rank) = scale * x_i (rows, width) P_i^T` for each part.
///
/// # Panics
/// When the shapes do not fit.
pub fn shrink(cpu: &Cpu, parts: &[Part<'_>], x: &[f32], width: usize, low: &mut [f32]) {
    check(parts, x, width, low);
    let low = DisjointMut::new(low);
    cpu.for_each(parts.len(), |task| {
        let part = &parts[task];
        let x = &x[part.rows.start * width..part.rows.end * width];
        shrink_part(
            cpu.isa(),
            x,
            part.matrix,
            width,
            part.scale,
            &mut low.part(part.low()),
        );
    });
}

/// Adds `scale * low_i (rows, rank) P_i` to `y_i (rows, width)` for each part.
///
/// # Panics
/// When the shapes do not fit.
pub fn grow(cpu: &Cpu, parts: &[Part<'_>], low: &[f32], y: &mut [f32], width: usize) {
    check(parts, y, width, low);
    let y = DisjointMut::matrix(y, width);
    cpu.for_each(parts.len(), |task| {
        let part = &parts[task];
        let mut y = y.rows(part.rows.clone());
        grow_part(
            cpu.isa(),
            &low[part.low()],
            part.matrix,
            width,
            part.scale,
            &mut y,
        );
    });
}

fn check(parts: &[Part<'_>], x: &[f32], width: usize, low: &[f32]) {
    assert!(
        width > 0 && x.len().is_multiple_of(width),
        "{} values are not a whole number of rows of {width}",
        x.len()
    );
    for part in parts {
        assert!(part.rank > 0, "a part has rank 0");
        assert_eq!(part.matrix.len(), part.rank * width, "matrix of a part");
        assert!(part.rows.end * width <= x.len(), "rows of a part");
        assert!(part.low().end <= low.len(), "low buffer of a part");
    }
}

isa_dispatch! {
    fn shrink_part(x: &[f32], matrix: &[f32], width: usize, scale: f32, low: &mut [f32]) = shrink_body;
}

#[inline(always)]
fn shrink_body(x: &[f32], matrix: &[f32], width: usize, scale: f32, low: &mut [f32]) {
    let rank = matrix.len() / width;
    for (x, low) in x.chunks_exact(width).zip(low.chunks_exact_mut(rank)) {
        for (p, low) in matrix.chunks_exact(width).zip(low) {
            let mut lanes = [0.0f32; 16];
            for (x, p) in x.chunks(16).zip(p.chunks(16)) {
                for ((lane, x), p) in lanes.iter_mut().zip(x).zip(p) {
                    *lane = x.mul_add(*p, *lane);
                }
            }
            for half in [8, 4, 2, 1] {
                for j in 0..half {
                    lanes[j] += lanes[j + half];
                }
            }
            *low = scale * lanes[0];
        }
    }
}

isa_dispatch! {
    fn grow_part(low: &[f32], matrix: &[f32], width: usize, scale: f32, y: &mut [f32]) = grow_body;
}

#[inline(always)]
fn grow_body(low: &[f32], matrix: &[f32], width: usize, scale: f32, y: &mut [f32]) {
    let rank = matrix.len() / width;
    for (y, low) in y.chunks_exact_mut(width).zip(low.chunks_exact(rank)) {
        for (p, low) in matrix.chunks_exact(width).zip(low) {
            let factor = scale * low;
            for (y, p) in y.iter_mut().zip(p) {
                *y = factor.mul_add(*p, *y);
            }
        }
    }
}
