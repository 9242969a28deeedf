//! Root-mean-square norm of a run of rows.

use std::array::from_fn;

use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::{dot, filled, sum_lanes};

isa_dispatch! {
    /// Norms rows of `weight.len()` and writes the inverse root of each.
    pub(crate) fn forward(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32], roots: &mut [f32]) =
        forward_body;
}

#[inline(always)]
fn forward_body(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32], roots: &mut [f32]) {
    let width = weight.len();
    let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
    for ((x, y), root) in rows.zip(roots) {
        *root = inverse_root(dot(x, x) / count(width) + eps);
        for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
            *y = x * *root * w;
        }
    }
}

/// No number of a mean that is infinite: its inverse root would be zero, and a row of numbers that are too large to be
/// squared would come out as one of zeros, as if nothing were wrong with it.
#[inline(always)]
fn inverse_root(mean: f32) -> f32 {
    if mean.is_infinite() {
        f32::NAN
    } else {
        1.0 / mean.sqrt()
    }
}

isa_dispatch! {
    /// Writes the gradient of `x` to `dx`, or adds it.
    pub(crate) fn backward(
        dy: &[f32],
        x: &[f32],
        weight: &[f32],
        roots: &[f32],
        dx: &mut [f32],
        accumulate: bool,
    ) = backward_body;
}

#[inline(always)]
fn backward_body(
    dy: &[f32],
    x: &[f32],
    weight: &[f32],
    roots: &[f32],
    dx: &mut [f32],
    accumulate: bool,
) {
    let width = weight.len();
    let rows = dy.chunks_exact(width).zip(x.chunks_exact(width));
    let rows = rows.zip(dx.chunks_exact_mut(width)).zip(roots);
    for (((dy, x), dx), &root) in rows {
        let mean = weighted_dot(dy, weight, x) / count(width);
        let factor = mean * root * root * root;
        let inputs = dy.iter().zip(x).zip(weight);
        let gradients = inputs.map(|((dy, x), w)| (-factor).mul_add(*x, root * (w * dy)));
        if accumulate {
            dx.iter_mut().zip(gradients).for_each(|(dx, d)| *dx += d);
        } else {
            dx.iter_mut().zip(gradients).for_each(|(dx, d)| *dx = d);
        }
    }
}

/// Sum of (w dy) x in the canonical order.
#[inline(always)]
fn weighted_dot(dy: &[f32], weight: &[f32], x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (dy, dy_rest) = dy.as_chunks::<16>();
    let (weight, weight_rest) = weight.as_chunks::<16>();
    let (x, x_rest) = x.as_chunks::<16>();
    for ((dy, w), x) in dy.iter().zip(weight).zip(x) {
        lanes = from_fn(|j| (w[j] * dy[j]).mul_add(x[j], lanes[j]));
    }
    if !x_rest.is_empty() {
        let (dy, w, x) = (filled(dy_rest), filled(weight_rest), filled(x_rest));
        lanes = from_fn(|j| (w[j] * dy[j]).mul_add(x[j], lanes[j]));
    }
    sum_lanes(lanes)
}

#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "widths are below 2^24")]
fn count(width: usize) -> f32 {
    width as f32
}
