//! Optimizer rules on flat parameters, element by element.
//!
//! AdamW, with decoupled weight decay `w` and `g = gradient_factor * gradient` in step `n` from 1:
//!
//! ```text
//! m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//! p = p (1 - lr w) - lr / (1 - beta1^n) * m / (sqrt(v) / sqrt(1 - beta2^n) + epsilon)
//! ```
//!
//! SGD, as `torch.optim.SGD` has it: `m = momentum m + g + w p`, `p = p - lr m`.
//!
//! The factors are computed in `f64` and rounded once; the state is `f32`. Values that are not finite are the caller's
//! to refuse: they pass through. [`trial`] tells beforehand.

use std::ops::Range;

use crate::cpu::Cpu;
use crate::cpu::disjoint::DisjointMut;
use crate::cpu::isa::isa_dispatch;
use crate::ops::block_sum::{self, Nodes};

pub mod trial;

/// Elements of a task.
const TASK: usize = 1 << 14;

/// Elements of a run of a sum of squares.
const RUN: usize = 4096;

/// Numbers of the AdamW rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, per learning rate.
    pub weight_decay: f64,
    /// Number of this step, from 1.
    pub step: u64,
    /// Factor of the gradient: clipping.
    pub gradient_factor: f32,
}

/// Numbers of the rule of stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the momentum; 0 for none.
    pub momentum: f64,
    /// Factor of the values that is added to the gradient, as `torch.optim.SGD` does: momentum carries it on.
    pub weight_decay: f64,
    /// Factor of the gradient: clipping.
    pub gradient_factor: f32,
}

/// Takes one step of AdamW on `values`, with the moments `first` and `second`, zeros before step 1.
///
/// # Panics
/// When the lengths differ or the step is 0.
pub fn adamw(
    cpu: &Cpu,
    values: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    rule: &AdamW,
) {
    assert!(rule.step > 0, "steps count from 1");
    let lengths = [gradient.len(), first.len(), second.len()];
    assert_eq!(lengths, [values.len(); 3], "gradient and moments");
    let factors = AdamFactors::new(rule);
    let len = values.len();
    let (values, first, second) = (
        DisjointMut::new(values),
        DisjointMut::new(first),
        DisjointMut::new(second),
    );
    cpu.for_each(len.div_ceil(TASK), |task| {
        let range = task * TASK..len.min((task + 1) * TASK);
        adamw_part(
            cpu.isa(),
            &mut values.part(range.clone()),
            &gradient[range.clone()],
            &mut first.part(range.clone()),
            &mut second.part(range),
            factors,
        );
    });
}

/// Takes one step of gradient descent on `values`, with the momentum `first`, zeros before the first step.
///
/// # Panics
/// When the lengths differ.
pub fn sgd(cpu: &Cpu, values: &mut [f32], gradient: &[f32], first: &mut [f32], rule: &Sgd) {
    let lengths = [gradient.len(), first.len()];
    assert_eq!(lengths, [values.len(); 2], "gradient and momentum");
    let factors = SgdFactors::new(rule);
    let len = values.len();
    let (values, first) = (DisjointMut::new(values), DisjointMut::new(first));
    cpu.for_each(len.div_ceil(TASK), |task| {
        let range = task * TASK..len.min((task + 1) * TASK);
        sgd_part(
            cpu.isa(),
            &mut values.part(range.clone()),
            &gradient[range.clone()],
            &mut first.part(range),
            factors,
        );
    });
}

/// Returns the sum of squares in `f64`, in a fixed order: runs of 4096 in 16 lanes, then the tree of
/// [`block_sum`].
pub fn sum_of_squares(cpu: &Cpu, values: &[f32]) -> f64 {
    let mut sums = vec![0.0; values.len().div_ceil(RUN)];
    let parts = DisjointMut::new(&mut sums);
    let task = TASK / RUN;
    cpu.for_each(values.len().div_ceil(TASK), |index| {
        let values = &values[index * TASK..values.len().min((index + 1) * TASK)];
        let runs = values.len().div_ceil(RUN);
        let mut parts = parts.part(index * task..index * task + runs);
        for (sum, run) in parts.iter_mut().zip(values.chunks(RUN)) {
            *sum = squares(cpu.isa(), run);
        }
    });
    drop(parts);
    block_sum::scalars(0, &sums, &mut Nodes::new(), true).expect("the step is finished")
}

/// Returns [`sum_of_squares`] of each of these ranges of the values.
///
/// # Panics
/// When a range leaves the values.
pub fn sums_of_squares(cpu: &Cpu, values: &[f32], ranges: &[Range<usize>]) -> Vec<f64> {
    let mut sums = vec![0.0; ranges.len()];
    let parts = DisjointMut::new(&mut sums);
    cpu.for_each(ranges.len(), |index| {
        let sum = sum_of_squares(cpu, &values[ranges[index].clone()]);
        parts.part(index..index + 1)[0] = sum;
    });
    drop(parts);
    sums
}

/// What the AdamW rule multiplies with.
#[derive(Clone, Copy)]
struct AdamFactors {
    decay: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    rate: f32,
    root: f32,
    epsilon: f32,
    gradient: f32,
}

impl AdamFactors {
    fn new(rule: &AdamW) -> Self {
        let corrected = |beta: f64| 1.0 - power(beta, rule.step);
        Self {
            decay: narrow(1.0 - rule.learning_rate * rule.weight_decay),
            beta1: narrow(rule.beta1),
            rest1: narrow(1.0 - rule.beta1),
            beta2: narrow(rule.beta2),
            rest2: narrow(1.0 - rule.beta2),
            rate: narrow(rule.learning_rate / corrected(rule.beta1)),
            root: narrow(1.0 / corrected(rule.beta2).sqrt()),
            epsilon: narrow(rule.epsilon),
            gradient: rule.gradient_factor,
        }
    }

    /// The new value and moments.
    #[inline(always)]
    fn next(self, p: f32, g: f32, m: f32, v: f32) -> (f32, f32, f32) {
        let g = self.gradient * g;
        let m = self.beta1.mul_add(m, self.rest1 * g);
        let v = self.beta2.mul_add(v, self.rest2 * g * g);
        let divisor = v.sqrt().mul_add(self.root, self.epsilon);
        ((p * self.decay) - self.rate * m / divisor, m, v)
    }
}

#[derive(Clone, Copy)]
struct SgdFactors {
    decay: f32,
    momentum: f32,
    rate: f32,
    gradient: f32,
}

impl SgdFactors {
    fn new(rule: &Sgd) -> Self {
        Self {
            decay: narrow(rule.weight_decay),
            momentum: narrow(rule.momentum),
            rate: narrow(rule.learning_rate),
            gradient: rule.gradient_factor,
        }
    }

    /// The new value and momentum.
    #[inline(always)]
    fn next(self, p: f32, g: f32, m: f32) -> (f32, f32) {
        let g = self.decay.mul_add(p, self.gradient * g);
        let m = self.momentum.mul_add(m, g);
        (p - self.rate * m, m)
    }
}

/// Raises to a power by squaring: the same bits on every machine.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds a factor to single precision"
)]
fn narrow(factor: f64) -> f32 {
    factor as f32
}

isa_dispatch! {
    fn adamw_part(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], by: AdamFactors) = adamw_body;
}

#[inline(always)]
fn adamw_body(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], by: AdamFactors) {
    for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
        (*p, *m, *v) = by.next(*p, *g, *m, *v);
    }
}

isa_dispatch! {
    fn sgd_part(p: &mut [f32], g: &[f32], m: &mut [f32], by: SgdFactors) = sgd_body;
}

#[inline(always)]
fn sgd_body(p: &mut [f32], g: &[f32], m: &mut [f32], by: SgdFactors) {
    for ((p, g), m) in p.iter_mut().zip(g).zip(m) {
        (*p, *m) = by.next(*p, *g, *m);
    }
}

isa_dispatch! {
    fn squares(values: &[f32]) -> f64 = squares_body;
}

#[inline(always)]
fn squares_body(values: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 16];
    let (whole, rest) = values.as_chunks::<16>();
    for values in whole {
        for (lane, value) in lanes.iter_mut().zip(values) {
            let value = f64::from(*value);
            *lane = value.mul_add(value, *lane);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        let value = f64::from(*value);
        *lane = value.mul_add(value, *lane);
    }
    for half in [8, 4, 2, 1] {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
    }
    lanes[0]
}

#[cfg(test)]
mod tests;
