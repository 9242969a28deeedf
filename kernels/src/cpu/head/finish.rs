//! From the parts of a row's softmax to its loss and gradient.

use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::exp;

use super::SEGMENTS;

/// What a segment of the vocabulary says of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// Greatest logit, and the first token that has it.
    pub(super) best: f32,
    pub(super) argmax: u32,
    /// Sum of `e^(logit - best)` without the target.
    pub(super) others: f64,
    /// Logit of the target; minus infinity when it is in another segment.
    pub(super) target: f32,
}

impl Tail {
    /// What an empty segment says.
    pub(super) const NONE: Self = Self {
        best: f32::NEG_INFINITY,
        argmax: 0,
        others: 0.0,
        target: f32::NEG_INFINITY,
    };
}

/// A row's loss, and the factors of its gradient.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// Negative log-likelihood of the target.
    pub(crate) loss: f32,
    /// Most likely token, the first of equal ones.
    pub(crate) argmax: u32,
    /// Greatest logit of all.
    pub(crate) best: f32,
    /// `e^(best of a segment - best)`.
    pub(crate) weights: [f32; SEGMENTS],
    /// `d loss / d logit` of another token is `e^(logit - best)` times this.
    pub(crate) factor: f32,
    /// `d loss / d logit` of the target is minus this.
    pub(crate) target: f32,
}

/// Puts the segments of a row together.
pub(super) fn finish(tails: [Tail; SEGMENTS], coefficient: f32) -> Finished {
    let (mut best, mut argmax) = (f32::NEG_INFINITY, 0);
    let mut target = f32::NEG_INFINITY;
    for tail in &tails {
        if tail.best > best {
            (best, argmax) = (tail.best, tail.argmax);
        }
        // Not `max`: a target that is not a number must be seen.
        if tail.target.to_bits() != f32::NEG_INFINITY.to_bits() {
            target = tail.target;
        }
    }
    let weights = tails.map(|tail| exp(tail.best - best));
    let mut others = 0.0;
    for (tail, weight) in tails.iter().zip(weights) {
        others += f64::from(weight) * tail.others;
    }
    let likelihood = f64::from(exp(target - best));
    let loss = (f64::from(best) - f64::from(target)) + ln_1p(others + (likelihood - 1.0));
    let coefficient = f64::from(coefficient) / (others + likelihood);
    Finished {
        loss: narrow(loss),
        argmax,
        best,
        weights,
        factor: narrow(coefficient),
        target: narrow(coefficient * others),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds a result to single precision"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// `ln(1 + x)` for `x >= 0`: the same bits on every machine, error of a few units in the last place.
pub(super) fn ln_1p(x: f64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    // ln(1 + y) = 2 (s + s^3 / 3 + s^5 / 5 ...) with s = y / (2 + y), for 1 + y within sqrt(2) of 1.
    if x <= 0.4 {
        return series(x / (2.0 + x));
    }
    if !x.is_finite() {
        return x;
    }
    let sum = 1.0 + x;
    let bits = sum.to_bits();
    let mut exponent = i32::try_from(bits >> 52).expect("positive") - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let rest = series((mantissa - 1.0) / (mantissa + 1.0));
    f64::from(exponent).mul_add(LN_2, rest)
}

fn series(s: f64) -> f64 {
    let square = s * s;
    let mut sum = 0.0;
    for odd in (1..=25).rev().step_by(2) {
        sum = square.mul_add(sum, 1.0 / f64::from(odd));
    }
    2.0 * s * sum
}

isa_dispatch! {
    /// Writes `sum = factor * (sum_i weights[i] * parts[i]) - target * weight`, skipping parts that are empty.
    pub(super) fn combine(
        parts: [&[f32]; SEGMENTS],
        row: Finished,
        weight: &[f32],
        sum: &mut [f32],
    ) = combine_body;
}

#[inline(always)]
fn combine_body(parts: [&[f32]; SEGMENTS], row: Finished, weight: &[f32], sum: &mut [f32]) {
    sum.fill(0.0);
    for (part, factor) in parts.into_iter().zip(row.weights) {
        for (sum, part) in sum.iter_mut().zip(part) {
            *sum = factor.mul_add(*part, *sum);
        }
    }
    for (sum, weight) in sum.iter_mut().zip(weight) {
        *sum = row.factor.mul_add(*sum, -(row.target * weight));
    }
}

isa_dispatch! {
    /// Turns the logits of a row into their gradient.
    pub(crate) fn gradient_of_logits(row: Finished, target: u32, logits: &mut [f32]) = gradient_body;
}

#[inline(always)]
fn gradient_body(row: Finished, target: u32, logits: &mut [f32]) {
    for logit in logits.iter_mut() {
        *logit = row.factor * exp(*logit - row.best);
    }
    logits[target as usize] = -row.target;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_1p_is_near_the_library() {
        let mut x = 1e-12;
        while x < 1e12 {
            let (found, wanted) = (ln_1p(x), x.ln_1p());
            assert!(
                (found - wanted).abs() <= 1e-15 * wanted,
                "ln_1p({x}) = {found}, not {wanted}"
            );
            x *= 1.01;
        }
        assert_eq!(ln_1p(0.0), 0.0);
        assert_eq!(ln_1p(f64::INFINITY), f64::INFINITY);
        assert!(ln_1p(f64::NAN).is_nan());
    }
}
