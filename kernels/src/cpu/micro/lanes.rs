//! A vector register of each instruction set, as the micro-kernel sees it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// A few neighbouring numbers in a register.
pub(super) trait Lanes: Copy {
    /// How many.
    const COUNT: usize;

    /// Loads from any address.
    ///
    /// # Safety
    /// `from` has `COUNT` readable numbers, and the processor has the instructions of this type.
    unsafe fn load(from: *const f32) -> Self;

    /// Stores to any address.
    ///
    /// # Safety
    /// `to` has `COUNT` writable numbers, and the processor has the instructions of this type.
    unsafe fn store(self, to: *mut f32);

    /// Repeats one number.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn splat(x: f32) -> Self;

    /// Returns `self * factor + addend` with one rounding.
    ///
    /// # Safety
    /// The processor has the instructions of this type.
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self;
}

#[cfg(target_arch = "x86_64")]
impl Lanes for __m512 {
    const COUNT: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm512_fmadd_ps(self, factor, addend) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for __m256 {
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { _mm256_fmadd_ps(self, factor, addend) }
    }
}

impl Lanes for [f32; 8] {
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; an array of f32 needs no more alignment than f32.
        unsafe { from.cast::<Self>().read() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise; an array of f32 needs no more alignment than f32.
        unsafe { to.cast::<Self>().write(self) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 8]
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        std::array::from_fn(|lane| self[lane].mul_add(factor[lane], addend[lane]))
    }
}
