//! The same bits without tiles: every step as the instruction does it, sixteen columns at a time.
//!
//! Tiles turn what is below 2^-126 to zero. Where all sums of a strip and a panel are multiples of 2^-126, because no piece
//! is so small, an ordinary multiply-add rounds the same; elsewhere it is done one number at a time.

use super::{HEADER, PANEL, SIDE, STEP, STRIP, TILE, UPPER};
use crate::cpu::disjoint::Tile;
use crate::cpu::isa::{Isa, isa_dispatch};
use crate::reference::split::{PAIRS, multiply_add, normal};

/// Exponents of two bf16, with their bias of 127 each, whose product is a multiple of 2^-126 all the same: each has seven
/// bits below its first.
const SAFE: u32 = 2 * (127 + 7) - 126;

/// Computes `c (m, n) (+)= a b` of packed strips and panels.
pub(super) fn product(
    isa: Isa,
    a: &[u32],
    b: &[u32],
    steps: usize,
    c: &mut Tile<'_, f32>,
    accumulate: bool,
) {
    let (m, n) = (c.rows(), c.columns());
    let (strip, panel) = (HEADER + steps * STEP, steps * STEP);
    for first in (0..m).step_by(STRIP) {
        let rows = STRIP.min(m - first);
        let a = &a[first / STRIP * strip + HEADER..][..steps * STEP];
        for column in (0..n).step_by(PANEL) {
            let columns = PANEL.min(n - column);
            let b = &b[column / PANEL * panel..][..panel];
            let mut sums = [0.0; STRIP * PANEL];
            if accumulate {
                for (i, to) in sums.chunks_exact_mut(PANEL).take(rows).enumerate() {
                    to[..columns].copy_from_slice(&c.row(first + i)[column..][..columns]);
                }
            }
            square(isa, rows, a, b, &mut sums);
            for (i, from) in sums.chunks_exact(PANEL).take(rows).enumerate() {
                c.row(first + i)[column..][..columns].copy_from_slice(&from[..columns]);
            }
        }
    }
}

isa_dispatch! {
    /// Adds a strip of `rows` times a panel.
    fn square(rows: usize, a: &[u32], b: &[u32], sums: &mut [f32; STRIP * PANEL]) = square_body;
}

#[inline(always)]
fn square_body(rows: usize, a: &[u32], b: &[u32], sums: &mut [f32; STRIP * PANEL]) {
    let (of_a, of_b) = (least(a), least(b));
    let safe = of_a > 0 && of_b > 0 && of_a + of_b >= SAFE;
    let ((a, _), (b, _)) = (a.as_chunks::<STEP>(), b.as_chunks::<STEP>());
    for (row, sums) in sums.chunks_exact_mut(PANEL).take(rows).enumerate() {
        let (halves, _) = sums.as_chunks_mut::<SIDE>();
        for (half, sums) in halves.iter_mut().enumerate() {
            for (a, b) in a.iter().zip(b) {
                for (left, right) in PAIRS {
                    let a = &a[left * 2 * TILE + row * SIDE..][..SIDE];
                    let b = &b[(right * 2 + half) * TILE..][..TILE];
                    match safe {
                        true => add(sums, &plain(a, b)),
                        false => add(sums, &careful(a, b)),
                    }
                }
            }
        }
    }
}

/// Returns the least exponent, as it is stored, of all pieces that are not zero: 0 where one counts as zero.
#[inline(always)]
fn least(words: &[u32]) -> u32 {
    let mut least = [255u32; SIDE];
    let (words, _) = words.as_chunks::<SIDE>();
    for words in words {
        for i in 0..SIDE {
            for piece in [words[i] & UPPER, words[i] << 16] {
                let exponent = piece << 1 >> 24;
                let exponent = if piece << 1 == 0 { 255 } else { exponent };
                least[i] = least[i].min(exponent);
            }
        }
    }
    least.into_iter().min().unwrap_or(255)
}

/// Computes one partial product of a step for 16 columns.
#[inline(always)]
fn plain(a: &[u32], b: &[u32]) -> [f32; SIDE] {
    let (mut even, mut odd) = ([0.0f32; SIDE], [0.0f32; SIDE]);
    let (b, _) = b.as_chunks::<SIDE>();
    for (a, b) in a.iter().zip(b) {
        let (left, right) = (f32::from_bits(a << 16), f32::from_bits(a & UPPER));
        for j in 0..SIDE {
            even[j] = left.mul_add(f32::from_bits(b[j] << 16), even[j]);
            odd[j] = right.mul_add(f32::from_bits(b[j] & UPPER), odd[j]);
        }
    }
    std::array::from_fn(|j| even[j] + odd[j])
}

/// The same for the smallest numbers.
#[inline(always)]
fn careful(a: &[u32], b: &[u32]) -> [f32; SIDE] {
    let (mut even, mut odd) = ([0.0f32; SIDE], [0.0f32; SIDE]);
    let (b, _) = b.as_chunks::<SIDE>();
    for (a, b) in a.iter().zip(b) {
        let (left, right) = (f32::from_bits(a << 16), f32::from_bits(a & UPPER));
        for j in 0..SIDE {
            even[j] = multiply_add(left, f32::from_bits(b[j] << 16), even[j]);
            odd[j] = multiply_add(right, f32::from_bits(b[j] & UPPER), odd[j]);
        }
    }
    std::array::from_fn(|j| even[j] + odd[j])
}

/// Adds partial products to sums; what is small becomes zero.
#[inline(always)]
fn add(sums: &mut [f32; SIDE], more: &[f32; SIDE]) {
    for j in 0..SIDE {
        sums[j] = normal(normal(sums[j]) + normal(more[j]));
    }
}
