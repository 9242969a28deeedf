//! The micro-kernel: a strip of a few rows times two registers of columns, kept in registers along `k`.
//!
//! AVX-512 takes up to 14 rows x 32 columns (28 of 32 registers hold sums), AVX2 up to 6 x 16, the portable one 4 x 16.
//! Each row count has its own function, so that a short last strip wastes nothing and adds in the same order.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};

#[cfg(target_arch = "x86_64")]
use super::PANEL;
use super::lanes::Lanes;
use crate::cpu::isa::{Isa, Kind};
use crate::cpu::transpose::fetch;

/// Steps from the one that is computed to the one whose part of the right matrix is asked for: a panel lies in the
/// second-level cache, and the processor alone brings it near too late.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 24;

/// Where a strip reads and writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Length of the chains.
    pub(super) k: usize,
    /// Element `(i, k)` of the left matrix is at `a + i * row + k * column`.
    pub(super) a: *const f32,
    pub(super) row: usize,
    pub(super) column: usize,
    /// Element `(k, j)` of the right matrix is at `b + k * ldb + j`.
    pub(super) b: *const f32,
    pub(super) ldb: usize,
    /// Element `(i, j)` of the result is at `c + i * ldc + j`.
    pub(super) c: *mut f32,
    pub(super) ldc: usize,
    /// Whether the chains start from what the result holds.
    pub(super) accumulate: bool,
}

/// Computes one strip; its rows and columns are in the function.
pub(super) type Strip = unsafe fn(Place);

/// The strips of one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Strips {
    /// Columns of a strip.
    pub(super) columns: usize,
    /// One function for each number of rows from 1.
    pub(super) by_rows: &'static [Strip],
    /// The same for rows that lie packed (`row` 1, `column` their number), where that is faster, else none.
    pub(super) packed: &'static [Strip],
}

/// Returns the strips of an instruction set.
pub(super) fn strips(isa: Isa) -> Strips {
    match isa.kind() {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => Strips {
            columns: 32,
            by_rows: &[
                avx512::<1, false>,
                avx512::<2, false>,
                avx512::<3, false>,
                avx512::<4, false>,
                avx512::<5, false>,
                avx512::<6, false>,
                avx512::<7, false>,
                avx512::<8, false>,
                avx512::<9, false>,
                avx512::<10, false>,
                avx512::<11, false>,
                avx512::<12, false>,
                avx512::<13, false>,
                avx512::<14, false>,
            ],
            packed: &[
                avx512::<1, true>,
                avx512::<2, true>,
                avx512::<3, true>,
                avx512::<4, true>,
                avx512::<5, true>,
                avx512::<6, true>,
                avx512::<7, true>,
                avx512::<8, true>,
                avx512::<9, true>,
                avx512::<10, true>,
                avx512::<11, true>,
                avx512::<12, true>,
                avx512::<13, true>,
                avx512::<14, true>,
            ],
        },
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => Strips {
            columns: 16,
            by_rows: &[
                avx2::<1>, avx2::<2>, avx2::<3>, avx2::<4>, avx2::<5>, avx2::<6>,
            ],
            packed: &[],
        },
        Kind::Portable => Strips {
            columns: 16,
            by_rows: &[portable::<1>, portable::<2>, portable::<3>, portable::<4>],
            packed: &[],
        },
    }
}

/// # Safety
/// As [`strip`] with 32 columns; the processor has AVX-512; packed rows are.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512<const ROWS: usize, const PACKED: bool>(place: Place) {
    // SAFETY: the caller's promise.
    unsafe {
        match PACKED {
            // Known distances spare the innermost loop its address arithmetic.
            true => strip::<__m512, ROWS, AHEAD>(Place {
                row: 1,
                column: ROWS,
                ldb: PANEL,
                ..place
            }),
            false => strip::<__m512, ROWS, 0>(place),
        }
    }
}

/// # Safety
/// As [`strip`] with 16 columns; the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<const ROWS: usize>(place: Place) {
    // SAFETY: the caller's promise.
    unsafe { strip::<__m256, ROWS, 0>(place) }
}

/// # Safety
/// As [`strip`] with 16 columns.
unsafe fn portable<const ROWS: usize>(place: Place) {
    // SAFETY: the caller's promise.
    unsafe { strip::<[f32; 8], ROWS, 0>(place) }
}

/// Computes `ROWS` rows and two registers of columns.
///
/// # Safety
/// All elements of the three matrices that `place` names, for `ROWS` rows, `2 * V::COUNT` columns and `k` steps, are
/// readable, and those of the result writable and not used by anyone else; the processor has the instructions of `V`.
#[inline(always)]
unsafe fn strip<V: Lanes, const ROWS: usize, const AHEAD: usize>(place: Place) {
    let Place {
        k,
        a,
        row,
        column,
        b,
        ldb,
        c,
        ldc,
        accumulate,
    } = place;
    // SAFETY: every address below is one of an element named in the caller's promise.
    unsafe {
        let mut sums = [[V::splat(0.0); 2]; ROWS];
        if accumulate {
            for (i, sums) in sums.iter_mut().enumerate() {
                let c = c.add(i * ldc);
                *sums = [V::load(c), V::load(c.add(V::COUNT))];
            }
        }
        for step in 0..k {
            let b = b.add(step * ldb);
            if AHEAD > 0 {
                let soon = b.wrapping_add(AHEAD * ldb);
                fetch(soon);
                fetch(soon.wrapping_add(V::COUNT));
            }
            let right = [V::load(b), V::load(b.add(V::COUNT))];
            for (i, sums) in sums.iter_mut().enumerate() {
                let left = V::splat(*a.add(i * row + step * column));
                sums[0] = left.multiply_add(right[0], sums[0]);
                sums[1] = left.multiply_add(right[1], sums[1]);
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let c = c.add(i * ldc);
            sums[0].store(c);
            sums[1].store(c.add(V::COUNT));
        }
    }
}
