//! From a finished gradient to new values: finite check, clipping, the rule, per job.
//!
//! A step is settled before it is taken: what would write a number that is not finite changes nothing at all.
//!
//! AdamW (Loshchilov and Hutter 2019, algorithm 2), or SGD with momentum and decay in the gradient, as torch has it. The
//! global norm is summed piece by piece in a fixed order, so it does not depend on threads or stages.

use std::ops::Range;

use kernels::cpu::Cpu;
use kernels::ops::optimizer::{self, AdamW, Sgd, trial};
use serde::{Deserialize, Serialize};
use shared::job::{AdapterSpec, OptimizerKind, OptimizerSpec};

use super::adapter::Adapter;
use super::agreement::{self, Agreement, Broken, Report};
use crate::peft::layout::{Home, Piece, Rate};

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

/// A step that was not taken; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    /// The number that is not finite.
    pub what: String,
    /// Whether it is one that the step would have written: loss and gradient are finite with the values as they are.
    pub written: bool,
}

/// A step that all stages can take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    numbers: StepNumbers,
    factor: f32,
}

impl Settled {
    /// What the step does.
    #[must_use]
    pub fn numbers(&self) -> StepNumbers {
        self.numbers
    }
}

/// What this stage knows of the adapter's finished gradient.
#[must_use]
pub fn report(cpu: &Cpu, adapter: &Adapter) -> Report {
    // What every stage has can be finished only after the reports.
    let own = |piece: &&Piece| adapter.layout.is_whole() || piece.home != Home::Every;
    let squares = squares(cpu, adapter, own);
    Report {
        broken: first_broken(adapter, &squares),
        squares,
        shares: adapter.derived.shares.clone(),
    }
}

fn squares(cpu: &Cpu, adapter: &Adapter, which: impl Fn(&&Piece) -> bool) -> Vec<(usize, f64)> {
    let pieces: Vec<&Piece> = adapter.layout.pieces.iter().filter(which).collect();
    let ranges: Vec<Range<usize>> = pieces.iter().map(|piece| piece.range.clone()).collect();
    let sums = optimizer::sums_of_squares(cpu, &adapter.gradient.total, &ranges);
    pieces.iter().map(|piece| piece.number).zip(sums).collect()
}

/// A sum of squares in f64 is finite when its numbers are.
fn first_broken(adapter: &Adapter, squares: &[(usize, f64)]) -> Option<Broken> {
    let &(number, _) = squares.iter().find(|(_, sum)| !sum.is_finite())?;
    let mut pieces = adapter.layout.pieces.iter();
    let at = pieces.find(|piece| piece.number == number)?.range.start;
    Some(broken(adapter, at, "gradient"))
}

fn broken(adapter: &Adapter, index: usize, what: &str) -> Broken {
    let parameter = adapter.layout.parameter_at(index);
    let key = parameter.map_or("", |parameter| &parameter.key);
    Broken {
        piece: Some(adapter.layout.piece_at(index).number),
        what: format!("{what} of {key}"),
    }
}

/// Finds out what the step would do, and changes nothing but the parts of the gradient that need all stages.
///
/// # Errors
/// The first number, of this stage or in the agreement, that is not finite: a gradient, or a value or moment that the
/// step would write. Then no stage must take the step.
pub fn settle(
    cpu: &Cpu,
    adapter: &mut Adapter,
    state: &OptimizerState,
    rule: &Rule,
    learning_rate: f64,
    agreement: Agreement,
) -> Result<Settled, Broken> {
    let settled = agree(cpu, adapter, rule, learning_rate, agreement)?;
    match bad_value(cpu, adapter, state, rule, &settled) {
        Some(broken) => Err(broken),
        None => Ok(settled),
    }
}

/// The step by a gradient that is finite.
fn agree(
    cpu: &Cpu,
    adapter: &mut Adapter,
    rule: &Rule,
    learning_rate: f64,
    agreement: Agreement,
) -> Result<Settled, Broken> {
    let Agreement {
        squares: mut all,
        shares,
        broken: mut bad,
    } = agreement;
    if !adapter.layout.is_whole() {
        adapter.finish_gradient(&shares);
        let shared = squares(cpu, adapter, |piece| piece.home == Home::Every);
        bad = agreement::first(bad, first_broken(adapter, &shared));
        all.extend(shared);
    }
    if let Some(bad) = bad {
        return Err(bad);
    }
    let gradient_norm = all.values().sum::<f64>().sqrt();
    let factor = match rule.spec.max_grad_norm {
        // The factor of torch.nn.utils.clip_grad_norm_.
        Some(max) => (max / (gradient_norm + 1e-6)).min(1.0),
        None => 1.0,
    };
    Ok(Settled {
        numbers: StepNumbers {
            gradient_norm,
            learning_rate,
        },
        factor: factor as f32,
    })
}

/// Takes a step that was settled with this state and rule, on values and moments that have not changed since.
pub fn apply(
    cpu: &Cpu,
    adapter: &mut Adapter,
    state: &mut OptimizerState,
    rule: &Rule,
    settled: &Settled,
) -> StepNumbers {
    state.step += 1;
    for (range, rate) in rate_ranges(adapter) {
        let values = &mut adapter.values[range.clone()];
        let gradient = &adapter.gradient.total[range.clone()];
        let first = &mut state.first[range.clone()];
        match numbers(rule, rate, state.step, settled) {
            Numbers::AdamW(numbers) => {
                let second = &mut state.second[range];
                optimizer::adamw(cpu, values, gradient, first, second, &numbers);
            }
            Numbers::Sgd(numbers) => optimizer::sgd(cpu, values, gradient, first, &numbers),
        }
    }
    settled.numbers
}

/// Takes one step on a whole adapter from its finished gradient.
///
/// # Errors
/// The name of the parameter whose gradient, or whose new value, is not finite.
pub fn step(
    cpu: &Cpu,
    adapter: &mut Adapter,
    state: &mut OptimizerState,
    rule: &Rule,
    learning_rate: f64,
) -> Result<StepNumbers, NotTaken> {
    let agreement = Agreement::of([report(cpu, adapter)]);
    let not_taken = |broken: Broken, written| NotTaken {
        what: broken.what,
        written,
    };
    let settled = agree(cpu, adapter, rule, learning_rate, agreement)
        .map_err(|broken| not_taken(broken, false))?;
    match bad_value(cpu, adapter, state, rule, &settled) {
        Some(broken) => Err(not_taken(broken, true)),
        None => Ok(apply(cpu, adapter, state, rule, &settled)),
    }
}

fn bad_value(
    cpu: &Cpu,
    adapter: &Adapter,
    state: &OptimizerState,
    rule: &Rule,
    settled: &Settled,
) -> Option<Broken> {
    let index = first_bad_value(cpu, adapter, state, rule, settled)?;
    Some(broken(adapter, index, "new value"))
}

fn first_bad_value(
    cpu: &Cpu,
    adapter: &Adapter,
    state: &OptimizerState,
    rule: &Rule,
    settled: &Settled,
) -> Option<usize> {
    rate_ranges(adapter).into_iter().find_map(|(range, rate)| {
        let values = &adapter.values[range.clone()];
        let gradient = &adapter.gradient.total[range.clone()];
        let first = &state.first[range.clone()];
        let index = match numbers(rule, rate, state.step + 1, settled) {
            Numbers::AdamW(numbers) => {
                let second = &state.second[range.clone()];
                trial::adamw(cpu, values, gradient, first, second, &numbers)
            }
            Numbers::Sgd(numbers) => trial::sgd(cpu, values, gradient, first, &numbers),
        };
        Some(range.start + index?)
    })
}

/// Maximal runs of flat storage with one learning rate.
fn rate_ranges(adapter: &Adapter) -> Vec<(Range<usize>, Rate)> {
    let mut runs: Vec<(Range<usize>, Rate)> = Vec::new();
    for parameter in &adapter.layout.parameters {
        match runs.last_mut() {
            Some((run, rate)) if *rate == parameter.rate => run.end = parameter.range.end,
            _ => runs.push((parameter.range.clone(), parameter.rate)),
        }
    }
    runs
}

enum Numbers {
    AdamW(AdamW),
    Sgd(Sgd),
}

fn numbers(rule: &Rule, rate: Rate, step: u64, settled: &Settled) -> Numbers {
    let (spec, gradient_factor) = (&rule.spec, settled.factor);
    let learning_rate = match rate {
        Rate::Base => settled.numbers.learning_rate,
        Rate::Scaled => settled.numbers.learning_rate * rule.lr_ratio,
    };
    match spec.kind {
        OptimizerKind::AdamW => Numbers::AdamW(AdamW {
            learning_rate,
            beta1: spec.betas[0],
            beta2: spec.betas[1],
            epsilon: spec.epsilon,
            weight_decay: spec.weight_decay,
            step,
            gradient_factor,
        }),
        OptimizerKind::Sgd => Numbers::Sgd(Sgd {
            learning_rate,
            momentum: spec.momentum,
            weight_decay: spec.weight_decay,
            gradient_factor,
        }),
    }
}
