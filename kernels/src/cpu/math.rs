//! Exponentials and their relatives, the same bits on every instruction set.
//!
//! Written without branches and with `mul_add` only, so that loops over them become vectors of whatever width there
//! is, and every width computes the same thing; nothing comes from the platform's library, whose bits move from machine
//! to machine. NaN stays NaN; the limits are exact.

use std::array::from_fn;
use std::f32::consts::{LN_2, LOG2_E};

/// Returns e^x: reduction by multiples of ln 2 and the degree-6 polynomial of Cephes' `expf`; error below 2 ulp.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer that can be read off the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Beyond these the result is 0 or infinite; a comparison with NaN is false, so NaN passes.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x.mul_add(LOG2_E, ROUND);
    let count = shifted - ROUND;
    let exponent = shifted
        .to_bits()
        .cast_signed()
        .wrapping_sub(ROUND.to_bits().cast_signed());
    let rest = count.mul_add(-LN_2_LOW, count.mul_add(-LN_2_HIGH, x));
    let p = 1.987_569_1e-4_f32;
    let p = p.mul_add(rest, 1.398_199_9e-3);
    let p = p.mul_add(rest, 8.333_452e-3);
    let p = p.mul_add(rest, 4.166_579_6e-2);
    let p = p.mul_add(rest, 1.666_666_5e-1);
    let p = p.mul_add(rest, 0.5);
    let value = p.mul_add(rest * rest, rest) + 1.0;
    // In two halves, since 2^128 and 2^-150 are no normal numbers.
    let half = exponent >> 1;
    value * power_of_two(half) * power_of_two(exponent.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(exponent.wrapping_add(127).cast_unsigned() << 23)
}

/// Returns the natural logarithm of a positive, normal number (or NaN); error below 1 ulp.
///
/// The mantissa is brought to [2/3, 4/3) and `ln(1 + f)` is a polynomial in f.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    let exponent = bits.wrapping_sub(0x3f2a_aaab) & 0xff80_0000;
    let f = f32::from_bits(bits.wrapping_sub(exponent)) - 1.0;
    #[expect(clippy::cast_precision_loss, reason = "at most 8 bits are set")]
    let count = exponent.cast_signed() as f32 * f32::from_bits(0x3400_0000);
    let s = f * f;
    let even = (-0.130_310_06_f32)
        .mul_add(s, -0.121_489_234)
        .mul_add(s, -0.166_846_13)
        .mul_add(s, -0.249_996_2);
    let odd = 0.140_869_14_f32
        .mul_add(s, 0.139_814_85)
        .mul_add(s, 0.200_120_34);
    let p = odd
        .mul_add(f, even)
        .mul_add(f, 0.333_331_97)
        .mul_add(f, -0.5);
    let value = count.mul_add(LN_2, p.mul_add(s, f));
    // The bits of NaN and infinity mean no number above; they go through as they are.
    if x < f32::INFINITY { value } else { x }
}

/// Returns 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Returns the error function; error below 2 ulp.
///
/// Near 0 it is an odd polynomial, further out `1 - e^p(|x|)`.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let (t, s) = (x.abs(), x * x);
    let low = (-3.883_964_4e-3_f32).mul_add(t, 2.425_462_2e-2);
    let p = (-1.728_534_7e-5_f32)
        .mul_add(t, 3.831_971_3e-4)
        .mul_add(s, low)
        .mul_add(t, -1.067_778_8e-1)
        .mul_add(t, -6.348_467e-1)
        .mul_add(t, -1.287_175_1e-1)
        .mul_add(t, -t);
    let far = (1.0 - exp(p)).copysign(x);
    let near = (-5.967_617e-4_f32)
        .mul_add(s, 4.991_194_2e-3)
        .mul_add(s, -2.676_813_5e-2)
        .mul_add(s, 1.128_199_25e-1)
        .mul_add(s, -3.761_253_4e-1)
        .mul_add(s, 1.283_791_7e-1)
        .mul_add(x, x);
    // Beyond 4 the result is 1 and the polynomial, which would come back, is not used.
    let far = if t > 4.0 { 1.0f32.copysign(x) } else { far };
    if t > 0.927_734_4 { far } else { near }
}

/// Returns the hyperbolic tangent; error below 2 ulp.
///
/// Near 0 it is an odd polynomial, further out `1 - 2 / (e^2|x| + 1)`.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let (t, s) = (x.abs(), x * x);
    let far = (1.0 - 2.0 / (exp(2.0 * t) + 1.0)).copysign(x);
    let near = 0.015_739_44_f32
        .mul_add(s, -5.230_255_8e-2)
        .mul_add(s, 1.331_524_7e-1)
        .mul_add(s, -3.333_276_8e-1)
        * s;
    if t > 0.55 { far } else { near.mul_add(x, x) }
}

/// Returns the sum of 16 lanes by a fixed tree.
#[inline(always)]
pub(crate) fn sum_lanes(lanes: [f32; 16]) -> f32 {
    let eight: [f32; 8] = from_fn(|j| lanes[j] + lanes[j + 8]);
    let four: [f32; 4] = from_fn(|j| eight[j] + eight[j + 4]);
    let two: [f32; 2] = from_fn(|j| four[j] + four[j + 2]);
    two[0] + two[1]
}

/// Returns the rest of a row, filled up with zeros.
#[inline(always)]
pub(crate) fn filled(rest: &[f32]) -> [f32; 16] {
    let mut lanes = [0.0; 16];
    lanes[..rest.len()].copy_from_slice(rest);
    lanes
}

/// Returns the sum of `a[i] * b[i]` in the canonical order: element i goes to lane i % 16, lanes by [`sum_lanes`].
///
/// Lanes are made anew in each step and never indexed by a variable: only so do they stay in a register.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (whole_a, rest_a) = a.as_chunks::<16>();
    let (whole_b, rest_b) = b.as_chunks::<16>();
    for (a, b) in whole_a.iter().zip(whole_b) {
        lanes = from_fn(|j| a[j].mul_add(b[j], lanes[j]));
    }
    if !rest_a.is_empty() {
        let (a, b) = (filled(rest_a), filled(rest_b));
        lanes = from_fn(|j| a[j].mul_add(b[j], lanes[j]));
    }
    sum_lanes(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::elementwise::erf as erf_reference;

    /// Holds `got` against `want` at every step from `from` to `to`: within `ulp` units in the last place.
    fn hold(from: f32, to: f32, ulp: f64, got: fn(f32) -> f32, want: fn(f64) -> f64) {
        for step in 0..60_000u16 {
            let x = from + (to - from) * (f32::from(step) / 60_000.0);
            let (got, want) = (f64::from(got(x)), want(f64::from(x)));
            // Results below the normal range lose bits, as they must.
            let unit = (want.abs() * f64::from(f32::EPSILON)).max(1.5e-45);
            assert!(
                (got - want).abs() <= ulp * unit,
                "at {x}: {got}, not {want}: {} ulp",
                (got - want).abs() / unit
            );
        }
    }

    #[test]
    fn errors_are_small() {
        hold(-103.0, 88.7, 2.0, exp, f64::exp);
        hold(1e-3, 3.0, 1.0, ln, f64::ln);
        hold(1.2e-38, 1e-3, 1.0, ln, f64::ln);
        hold(1.0, 3e38, 1.0, ln, f64::ln);
        hold(-10.0, 10.0, 2.0, tanh, f64::tanh);
        hold(-0.6, 0.6, 2.0, tanh, f64::tanh);
        hold(-1.0, 1.0, 2.0, erf, erf_reference);
        hold(-5.0, 5.0, 2.0, erf, erf_reference);
        hold(-80.0, 20.0, 4.0, sigmoid, |x| 1.0 / (1.0 + (-x).exp()));
    }

    #[test]
    fn limits_are_exact() {
        let (zero, infinity) = (0.0f32, f32::INFINITY);
        for (got, want) in [
            (exp(-infinity), 0.0),
            (exp(-1e30), 0.0),
            (exp(infinity), infinity),
            (exp(89.0), infinity),
            (exp(zero), 1.0),
            (ln(1.0), 0.0),
            (ln(infinity), infinity),
            (erf(infinity), 1.0),
            (erf(-1e30), -1.0),
            (erf(zero), 0.0),
            (tanh(-infinity), -1.0),
            (tanh(1e30), 1.0),
            (sigmoid(-infinity), 0.0),
            (sigmoid(infinity), 1.0),
            (sigmoid(zero), 0.5),
        ] {
            assert_eq!(got, want);
        }
    }

    #[test]
    fn no_number_stays_no_number() {
        for function in [exp, ln, erf, tanh, sigmoid] {
            assert!(function(f32::NAN).is_nan());
        }
    }

    #[test]
    fn a_dot_adds_in_lanes() {
        let a: Vec<f32> = (0..37u8).map(f32::from).collect();
        assert_eq!(dot(&a, &a), 36.0 * 37.0 * 73.0 / 6.0);
        // In one chain the small ones would be lost one by one; in lanes of their own they are not.
        let mut big = vec![1.0f32; 32];
        big[0] = 16_777_216.0;
        assert_eq!(dot(&big, &[1.0; 32]), 16_777_216.0 + 30.0);
    }
}
