//! Inputs for the tests (numbers with full mantissas and weights of every format, from a seed), how far a result may be
//! from its reference, and the check of a gradient against differences.

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

/// Names an operation in the table of tolerances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Activation,
    Attention,
    AttentionGradient,
    RmsNorm,
    RmsNormGradient,
    Rope,
    SwiGlu,
}

impl Operation {
    /// Returns the error that f32 may make, as a share of the largest value of the result.
    fn tolerance(self) -> f64 {
        match self {
            Self::Rope => 2e-7,
            Self::Activation | Self::SwiGlu => 1e-6,
            Self::RmsNorm => 5e-7,
            Self::RmsNormGradient | Self::Attention => 2e-6,
            Self::AttentionGradient => 4e-6,
        }
    }
}

/// Panics when `got` is further from `want` than the operation's tolerance.
pub(crate) fn assert_close(operation: Operation, what: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{operation:?} {what}: lengths");
    let largest = want.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let limit = operation.tolerance() * largest;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        // Written so that NaN fails.
        assert!(
            error <= limit,
            "{operation:?} {what}[{i}]: {got}, not {want}: error {error:e} above {limit:e}"
        );
    }
}

/// Panics unless `gradient` is that of `value` at `x`, by central differences at up to 24 elements spread over `x`.
pub(crate) fn check_gradient(
    what: &str,
    x: &[f64],
    gradient: &[f64],
    mut value: impl FnMut(&[f64]) -> f64,
) {
    assert_eq!(x.len(), gradient.len(), "{what}: lengths");
    let mut shifted = x.to_vec();
    let largest = gradient.iter().fold(0.0, |most: f64, d| most.max(d.abs()));
    for at in (0..x.len()).step_by(x.len().div_ceil(24).max(1)) {
        let h = 1e-5 * (1.0 + x[at].abs());
        let mut at_distance = |distance: f64| {
            shifted[at] = x[at] + distance;
            value(&shifted)
        };
        let difference = (at_distance(h) - at_distance(-h)) / (2.0 * h);
        shifted[at] = x[at];
        let error = (gradient[at] - difference).abs();
        assert!(
            error <= 1e-7 * largest + 1e-9,
            "{what}: gradient {at} is {}, the difference {difference}",
            gradient[at]
        );
    }
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
