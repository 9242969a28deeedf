//! Inputs for the tests: numbers with full mantissas and weights of every format, from a seed.

use std::sync::Arc;

use crate::weight::{Format, Weight};

/// Returns numbers in [-1, 1) with 24-bit mantissas.
pub(crate) fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    #[expect(clippy::cast_precision_loss, reason = "24 bits are exact")]
    let next = || (random.next() >> 40) as f32 / 8_388_608.0 - 1.0;
    std::iter::repeat_with(next).take(len).collect()
}

/// Returns a weight with random bytes, all of its numbers finite and the scales of its blocks moderate.
pub(crate) fn weight(format: Format, rows: usize, cols: usize, seed: u64) -> Weight {
    if format == Format::F32 {
        return Weight::from_f32(rows, cols, numbers(rows * cols, seed));
    }
    let mut random = Random::new(seed);
    let len = format.bytes_of(rows * cols).expect("whole blocks");
    let mut bytes: Vec<u8> = (0..len).map(|_| random.next().to_le_bytes()[7]).collect();
    let halves = if format == Format::Q4_1 { 2 } else { 1 };
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        for half in block.chunks_exact_mut(2).take(halves) {
            // Clears high bits of the exponent, so that numbers stay below 2.
            half[1] &= if format == Format::Bf16 { 0xbf } else { 0xb7 };
        }
    }
    Weight::new(format, rows, cols, Arc::new(bytes), 0..len).expect("the bytes of the shape")
}

/// Returns the numbers in double precision.
pub(crate) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Returns the bits of numbers, to be compared.
pub(crate) fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
