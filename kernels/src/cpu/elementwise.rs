//! Element-by-element loops over a run of numbers.

use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::{self, erf, exp, sigmoid};

/// 1 / sqrt(2 pi).
const DENSITY: f32 = 0.398_942_3;

isa_dispatch! {
    /// y += x.
    pub(crate) fn add(y: &mut [f32], x: &[f32]) = add_body;
}

#[inline(always)]
fn add_body(y: &mut [f32], x: &[f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

isa_dispatch! {
    /// Adds `bias` to every row of `bias.len()` elements.
    pub(crate) fn add_rows(y: &mut [f32], bias: &[f32]) = add_rows_body;
}

#[inline(always)]
fn add_rows_body(y: &mut [f32], bias: &[f32]) {
    for row in y.chunks_exact_mut(bias.len()) {
        add_body(row, bias);
    }
}

isa_dispatch! {
    /// Multiplies every row of `scale.len()` elements by `scale`.
    pub(crate) fn scale_rows(y: &mut [f32], scale: &[f32]) = scale_rows_body;
}

#[inline(always)]
fn scale_rows_body(y: &mut [f32], scale: &[f32]) {
    for row in y.chunks_exact_mut(scale.len()) {
        for (y, scale) in row.iter_mut().zip(scale) {
            *y *= scale;
        }
    }
}

isa_dispatch! {
    /// max(x, 0).
    pub(crate) fn relu(x: &mut [f32]) = relu_body;
}

#[inline(always)]
fn relu_body(x: &mut [f32]) {
    for x in x {
        // Not `max`, which would turn NaN into 0 and hide it.
        *x = if *x < 0.0 { 0.0 } else { *x };
    }
}

isa_dispatch! {
    /// x Phi(x).
    pub(crate) fn gelu(x: &mut [f32]) = gelu_body;
}

#[inline(always)]
fn gelu_body(x: &mut [f32]) {
    for x in x {
        *x *= below(*x);
    }
}

/// The share of the normal distribution below x.
#[inline(always)]
fn below(x: f32) -> f32 {
    0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

isa_dispatch! {
    /// x / (1 + e^-x).
    pub(crate) fn silu(x: &mut [f32]) = silu_body;
}

#[inline(always)]
fn silu_body(x: &mut [f32]) {
    for x in x {
        *x *= sigmoid(*x);
    }
}

isa_dispatch! {
    /// tanh(x).
    pub(crate) fn tanh(x: &mut [f32]) = tanh_body;
}

#[inline(always)]
fn tanh_body(x: &mut [f32]) {
    for x in x {
        *x = math::tanh(*x);
    }
}

isa_dispatch! {
    /// Multiplies `d` by the derivative of max(x, 0).
    pub(crate) fn relu_backward(x: &[f32], d: &mut [f32]) = relu_backward_body;
}

#[inline(always)]
fn relu_backward_body(x: &[f32], d: &mut [f32]) {
    for (x, d) in x.iter().zip(d) {
        *d = if *x <= 0.0 { 0.0 } else { *d };
    }
}

isa_dispatch! {
    /// Multiplies `d` by the derivative of x Phi(x).
    pub(crate) fn gelu_backward(x: &[f32], d: &mut [f32]) = gelu_backward_body;
}

#[inline(always)]
fn gelu_backward_body(x: &[f32], d: &mut [f32]) {
    for (&x, d) in x.iter().zip(d) {
        *d *= (x * DENSITY).mul_add(exp(-0.5 * x * x), below(x));
    }
}

isa_dispatch! {
    /// Multiplies `d` by the derivative of x / (1 + e^-x).
    pub(crate) fn silu_backward(x: &[f32], d: &mut [f32]) = silu_backward_body;
}

#[inline(always)]
fn silu_backward_body(x: &[f32], d: &mut [f32]) {
    for (&x, d) in x.iter().zip(d) {
        let s = sigmoid(x);
        *d *= s * x.mul_add(1.0 - s, 1.0);
    }
}

isa_dispatch! {
    /// Multiplies `d` by the derivative of tanh(x).
    pub(crate) fn tanh_backward(x: &[f32], d: &mut [f32]) = tanh_backward_body;
}

#[inline(always)]
fn tanh_backward_body(x: &[f32], d: &mut [f32]) {
    for (&x, d) in x.iter().zip(d) {
        let y = math::tanh(x);
        *d *= (-y).mul_add(y, 1.0);
    }
}

isa_dispatch! {
    /// Says whether no number is infinite or NaN.
    pub(crate) fn finite(x: &[f32]) -> bool = finite_body;
}

#[inline(always)]
fn finite_body(x: &[f32]) -> bool {
    // The exponent is all ones exactly for infinities and NaN; the maximum is quick to take.
    let exponents = x.iter().map(|value| value.to_bits() & 0x7f80_0000);
    exponents.fold(0, u32::max) < 0x7f80_0000
}
