//! Small products in the canonical order: `c[i][j] = fma(a[i][k], b[k][j], c[i][j])` for `k` from 0 upward.
//!
//! The chain of an element starts from zero, or from what `c` holds when accumulating, so a long product may be cut
//! along `k` at any place without changing a bit.

use crate::cpu::isa::{Isa, isa_dispatch};

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
    tile_plain(isa, m, n, k, a, b, ldb, c, ldc, accumulate);
}

isa_dispatch! {
    fn tile_plain(
        m: usize,
        n: usize,
        k: usize,
        a: Strided<'_>,
        b: &[f32],
        ldb: usize,
        c: &mut [f32],
        ldc: usize,
        accumulate: bool,
    ) = tile_body;
}

#[expect(clippy::too_many_arguments, reason = "the shape of a product")]
#[inline(always)]
fn tile_body(
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
    for i in 0..m {
        let c = &mut c[i * ldc..i * ldc + n];
        for first in (0..n).step_by(32) {
            let width = (n - first).min(32);
            let mut sums = [0.0f32; 32];
            if accumulate {
                sums[..width].copy_from_slice(&c[first..first + width]);
            }
            for k in 0..k {
                let factor = a.slice[i * a.row + k * a.column];
                let b = &b[k * ldb + first..k * ldb + first + width];
                if let Ok(b) = <&[f32; 32]>::try_from(b) {
                    for j in 0..32 {
                        sums[j] = factor.mul_add(b[j], sums[j]);
                    }
                } else {
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum = factor.mul_add(*b, *sum);
                    }
                }
            }
            c[first..first + width].copy_from_slice(&sums[..width]);
        }
    }
}
