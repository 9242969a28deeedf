//! Exponentials and their relatives, the same bits on every instruction set.
//!
//! Written without branches and with `mul_add` only, so that loops over them become vectors of whatever width there
//! is, and every width computes the same thing. NaN stays NaN; the limits are exact.

/// e^x: reduction by multiples of ln 2 and the degree-6 polynomial of Cephes' `expf`; error below 2 ulp.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer that can be read off the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Beyond these the result is 0 or infinite; a comparison with NaN is false, so NaN passes.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let count = shifted - ROUND;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
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
    f32::from_bits((exponent.wrapping_add(127) as u32) << 23)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The error function; absolute error below 2e-7 (Numerical Recipes, section 6.2, `erfcc`).
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let z = x.abs();
    let t = 1.0 / 0.5f32.mul_add(z, 1.0);
    let p = 0.170_872_77_f32;
    let p = p.mul_add(t, -0.822_152_23);
    let p = p.mul_add(t, 1.488_515_9);
    let p = p.mul_add(t, -1.135_203_98);
    let p = p.mul_add(t, 0.278_868_07);
    let p = p.mul_add(t, -0.186_288_06);
    let p = p.mul_add(t, 0.096_784_18);
    let p = p.mul_add(t, 0.374_091_96);
    let p = p.mul_add(t, 1.000_023_68);
    let p = p.mul_add(t, -1.265_512_23);
    let tail = t * exp((-z).mul_add(z, p));
    if x < 0.0 { tail - 1.0 } else { 1.0 - tail }
}

/// Sum of 16 lanes by a fixed tree.
#[inline(always)]
pub(crate) fn sum_lanes(mut lanes: [f32; 16]) -> f32 {
    for half in [8, 4, 2, 1] {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
    }
    lanes[0]
}

/// Sum of a[i] * b[i] in the canonical order: element i goes to lane i % 16, lanes by [`sum_lanes`].
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (whole_a, rest_a) = a.as_chunks::<16>();
    let (whole_b, rest_b) = b.as_chunks::<16>();
    for (a, b) in whole_a.iter().zip(whole_b) {
        for j in 0..16 {
            lanes[j] = a[j].mul_add(b[j], lanes[j]);
        }
    }
    for (j, (a, b)) in rest_a.iter().zip(rest_b).enumerate() {
        lanes[j] = a.mul_add(*b, lanes[j]);
    }
    sum_lanes(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_and_its_limits_exact() {
        let mut x = -103.0f64;
        while x < 88.7 {
            let (got, want) = (f64::from(exp(x as f32)), f64::from(x as f32).exp());
            // Results below the normal range lose bits, as they must.
            let tolerance = 2.5e-7 * want + 1.5e-45;
            assert!((got - want).abs() <= tolerance, "exp({x}) is {got}, not {want}");
            x += 0.003_7;
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn erf_has_known_values() {
        for (x, want) in [(0.0, 0.0), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.0, 0.995_322_3)] {
            assert!((erf(x) - want).abs() < 3e-7, "erf({x})");
            assert!((erf(-x) + want).abs() < 3e-7, "erf(-{x})");
        }
        assert_eq!(erf(f32::INFINITY), 1.0);
        assert!(erf(f32::NAN).is_nan());
    }

    #[test]
    fn sigmoid_has_its_limits() {
        assert_eq!(sigmoid(f32::NEG_INFINITY), 0.0);
        assert_eq!(sigmoid(f32::INFINITY), 1.0);
        assert_eq!(sigmoid(0.0), 0.5);
    }
}
