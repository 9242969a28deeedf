//! The gated activation of the feed-forward layer: act = silu(gate) * up, element by element.
//!
//! Backward: d_up = d_act * silu(gate); d_gate = d_act * up * s (1 + gate (1 - s)), s = sigmoid(gate).

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::isa_dispatch;
use crate::cpu::math::sigmoid;

const TASK: usize = 1 << 13;

/// act = silu(gate) * up; all `(rows, intermediate)`.
///
/// # Panics
/// When the lengths differ.
pub fn forward(cpu: &Cpu, gate: &[f32], up: &[f32], act: &mut [f32]) {
    assert!(gate.len() == up.len() && up.len() == act.len(), "gate, up and act differ in length");
    let len = act.len();
    let act = DisjointMut::new(act);
    cpu.for_each(len.div_ceil(TASK), |task| {
        let range = task * TASK..((task + 1) * TASK).min(len);
        let mut act = act.part(range.clone());
        forward_part(cpu.isa(), &gate[range.clone()], &up[range], &mut act);
    });
}

isa_dispatch! {
    fn forward_part(gate: &[f32], up: &[f32], act: &mut [f32]) = forward_body;
}

#[inline(always)]
fn forward_body(gate: &[f32], up: &[f32], act: &mut [f32]) {
    for ((act, &gate), &up) in act.iter_mut().zip(gate).zip(up) {
        *act = gate * sigmoid(gate) * up;
    }
}

/// Gradients of gate and up from that of act; all `(rows, intermediate)`, results overwritten.
///
/// # Panics
/// When the lengths differ.
pub fn backward(
    cpu: &Cpu,
    d_act: &[f32],
    gate: &[f32],
    up: &[f32],
    d_gate: &mut [f32],
    d_up: &mut [f32],
) {
    let len = d_act.len();
    assert!(gate.len() == len && up.len() == len, "gate, up and d_act differ in length");
    assert!(d_gate.len() == len && d_up.len() == len, "d_gate, d_up and d_act differ in length");
    let (d_gate, d_up) = (DisjointMut::new(d_gate), DisjointMut::new(d_up));
    cpu.for_each(len.div_ceil(TASK), |task| {
        let range = task * TASK..((task + 1) * TASK).min(len);
        let (mut d_gate, mut d_up) = (d_gate.part(range.clone()), d_up.part(range.clone()));
        let (gate, up) = (&gate[range.clone()], &up[range.clone()]);
        backward_part(cpu.isa(), &d_act[range], gate, up, &mut d_gate, &mut d_up);
    });
}

isa_dispatch! {
    fn backward_part(
        d_act: &[f32], gate: &[f32], up: &[f32], d_gate: &mut [f32], d_up: &mut [f32],
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cpu::Isa;

    fn silu(x: f64) -> f64 {
        x / (1.0 + (-x).exp())
    }

    #[test]
    fn gradients_are_the_differences() {
        let cpu = Cpu::new(2).unwrap();
        let n = 1000;
        let gate: Vec<f32> = (0..n).map(|i| (i as f32 - 500.0) * 0.017).collect();
        let up: Vec<f32> = (0..n).map(|i| ((i * 7 % 100) as f32 - 50.0) * 0.05).collect();
        let mut act = vec![0.0; n];
        forward(&cpu, &gate, &up, &mut act);
        let d = vec![1.5; n];
        let (mut d_gate, mut d_up) = (vec![0.0; n], vec![0.0; n]);
        backward(&cpu, &d, &gate, &up, &mut d_gate, &mut d_up);
        for i in 0..n {
            let (g, u, h) = (f64::from(gate[i]), f64::from(up[i]), 1e-5);
            assert!((f64::from(act[i]) - silu(g) * u).abs() < 1e-5);
            let want = 1.5 * u * (silu(g + h) - silu(g - h)) / (2.0 * h);
            assert!((f64::from(d_gate[i]) - want).abs() < 1e-5, "gate {g}, up {u}");
            assert!((f64::from(d_up[i]) - 1.5 * silu(g)).abs() < 1e-5);
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let gate: Vec<f32> = (0..20_011).map(|i| ((i * 31 % 997) as f32 - 500.0) * 0.05).collect();
        let run = |isa, threads| {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            let (mut act, mut g, mut u) = (gate.clone(), gate.clone(), gate.clone());
            forward(&cpu, &gate, &gate, &mut act);
            backward(&cpu, &act, &gate, &gate, &mut g, &mut u);
            [act, g, u].map(|v| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        let first = run(Isa::portable(), 1);
        for isa in Isa::available() {
            assert!(run(isa, 2) == first, "{isa:?}");
        }
    }
}
