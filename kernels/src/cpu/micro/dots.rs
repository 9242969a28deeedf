//! Dot products of a few rows with a few rows, each in 16 lanes: element `i` goes to lane `i % 16` as a chain of fused
//! multiply-adds, then lane `j` takes in lane `j + 8`, `j + 4`, `j + 2` and `j + 1`.
//!
//! AVX-512 keeps 6 x 4 dots in registers, AVX2 3 x 2, the portable one 2 x 2.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::cpu::isa::{Isa, Kind};

/// Lanes of a dot product.
pub(super) const LANES: usize = 16;

/// Where a tile of dots reads and writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Runs of 16 elements that lie in the matrices.
    pub(super) runs: usize,
    /// Distance between rows of `x` and of `p`.
    pub(super) width: usize,
    pub(super) x: *const f32,
    pub(super) p: *const f32,
    /// What is left of the rows of `x` and of `p` after the runs, filled up with zeros: [`LANES`] for each row; null
    /// when nothing is left.
    pub(super) x_rest: *const f32,
    pub(super) p_rest: *const f32,
    /// The dot of row `i` of `x` and row `r` of `p`, times `scale`, goes to `out + i * stride + r`.
    pub(super) out: *mut f32,
    pub(super) stride: usize,
    pub(super) scale: f32,
}

/// Computes a tile of dots; its rows of `x` and of `p` are in the function.
type Tile = unsafe fn(Place);

/// The tiles of an instruction set: `by_rows[rows - 1][ranks - 1]`.
pub(super) type Tiles = &'static [&'static [Tile]];

/// Returns the tiles of an instruction set.
pub(super) fn tiles(isa: Isa) -> Tiles {
    match isa.kind() {
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => &[
            &[
                avx512::<1, 1>,
                avx512::<1, 2>,
                avx512::<1, 3>,
                avx512::<1, 4>,
            ],
            &[
                avx512::<2, 1>,
                avx512::<2, 2>,
                avx512::<2, 3>,
                avx512::<2, 4>,
            ],
            &[
                avx512::<3, 1>,
                avx512::<3, 2>,
                avx512::<3, 3>,
                avx512::<3, 4>,
            ],
            &[
                avx512::<4, 1>,
                avx512::<4, 2>,
                avx512::<4, 3>,
                avx512::<4, 4>,
            ],
            &[
                avx512::<5, 1>,
                avx512::<5, 2>,
                avx512::<5, 3>,
                avx512::<5, 4>,
            ],
            &[
                avx512::<6, 1>,
                avx512::<6, 2>,
                avx512::<6, 3>,
                avx512::<6, 4>,
            ],
        ],
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => &[
            &[avx2::<1, 1>, avx2::<1, 2>],
            &[avx2::<2, 1>, avx2::<2, 2>],
            &[avx2::<3, 1>, avx2::<3, 2>],
        ],
        Kind::Portable => &[
            &[portable::<1, 1>, portable::<1, 2>],
            &[portable::<2, 1>, portable::<2, 2>],
        ],
    }
}

/// # Safety
/// As [`dots`]; the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn avx512<const ROWS: usize, const RANKS: usize>(place: Place) {
    // SAFETY: the caller's promise.
    unsafe { dots::<__m512, ROWS, RANKS>(place) }
}

/// # Safety
/// As [`dots`]; the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<const ROWS: usize, const RANKS: usize>(place: Place) {
    // SAFETY: the caller's promise.
    unsafe { dots::<[__m256; 2], ROWS, RANKS>(place) }
}

/// # Safety
/// As [`dots`].
unsafe fn portable<const ROWS: usize, const RANKS: usize>(place: Place) {
    // SAFETY: the caller's promise.
    unsafe { dots::<[f32; LANES], ROWS, RANKS>(place) }
}

/// Computes `ROWS` x `RANKS` dots; `RANKS` is at most 4.
///
/// # Safety
/// The rows that `place` names (`ROWS` of `x`, `RANKS` of `p`) have `16 * runs` readable elements, their rests 16 unless
/// null, and the results are writable and not used by anyone else; the processor has the instructions of `V`.
#[inline(always)]
unsafe fn dots<V: Sixteen, const ROWS: usize, const RANKS: usize>(place: Place) {
    let Place {
        runs,
        width,
        x,
        p,
        x_rest,
        p_rest,
        out,
        stride,
        scale,
    } = place;
    // SAFETY: every address below is one of an element named in the caller's promise.
    unsafe {
        let mut sums = [[V::zero(); RANKS]; ROWS];
        for run in 0..runs {
            let (x, p) = (x.add(run * LANES), p.add(run * LANES));
            step(&mut sums, x, p, width);
        }
        if !x_rest.is_null() {
            step(&mut sums, x_rest, p_rest, LANES);
        }
        for (i, sums) in sums.iter().enumerate() {
            let mut four = [V::zero(); 4];
            four[..RANKS].copy_from_slice(sums);
            let folded = V::fold(four);
            for (r, sum) in folded[..RANKS].iter().enumerate() {
                *out.add(i * stride + r) = scale * sum;
            }
        }
    }
}

/// Takes in 16 elements of each row.
///
/// # Safety
/// `ROWS` rows at `x` and `RANKS` rows at `p`, `width` apart, have 16 readable elements; the processor has the
/// instructions of `V`.
#[inline(always)]
unsafe fn step<V: Sixteen, const ROWS: usize, const RANKS: usize>(
    sums: &mut [[V; RANKS]; ROWS],
    x: *const f32,
    p: *const f32,
    width: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut ranks = [V::zero(); RANKS];
        for (r, rank) in ranks.iter_mut().enumerate() {
            *rank = V::load(p.add(r * width));
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let x = V::load(x.add(i * width));
            for (sum, rank) in sums.iter_mut().zip(ranks) {
                *sum = x.multiply_add(rank, *sum);
            }
        }
    }
}

/// The 16 lanes of a dot product.
trait Sixteen: Copy {
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn zero() -> Self;

    /// # Safety
    /// `from` has 16 readable numbers, and the processor has the instructions of this type.
    unsafe fn load(from: *const f32) -> Self;

    /// Returns `self * factor + addend` with one rounding.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self;

    /// Folds each of four by the tree of the module head.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn fold(four: [Self; 4]) -> [f32; 4];
}

#[cfg(target_arch = "x86_64")]
impl Sixteen for __m512 {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_fmadd_ps(self, factor, addend) }
    }

    #[inline(always)]
    unsafe fn fold([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise; `sums` has the 4 numbers that are stored.
        unsafe {
            // Halves: [a0 a1 b0 b1] + [a2 a3 b2 b3] in quarters of 4 lanes, and the same of c and d.
            let ab = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0x44>(a, b),
                _mm512_shuffle_f32x4::<0xee>(a, b),
            );
            let cd = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0x44>(c, d),
                _mm512_shuffle_f32x4::<0xee>(c, d),
            );
            // Quarters: one quarter each of a, b, c and d.
            let abcd = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0x88>(ab, cd),
                _mm512_shuffle_f32x4::<0xdd>(ab, cd),
            );
            let pairs = _mm512_add_ps(abcd, _mm512_permute_ps::<0b01_00_11_10>(abcd));
            let all = _mm512_add_ps(pairs, _mm512_permute_ps::<0b10_11_00_01>(pairs));
            let firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            let mut sums = [0.0; 4];
            let folded = _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, all));
            _mm_storeu_ps(sums.as_mut_ptr(), folded);
            sums
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Sixteen for [__m256; 2] {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        unsafe { [_mm256_setzero_ps(); 2] }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            [
                _mm256_fmadd_ps(self[0], factor[0], addend[0]),
                _mm256_fmadd_ps(self[1], factor[1], addend[1]),
            ]
        }
    }

    #[inline(always)]
    unsafe fn fold(four: [Self; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise; `lanes` has the 8 numbers that are stored.
        unsafe {
            let [a, b, c, d] = four.map(|x| _mm256_add_ps(x[0], x[1]));
            let half = |a, b| {
                _mm256_add_ps(
                    _mm256_permute2f128_ps::<0x20>(a, b),
                    _mm256_permute2f128_ps::<0x31>(a, b),
                )
            };
            let (ab, cd) = (half(a, b), half(c, d));
            let pairs = _mm256_add_ps(
                _mm256_shuffle_ps::<0x44>(ab, cd),
                _mm256_shuffle_ps::<0xee>(ab, cd),
            );
            let all = _mm256_add_ps(pairs, _mm256_movehdup_ps(pairs));
            let mut lanes = [0.0; 8];
            _mm256_storeu_ps(lanes.as_mut_ptr(), all);
            [lanes[0], lanes[4], lanes[2], lanes[6]]
        }
    }
}

impl Sixteen for [f32; LANES] {
    #[inline(always)]
    unsafe fn zero() -> Self {
        [0.0; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; an array of f32 needs no more alignment than f32.
        unsafe { from.cast::<Self>().read() }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        std::array::from_fn(|lane| self[lane].mul_add(factor[lane], addend[lane]))
    }

    #[inline(always)]
    unsafe fn fold(four: [Self; 4]) -> [f32; 4] {
        four.map(|mut lanes| {
            for half in [8, 4, 2, 1] {
                for j in 0..half {
                    lanes[j] += lanes[j + half];
                }
            }
            lanes[0]
        })
    }
}
