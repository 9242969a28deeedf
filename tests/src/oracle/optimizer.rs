//! From gradients to new values: clipping, then AdamW or SGD with momentum, both with decoupled weight decay.
//!
//! - clipping: g *= min(1, max / (norm + 1e-6)), the norm over all parameters of the adapter;
//! - AdamW: p *= 1 - lr wd; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr m^ / (sqrt(v^) + eps), with
//!   m^ = m / (1 - b1^t), v^ = v / (1 - b2^t);
//! - SGD: p *= 1 - lr wd; m = momentum m + g; p -= lr m;
//! - LoRA+: B has `lr_ratio` times the learning rate.

use shared::job::{AdapterSpec, OptimizerKind, OptimizerSpec};

use super::tensor::{self, Tensors};

/// Moments of every parameter.
#[derive(Clone, Debug)]
pub struct Optimizer {
    spec: OptimizerSpec,
    lr_ratio: f64,
    first: Tensors,
    second: Tensors,
    step: i32,
}

impl Optimizer {
    /// The state before the first step.
    #[must_use]
    pub fn new(spec: &OptimizerSpec, adapter: &AdapterSpec, parameters: &Tensors) -> Self {
        let lr_ratio = match adapter {
            AdapterSpec::Lora(lora) => lora.lr_ratio,
            _ => 1.0,
        };
        Self {
            spec: spec.clone(),
            lr_ratio,
            first: tensor::zeros_like(parameters),
            second: tensor::zeros_like(parameters),
            step: 0,
        }
    }

    /// Takes a step; returns the norm of the gradient before clipping.
    ///
    /// # Panics
    /// When the gradient lacks a parameter.
    pub fn step(&mut self, parameters: &mut Tensors, gradient: &Tensors, rate: f64) -> f64 {
        self.step += 1;
        let norm = tensor::global_norm(gradient);
        let max = self.spec.max_grad_norm.unwrap_or(f64::INFINITY);
        let factor = (max / (norm + 1e-6)).min(1.0);
        for (key, parameter) in parameters {
            let rate = if key.ends_with("lora_B.weight") {
                rate * self.lr_ratio
            } else {
                rate
            };
            let d = &gradient[key].values;
            let first = self.first.get_mut(key).expect("a moment each");
            let second = self.second.get_mut(key).expect("a moment each");
            let moments = first.values.iter_mut().zip(&mut second.values);
            for ((p, &d), (m, v)) in parameter.values.iter_mut().zip(d).zip(moments) {
                let mut g = d * factor;
                match self.spec.kind {
                    OptimizerKind::AdamW => *p *= 1.0 - rate * self.spec.weight_decay,
                    OptimizerKind::Sgd => g += self.spec.weight_decay * *p,
                }
                *p -= rate * update(&self.spec, self.step, g, m, v);
            }
        }
        norm
    }
}

/// What the learning rate is multiplied with; moves the moments.
fn update(spec: &OptimizerSpec, step: i32, g: f64, first: &mut f64, second: &mut f64) -> f64 {
    match spec.kind {
        OptimizerKind::Sgd => {
            *first = spec.momentum * *first + g;
            *first
        }
        OptimizerKind::AdamW => {
            let [b1, b2] = spec.betas;
            *first = b1 * *first + (1.0 - b1) * g;
            *second = b2 * *second + (1.0 - b2) * g * g;
            let (m, v) = (
                *first / (1.0 - b1.powi(step)),
                *second / (1.0 - b2.powi(step)),
            );
            m / (v.sqrt() + spec.epsilon)
        }
    }
}
