//! Optimizer rules, by the formula.

use crate::ops::optimizer::{AdamW, Sgd};

/// Parameters and moments of AdamW.
#[derive(Clone, Debug)]
pub struct Adam {
    /// The parameters.
    pub values: Vec<f64>,
    /// First moments.
    pub first: Vec<f64>,
    /// Second moments.
    pub second: Vec<f64>,
}

impl Adam {
    /// Starts at `values` with moments of zero.
    pub fn new(values: &[f64]) -> Self {
        Self {
            values: values.to_vec(),
            first: vec![0.0; values.len()],
            second: vec![0.0; values.len()],
        }
    }

    /// Takes one step.
    pub fn step(&mut self, gradient: &[f64], rule: &AdamW) {
        #[expect(clippy::cast_precision_loss, reason = "few steps")]
        let step = rule.step as f64;
        for (i, gradient) in gradient.iter().enumerate() {
            let g = f64::from(rule.gradient_factor) * gradient;
            self.values[i] *= 1.0 - rule.learning_rate * rule.weight_decay;
            self.first[i] = rule.beta1 * self.first[i] + (1.0 - rule.beta1) * g;
            self.second[i] = rule.beta2 * self.second[i] + (1.0 - rule.beta2) * g * g;
            let first = self.first[i] / (1.0 - rule.beta1.powf(step));
            let second = self.second[i] / (1.0 - rule.beta2.powf(step));
            self.values[i] -= rule.learning_rate * first / (second.sqrt() + rule.epsilon);
        }
    }
}

/// Takes one step of gradient descent with momentum.
pub fn sgd(values: &mut [f64], gradient: &[f64], first: &mut [f64], rule: &Sgd) {
    for ((value, gradient), first) in values.iter_mut().zip(gradient).zip(first) {
        let gradient = f64::from(rule.gradient_factor) * gradient + rule.weight_decay * *value;
        *first = rule.momentum * *first + gradient;
        *value -= rule.learning_rate * *first;
    }
}
