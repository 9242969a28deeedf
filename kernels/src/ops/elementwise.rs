//! Operations on each element, row by row: sums, biases, scales, activations, finite checks.

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::{erf, exp, sigmoid};

/// Elements a task works on: large enough to hide its start, small enough to share.
const TASK: usize = 1 << 14;

/// The function between the layers of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x Phi(x), with the exact normal distribution.
    Gelu,
    /// x / (1 + e^-x).
    Silu,
}

/// Splits a `(rows, width)` matrix into tasks of whole rows.
fn each_rows(cpu: &Cpu, y: &mut [f32], width: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    assert!(width > 0 && y.len().is_multiple_of(width), "{} values in rows of {width}", y.len());
    let rows = y.len() / width;
    let step = (TASK / width).max(1);
    let y = DisjointMut::matrix(y, width);
    cpu.for_each(rows.div_ceil(step), |task| {
        let first = task * step;
        let mut part = y.rows(first..(first + step).min(rows));
        f(first * width, &mut part);
    });
}

/// y += x, element by element.
///
/// # Panics
/// When the lengths differ.
pub fn add(cpu: &Cpu, y: &mut [f32], x: &[f32]) {
    assert_eq!(y.len(), x.len(), "a sum of different lengths");
    if y.is_empty() {
        return;
    }
    each_rows(cpu, y, 1, |at, y| add_part(cpu.isa(), y, &x[at..at + y.len()]));
}

isa_dispatch! {
    fn add_part(y: &mut [f32], x: &[f32]) = add_body;
}

#[inline(always)]
fn add_body(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

/// Adds `bias` `(width)` to every row of `y` `(rows, width)`.
///
/// # Panics
/// When `y` is not whole rows.
pub fn add_bias(cpu: &Cpu, y: &mut [f32], bias: &[f32]) {
    each_rows(cpu, y, bias.len(), |_, y| {
        for row in y.chunks_exact_mut(bias.len()) {
            add_part(cpu.isa(), row, bias);
        }
    });
}

/// Multiplies every row of `y` `(rows, width)` by `scale` `(width)`.
///
/// # Panics
/// When `y` is not whole rows.
pub fn scale_columns(cpu: &Cpu, y: &mut [f32], scale: &[f32]) {
    each_rows(cpu, y, scale.len(), |_, y| {
        for row in y.chunks_exact_mut(scale.len()) {
            scale_part(cpu.isa(), row, scale);
        }
    });
}

isa_dispatch! {
    fn scale_part(y: &mut [f32], scale: &[f32]) = scale_body;
}

#[inline(always)]
fn scale_body(y: &mut [f32], scale: &[f32]) {
    for (y, scale) in y.iter_mut().zip(scale) {
        *y *= scale;
    }
}

/// Applies the function to every element.
pub fn activate(cpu: &Cpu, function: Activation, x: &mut [f32]) {
    if x.is_empty() {
        return;
    }
    each_rows(cpu, x, 1, |_, x| match function {
        Activation::Relu => relu(cpu.isa(), x),
        Activation::Gelu => gelu(cpu.isa(), x),
        Activation::Silu => silu(cpu.isa(), x),
    });
}

/// Multiplies `d` by the function's derivative at `x`.
///
/// # Panics
/// When the lengths differ.
pub fn activate_backward(cpu: &Cpu, function: Activation, x: &[f32], d: &mut [f32]) {
    assert_eq!(x.len(), d.len(), "a gradient of another length");
    if x.is_empty() {
        return;
    }
    each_rows(cpu, d, 1, |at, d| {
        let x = &x[at..at + d.len()];
        match function {
            Activation::Relu => relu_backward(cpu.isa(), x, d),
            Activation::Gelu => gelu_backward(cpu.isa(), x, d),
            Activation::Silu => silu_backward(cpu.isa(), x, d),
        }
    });
}

isa_dispatch! {
    fn relu(x: &mut [f32]) = relu_body;
}
isa_dispatch! {
    fn gelu(x: &mut [f32]) = gelu_body;
}
isa_dispatch! {
    fn silu(x: &mut [f32]) = silu_body;
}
isa_dispatch! {
    fn relu_backward(x: &[f32], d: &mut [f32]) = relu_backward_body;
}
isa_dispatch! {
    fn gelu_backward(x: &[f32], d: &mut [f32]) = gelu_backward_body;
}
isa_dispatch! {
    fn silu_backward(x: &[f32], d: &mut [f32]) = silu_backward_body;
}

#[inline(always)]
fn relu_body(x: &mut [f32]) {
    for x in x {
        // Not `max`, which would turn NaN into 0 and hide it.
        *x = if *x < 0.0 { 0.0 } else { *x };
    }
}

#[inline(always)]
fn gelu_body(x: &mut [f32]) {
    for x in x {
        *x *= 0.5 * (1.0 + erf(*x * std::f32::consts::FRAC_1_SQRT_2));
    }
}

#[inline(always)]
fn silu_body(x: &mut [f32]) {
    for x in x {
        *x *= sigmoid(*x);
    }
}

#[inline(always)]
fn relu_backward_body(x: &[f32], d: &mut [f32]) {
    for (x, d) in x.iter().zip(d) {
        *d = if *x > 0.0 { *d } else { *d * 0.0 };
    }
}

#[inline(always)]
fn gelu_backward_body(x: &[f32], d: &mut [f32]) {
    const INVERSE_ROOT_TAU: f32 = 0.398_942_3;
    for (&x, d) in x.iter().zip(d) {
        let below = 0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2));
        *d *= (x * INVERSE_ROOT_TAU).mul_add(exp(-0.5 * x * x), below);
    }
}

#[inline(always)]
fn silu_backward_body(x: &[f32], d: &mut [f32]) {
    for (&x, d) in x.iter().zip(d) {
        let s = sigmoid(x);
        *d *= s * x.mul_add(1.0 - s, 1.0);
    }
}

/// Index of the first value that is not finite.
#[must_use]
pub fn first_non_finite(x: &[f32]) -> Option<usize> {
    let found = x.chunks(TASK).position(|part| !all_finite(part))? * TASK;
    x[found..].iter().position(|value| !value.is_finite()).map(|at| found + at)
}

/// Whether every value is finite.
#[must_use]
pub fn all_finite(x: &[f32]) -> bool {
    // The exponent is all ones exactly for infinities and NaN; the maximum is quick to take.
    x.iter().map(|value| value.to_bits() & 0x7f80_0000).max().unwrap_or(0) < 0x7f80_0000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cpu::Isa;

    #[test]
    fn derivatives_are_the_differences() {
        let cpu = Cpu::new(1).unwrap();
        for function in [Activation::Relu, Activation::Gelu, Activation::Silu] {
            for step in -40..40 {
                let x = step as f32 * 0.13 + 0.05;
                let value = |x: f32| {
                    let mut y = [x];
                    activate(&cpu, function, &mut y);
                    f64::from(y[0])
                };
                let h = 1e-2;
                let want = (value(x + h) - value(x - h)) / f64::from(2.0 * h);
                let mut d = [1.0];
                activate_backward(&cpu, function, &[x], &mut d);
                assert!((f64::from(d[0]) - want).abs() < 2e-3, "{function:?} at {x}");
            }
        }
    }

    #[test]
    fn every_instruction_set_and_thread_count_gives_the_same_bits() {
        let x: Vec<f32> = (0..40_000).map(|i| ((i * 37 % 1999) as f32 - 1000.0) * 0.01).collect();
        let run = |cpu: &Cpu| {
            let (mut y, mut d) = (x.clone(), x.clone());
            activate(cpu, Activation::Gelu, &mut y);
            activate_backward(cpu, Activation::Silu, &x, &mut d);
            add(cpu, &mut y, &d);
            scale_columns(cpu, &mut y, &x[..100]);
            add_bias(cpu, &mut y, &x[..50]);
            y.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        let first = run(&Cpu::with_isa(1, Isa::portable()).unwrap());
        for isa in Isa::available() {
            for threads in [1, 2, 3] {
                assert!(run(&Cpu::with_isa(threads, isa).unwrap()) == first, "{isa:?} {threads}");
            }
        }
    }

    #[test]
    fn the_first_bad_value_is_found() {
        let mut x = vec![1.0f32; 50_000];
        assert_eq!(first_non_finite(&x), None);
        x[40_001] = f32::NEG_INFINITY;
        x[33_333] = f32::NAN;
        assert_eq!(first_non_finite(&x), Some(33_333));
    }
}
