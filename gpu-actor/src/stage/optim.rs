//! From a finished gradient to new values: finite check, clipping, the rule, per job.
//!
//! AdamW (Loshchilov and Hutter 2019, algorithm 2), or SGD with momentum and decay in the gradient, as torch has it. The
//! global norm is summed in a fixed order, so it does not depend on threads.

use kernels::cpu::Cpu;
use kernels::ops::optimizer::{self, AdamW, Sgd};
use serde::{Deserialize, Serialize};
use shared::job::{AdapterSpec, OptimizerKind, OptimizerSpec};

use super::adapter::Adapter;
use crate::peft::layout::Rate;

/// Moments of every parameter and the number of steps taken.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerState {
    /// First moment, or momentum.
    pub first: Vec<f32>,
    /// Second moment; empty for SGD.
    pub second: Vec<f32>,
    /// Steps taken.
    pub step: u64,
}

impl OptimizerState {
    /// The state before the first step.
    #[must_use]
    pub fn new(spec: &OptimizerSpec, len: usize) -> Self {
        let second = if spec.kind == OptimizerKind::AdamW {
            len
        } else {
            0
        };
        Self {
            first: vec![0.0; len],
            second: vec![0.0; second],
            step: 0,
        }
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        ((self.first.len() + self.second.len()) * size_of::<f32>()) as u64
    }
}

/// The rule with its numbers, resolved for one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The job's optimizer.
    pub spec: OptimizerSpec,
    /// Learning rate of B over that of A (LoRA+).
    pub lr_ratio: f64,
}

impl Rule {
    /// Reads the rule from a job's specification.
    #[must_use]
    pub fn new(spec: &OptimizerSpec, adapter: &AdapterSpec) -> Self {
        let lr_ratio = match adapter {
            AdapterSpec::Lora(lora) => lora.lr_ratio,
            _ => 1.0,
        };
        Self {
            spec: spec.clone(),
            lr_ratio,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepNumbers {
    /// Global norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Learning rate used.
    pub learning_rate: f64,
}

/// Takes one step on the adapter's values from its finished gradient.
///
/// # Errors
/// The name of the parameter whose gradient, or whose new value, is not finite; then nothing was changed in the
/// first case, and the caller goes back to the last good state in the second.
pub fn step(
    cpu: &Cpu,
    adapter: &mut Adapter,
    state: &mut OptimizerState,
    rule: &Rule,
    learning_rate: f64,
) -> Result<StepNumbers, String> {
    let name = |adapter: &Adapter, index| {
        adapter
            .layout
            .parameter_at(index)
            .map_or_else(String::new, |p| p.key.clone())
    };
    if let Some(index) = adapter.first_bad_gradient() {
        return Err(format!("gradient of {}", name(adapter, index)));
    }
    let gradient_norm = optimizer::sum_of_squares(cpu, &adapter.gradient.total).sqrt();
    let factor = match rule.spec.max_grad_norm {
        // The factor of torch.nn.utils.clip_grad_norm_.
        Some(max) => (max / (gradient_norm + 1e-6)).min(1.0),
        None => 1.0,
    };
    state.step += 1;
    for (range, rate) in rate_ranges(adapter) {
        let lr = match rate {
            Rate::Base => learning_rate,
            Rate::Scaled => learning_rate * rule.lr_ratio,
        };
        apply(cpu, adapter, state, rule, &range, lr, factor as f32);
    }
    match kernels::ops::elementwise::first_non_finite(&adapter.values) {
        Some(index) => Err(format!("new value of {}", name(adapter, index))),
        None => Ok(StepNumbers {
            gradient_norm,
            learning_rate,
        }),
    }
}

/// Maximal runs of flat storage with one learning rate.
fn rate_ranges(adapter: &Adapter) -> Vec<(std::ops::Range<usize>, Rate)> {
    let mut runs: Vec<(std::ops::Range<usize>, Rate)> = Vec::new();
    for parameter in &adapter.layout.parameters {
        match runs.last_mut() {
            Some((run, rate)) if *rate == parameter.rate => run.end = parameter.range.end,
            _ => runs.push((parameter.range.clone(), parameter.rate)),
        }
    }
    runs
}

fn apply(
    cpu: &Cpu,
    adapter: &mut Adapter,
    state: &mut OptimizerState,
    rule: &Rule,
    range: &std::ops::Range<usize>,
    learning_rate: f64,
    gradient_factor: f32,
) {
    let spec = &rule.spec;
    let values = &mut adapter.values[range.clone()];
    let gradient = &adapter.gradient.total[range.clone()];
    let first = &mut state.first[range.clone()];
    match spec.kind {
        OptimizerKind::AdamW => {
            let numbers = AdamW {
                learning_rate,
                beta1: spec.betas[0],
                beta2: spec.betas[1],
                epsilon: spec.epsilon,
                weight_decay: spec.weight_decay,
                step: state.step,
                gradient_factor,
            };
            let second = &mut state.second[range.clone()];
            optimizer::adamw(cpu, values, gradient, first, second, &numbers);
        }
        OptimizerKind::Sgd => {
            let numbers = Sgd {
                learning_rate,
                momentum: spec.momentum,
                weight_decay: spec.weight_decay,
                gradient_factor,
            };
            optimizer::sgd(cpu, values, gradient, first, &numbers);
        }
    }
}
