//! The gated activation of the feed-forward layer: act = silu(gate) * up, element by element.
//!
//! Backward: d_up = d_act * silu(gate); d_gate = d_act * up * s (1 + gate (1 - s)), s = sigmoid(gate).

use crate::cpu::disjoint::DisjointMut;
use crate::cpu::{Cpu, swiglu as fast};

/// Elements a task works on.
const TASK: usize = 1 << 13;

/// Computes act = silu(gate) * up; all `(rows, intermediate)`.
///
/// # Panics
/// When the lengths differ.
pub fn forward(cpu: &Cpu, gate: &[f32], up: &[f32], act: &mut [f32]) {
    let len = act.len();
    assert!(
        gate.len() == len && up.len() == len,
        "gate, up and act differ in length"
    );
    let act = DisjointMut::new(act);
    cpu.for_each(len.div_ceil(TASK), |task| {
        let range = task * TASK..((task + 1) * TASK).min(len);
        let mut act = act.part(range.clone());
        fast::forward(cpu.isa(), &gate[range.clone()], &up[range], &mut act);
    });
}

/// Computes the gradients of gate and up from that of act; all `(rows, intermediate)`, results overwritten.
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
    for other in [gate.len(), up.len(), d_gate.len(), d_up.len()] {
        assert_eq!(other, len, "gate, up and gradients differ in length");
    }
    let (d_gate, d_up) = (DisjointMut::new(d_gate), DisjointMut::new(d_up));
    cpu.for_each(len.div_ceil(TASK), |task| {
        let range = task * TASK..((task + 1) * TASK).min(len);
        let (mut d_gate, mut d_up) = (d_gate.part(range.clone()), d_up.part(range.clone()));
        let (gate, up) = (&gate[range.clone()], &up[range.clone()]);
        fast::backward(cpu.isa(), &d_act[range], gate, up, &mut d_gate, &mut d_up);
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cpu::Isa;
    use crate::reference::swiglu as reference;
    use crate::testing::{Operation, assert_close, bits, check_gradient, numbers, wide};

    fn inputs(len: usize) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let gate = numbers(len, 1).iter().map(|x| x * 9.0).collect();
        (gate, numbers(len, 2), numbers(len, 3))
    }

    #[test]
    fn agrees_with_the_reference() {
        let cpu = Cpu::new(2).unwrap();
        for len in [1, 7, 100, 20_011] {
            let (gate, up, d) = inputs(len);
            let (mut act, mut d_gate, mut d_up) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
            forward(&cpu, &gate, &up, &mut act);
            backward(&cpu, &d, &gate, &up, &mut d_gate, &mut d_up);
            let (gate, up, d) = (wide(&gate), wide(&up), wide(&d));
            let want = reference::forward(&gate, &up);
            assert_close(Operation::SwiGlu, "act", &act, &want);
            let (gate_want, up_want) = reference::backward(&d, &gate, &up);
            assert_close(Operation::SwiGlu, "d_gate", &d_gate, &gate_want);
            assert_close(Operation::SwiGlu, "d_up", &d_up, &up_want);
        }
    }

    #[test]
    fn the_reference_agrees_with_differences() {
        let (gate, up, d) = inputs(48);
        let (gate, up, d) = (wide(&gate), wide(&up), wide(&d));
        let value = |gate: &[f64], up: &[f64]| -> f64 {
            let act = reference::forward(gate, up);
            act.iter().zip(&d).map(|(act, d)| act * d).sum()
        };
        let (d_gate, d_up) = reference::backward(&d, &gate, &up);
        check_gradient("gate", &gate, &d_gate, |gate| value(gate, &up));
        check_gradient("up", &up, &d_up, |up| value(&gate, up));
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let (gate, up, d) = inputs(20_011);
        let run = |isa, threads| {
            let cpu = Cpu::with_isa(threads, isa).unwrap();
            let (mut act, mut g, mut u) = (gate.clone(), gate.clone(), gate.clone());
            forward(&cpu, &gate, &up, &mut act);
            backward(&cpu, &d, &gate, &up, &mut g, &mut u);
            [act, g, u].map(|v| bits(&v))
        };
        let first = run(Isa::portable(), 1);
        for isa in Isa::available() {
            assert!(run(isa, 2) == first, "{isa}");
        }
    }
}
