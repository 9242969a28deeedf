//! Products of split numbers, one element at a time: the bits that every fast version gives.
//!
//! A number is the sum of three bf16 (8 bits each), made by rounding off and splitting the rest again:
//!
//! ```text
//! high = bf16(x)    middle = bf16(x - high)    low = x - high - middle          halves away from zero, never to infinity
//! ```
//!
//! Along the reduction, 32 numbers make a step, the last one filled up with zeros. A step adds six partial products, in
//! the order of [`PAIRS`], each as one instruction `TDPBF16PS` does (Intel's *Software Developer's Manual*, volume 2):
//!
//! ```text
//! even = odd = 0;   for i in 0..16:   even = fma(a[2i], b[2i], even)    odd = fma(a[2i + 1], b[2i + 1], odd)
//! c = c + (even + odd)
//! ```
//!
//! rounded to nearest even; what is below 2^-126 counts as zero when read, and becomes zero when rounded to 24 bits it
//! is below 2^-126. What is left out (`middle * low`, `low * middle`, `low * low`) is at most 2^-24 of a product, and
//! 2^-27 in the mean.

/// Numbers of a step.
pub const STEP: usize = 32;

/// Pieces of left and right that meet, in their order: small ones first.
pub const PAIRS: [(usize, usize); 6] = [(2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)];

/// Returns high, middle and low.
pub fn pieces(x: f32) -> [f32; 3] {
    let high = near(x);
    let middle = near(x - high);
    [high, middle, x - high - middle]
}

/// Returns the bf16 next to a number, halves away from zero, but not infinity for what is finite.
fn near(x: f32) -> f32 {
    let down = f32::from_bits(x.to_bits() & 0xffff_0000);
    let up = f32::from_bits((x.to_bits() & 0xffff_0000).wrapping_add(0x1_0000));
    match x.to_bits() & 0x8000 != 0 && up.is_finite() {
        true => up,
        false => down,
    }
}

/// Returns zero for what is below 2^-126.
pub fn normal(x: f32) -> f32 {
    match x.abs() < f32::MIN_POSITIVE {
        true => 0.0f32.copysign(x),
        false => x,
    }
}

/// Computes `a * b + c` of two bf16 and a number, rounded once, small results to zero.
pub fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    /// Half of the last place below 2^-126 with 24 bits: 2^-151.
    const HALF: f64 = f64::from_bits((1023 - 151) << 52);
    let (a, b, c) = (normal(a), normal(b), normal(c));
    let rounded = a.mul_add(b, c);
    if rounded.abs() != f32::MIN_POSITIVE {
        return normal(rounded);
    }
    // Rounded to multiples of 2^-149 it is 2^-126; rounded to 24 bits it may stay below. The product is exact, and so
    // are sum and error.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let from_c = sum - product;
    let error = (product - (sum - from_c)) + (c - from_c);
    let missing = f64::from(f32::MIN_POSITIVE) - HALF - sum.abs();
    match missing > error * sum.signum() {
        true => 0.0f32.copysign(rounded),
        false => rounded,
    }
}

/// Adds one partial product of a step to `c`, as the instruction does.
///
/// # Panics
/// When there are no 32 numbers on both sides.
pub fn step(c: f32, a: &[f32], b: &[f32]) -> f32 {
    assert!(
        a.len() == STEP && b.len() == STEP,
        "a step has {STEP} numbers"
    );
    let mut sums = [0.0f32; 2];
    for i in 0..STEP {
        sums[i % 2] = multiply_add(a[i], b[i], sums[i % 2]);
    }
    normal(normal(c) + normal(sums[0] + sums[1]))
}

/// Computes the product of a row and a column, added to `start`.
///
/// # Panics
/// When they have different lengths.
pub fn dot(start: f32, a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "lengths of a product");
    let mut sum = start;
    for (a, b) in a.chunks(STEP).zip(b.chunks(STEP)) {
        let piece = |x: &[f32], piece: usize| {
            let mut filled = [0.0; STEP];
            for (to, x) in filled.iter_mut().zip(x) {
                *to = pieces(*x)[piece];
            }
            filled
        };
        for (left, right) in PAIRS {
            sum = step(sum, &piece(a, left), &piece(b, right));
        }
    }
    sum
}
