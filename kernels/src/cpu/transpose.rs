//! Transposes blocks of numbers in registers.
#![allow(
    unsafe_code,
    reason = "register transposes work on addresses; lengths are checked before"
)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::cpu::isa::{Isa, Kind};

/// Writes `to[c][r] = from[r][c]` for `rows` x `columns`, where `from` has `from_row` and `to` has `to_row` elements
/// from row to row.
///
/// # Panics
/// When a slice is too short for its shape.
pub(crate) fn transpose(
    isa: Isa,
    rows: usize,
    columns: usize,
    from: &[f32],
    from_row: usize,
    to: &mut [f32],
    to_row: usize,
) {
    check(from.len(), rows, from_row, columns, "source");
    check(to.len(), columns, to_row, rows, "target");
    let side = match isa.kind() {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => 16,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => 8,
        Kind::Portable => 1,
    };
    let (whole_rows, whole_columns) = match side {
        1 => (0, 0),
        side => (rows - rows % side, columns - columns % side),
    };
    for c in (0..whole_columns).step_by(side) {
        fetch_rows(from, rows, columns, from_row, c);
        for r in (0..whole_rows).step_by(side) {
            // SAFETY: the square lies inside both matrices, whose lengths were checked, and `isa` proves the
            // instructions.
            unsafe {
                let from = from.as_ptr().add(r * from_row + c);
                let to = to.as_mut_ptr().add(c * to_row + r);
                match isa.kind() {
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx512 => square_avx512(16, from, from_row, to, to_row),
                    #[cfg(target_arch = "x86_64")]
                    Kind::Avx2 => square_avx2(from, from_row, to, to_row),
                    Kind::Portable => {}
                }
            }
        }
    }
    for r in 0..rows {
        let first = if r < whole_rows { whole_columns } else { 0 };
        for c in first..columns {
            to[c * to_row + r] = from[r * from_row + c];
        }
    }
}

/// Numbers of a row from those that are read to those that are asked for.
const AHEAD: usize = 64;

/// Asks for what is read soon after column `c` of a few rows: further on in these rows, then in as many that follow.
#[inline(always)]
fn fetch_rows(from: &[f32], rows: usize, columns: usize, row: usize, c: usize) {
    let next = c + AHEAD;
    let first = match next < columns {
        true => next,
        false => rows * row + (next - columns),
    };
    for r in 0..rows {
        fetch(from.as_ptr().wrapping_add(first + r * row));
    }
}

/// Asks for the cache line of any address, valid or not, so that it is near when it is read.
#[inline(always)]
pub(crate) fn fetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint may name any address.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Writes `to[c * rows + r] = from[r * from_row + c]` for `rows` x `columns`; fast for up to 16 rows.
///
/// # Panics
/// When a slice is too short for its shape.
pub(crate) fn interleave(
    isa: Isa,
    rows: usize,
    columns: usize,
    from: &[f32],
    from_row: usize,
    to: &mut [f32],
) {
    check(from.len(), rows, from_row, columns, "source");
    check(to.len(), columns, rows, rows, "target");
    let whole = match isa.kind() {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 if (1..=16).contains(&rows) => columns - columns % 16,
        _ => 0,
    };
    #[cfg(target_arch = "x86_64")]
    for c in (0..whole).step_by(16) {
        fetch_rows(from, rows, columns, from_row, c);
        // SAFETY: `rows` rows of 16 numbers from column `c` on lie in `from`, and 16 rows of `rows` in `to`, whose
        // lengths were checked; `whole` is 0 without AVX-512.
        unsafe {
            let (from, to) = (from.as_ptr().add(c), to.as_mut_ptr().add(c * rows));
            square_avx512(rows, from, from_row, to, rows);
        }
    }
    for r in 0..rows {
        for c in whole..columns {
            to[c * rows + r] = from[r * from_row + c];
        }
    }
}

/// Panics unless a slice of `len` holds `(rows, columns)` at the given distance.
fn check(len: usize, rows: usize, row: usize, columns: usize, name: &str) {
    if rows > 0 && columns > 0 {
        let end = (rows - 1).saturating_mul(row).saturating_add(columns);
        assert!(
            end <= len,
            "{name}: {rows} x {columns} at distance {row} does not fit into {len} values"
        );
    }
}

/// Transposes up to 16 rows of 16 numbers.
///
/// # Safety
/// `rows` rows of 16 numbers, 1 to 16, are readable at `from`, 16 rows of `rows` writable at `to`; the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn square_avx512(
    rows: usize,
    from: *const f32,
    from_row: usize,
    to: *mut f32,
    to_row: usize,
) {
    let zero = _mm512_setzero_ps();
    let (mut a, mut b) = ([zero; 16], [zero; 16]);
    for (r, a) in a.iter_mut().enumerate() {
        if r < rows {
            // SAFETY: the caller's promise.
            *a = unsafe { _mm512_loadu_ps(from.add(r * from_row)) };
        }
    }
    // Each step halves the distance between neighbours in a column: pairs of rows, pairs of pairs, then quarters.
    for r in (0..16).step_by(2) {
        b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
    }
    for r in (0..16).step_by(4) {
        for half in 0..2 {
            let low = _mm512_castps_pd(b[r + half]);
            let high = _mm512_castps_pd(b[r + 2 + half]);
            a[r + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[r + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    // Now a[4 g + j] holds, in its quarter q, rows 4 g .. 4 g + 4 of column 4 q + j.
    for j in 0..4 {
        b[j] = _mm512_shuffle_f32x4::<0x88>(a[j], a[4 + j]);
        b[4 + j] = _mm512_shuffle_f32x4::<0xdd>(a[j], a[4 + j]);
        b[8 + j] = _mm512_shuffle_f32x4::<0x88>(a[8 + j], a[12 + j]);
        b[12 + j] = _mm512_shuffle_f32x4::<0xdd>(a[8 + j], a[12 + j]);
    }
    for j in 0..4 {
        a[j] = _mm512_shuffle_f32x4::<0x88>(b[j], b[8 + j]);
        a[8 + j] = _mm512_shuffle_f32x4::<0xdd>(b[j], b[8 + j]);
        a[4 + j] = _mm512_shuffle_f32x4::<0x88>(b[4 + j], b[12 + j]);
        a[12 + j] = _mm512_shuffle_f32x4::<0xdd>(b[4 + j], b[12 + j]);
    }
    let kept = u16::MAX >> (16 - rows);
    for (c, a) in a.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_storeu_ps(to.add(c * to_row), kept, *a) };
    }
}

/// Transposes 8 x 8.
///
/// # Safety
/// 8 rows of 8 numbers are readable at `from` and writable at `to`; the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn square_avx2(from: *const f32, from_row: usize, to: *mut f32, to_row: usize) {
    let zero = _mm256_setzero_ps();
    let (mut a, mut b) = ([zero; 8], [zero; 8]);
    for (r, a) in a.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *a = unsafe { _mm256_loadu_ps(from.add(r * from_row)) };
    }
    for r in (0..8).step_by(2) {
        b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
    }
    for r in (0..8).step_by(4) {
        for half in 0..2 {
            let low = _mm256_castps_pd(b[r + half]);
            let high = _mm256_castps_pd(b[r + 2 + half]);
            a[r + 2 * half] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
            a[r + 2 * half + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
        }
    }
    // Now a[4 g + j] holds, in its half h, rows 4 g .. 4 g + 4 of column 4 h + j.
    for j in 0..4 {
        b[j] = _mm256_permute2f128_ps::<0x20>(a[j], a[4 + j]);
        b[4 + j] = _mm256_permute2f128_ps::<0x31>(a[j], a[4 + j]);
    }
    for (c, b) in b.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to.add(c * to_row), *b) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_moves_to_its_place() {
        for (rows, columns) in [
            (1, 1),
            (8, 8),
            (16, 16),
            (32, 48),
            (33, 17),
            (5, 40),
            (40, 5),
            (0, 3),
        ] {
            let (from_row, to_row) = (columns + 3, rows + 2);
            let from: Vec<f32> = (0..u16::try_from(rows * from_row).expect("small"))
                .map(f32::from)
                .collect();
            for isa in Isa::available() {
                let mut to = vec![-1.0; columns * to_row];
                transpose(isa, rows, columns, &from, from_row, &mut to, to_row);
                for c in 0..columns {
                    for r in 0..to_row {
                        let wanted = if r < rows {
                            from[r * from_row + c]
                        } else {
                            -1.0
                        };
                        assert_eq!(to[c * to_row + r], wanted, "{isa} {rows}x{columns} {r},{c}");
                    }
                }
            }
        }
    }

    #[test]
    fn interleaved_rows_take_turns() {
        for (rows, columns) in [
            (1, 1),
            (1, 40),
            (3, 16),
            (13, 35),
            (14, 64),
            (16, 33),
            (17, 32),
        ] {
            let row = columns + 5;
            let from: Vec<f32> = (0..u16::try_from(rows * row).expect("small"))
                .map(f32::from)
                .collect();
            for isa in Isa::available() {
                let mut to = vec![-1.0; rows * columns + 1];
                interleave(isa, rows, columns, &from, row, &mut to);
                assert_eq!(to[rows * columns], -1.0, "{isa} writes too far");
                for (place, found) in to[..rows * columns].iter().enumerate() {
                    let (c, r) = (place / rows, place % rows);
                    assert_eq!(*found, from[r * row + c], "{isa} {rows}x{columns} {r},{c}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "target")]
    fn a_short_target_panics() {
        transpose(Isa::best(), 2, 3, &[0.0; 6], 3, &mut [0.0; 5], 2);
    }
}
