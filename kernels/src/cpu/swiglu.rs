//! The gated activation over a run of elements.

use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::sigmoid;

isa_dispatch! {
    /// Writes silu(gate) * up.
    pub(crate) fn forward(gate: &[f32], up: &[f32], act: &mut [f32]) = forward_body;
}

#[inline(always)]
fn forward_body(gate: &[f32], up: &[f32], act: &mut [f32]) {
    for ((act, &gate), &up) in act.iter_mut().zip(gate).zip(up) {
        *act = gate * sigmoid(gate) * up;
    }
}

isa_dispatch! {
    /// Writes the gradients of gate and up.
    pub(crate) fn backward(
        d_act: &[f32],
        gate: &[f32],
        up: &[f32],
        d_gate: &mut [f32],
        d_up: &mut [f32],
    ) = backward_body;
}

#[inline(always)]
fn backward_body(d_act: &[f32], gate: &[f32], up: &[f32], d_gate: &mut [f32], d_up: &mut [f32]) {
    let inputs = d_act.iter().zip(gate).zip(up);
    for (((&d, &gate), &up), (d_gate, d_up)) in inputs.zip(d_gate.iter_mut().zip(d_up)) {
        let s = sigmoid(gate);
        *d_up = d * (gate * s);
        *d_gate = d * up * (s * gate.mul_add(1.0 - s, 1.0));
    }
}
