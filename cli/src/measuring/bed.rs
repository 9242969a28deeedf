//! A few layers of a model as a stage of the engine, on which passes are timed operator by operator.
//!
//! Layers of the middle: without embedding and head, and with all of the backward pass. The last layer with the head is
//! a bed of its own. A pass is taken some times and the median by its whole time counts, after one that does not.

use std::sync::Arc;
use std::time::Duration;

use data::rows::TokenRow;
use gpu_actor::batch::{Batch, JobEntry};
use gpu_actor::model::Model;
use gpu_actor::peft::init;
use gpu_actor::peft::layout::Layout;
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::relay::Passed;
use gpu_actor::stage::step::Stage;
use gpu_actor::stage::timing::{Operator, Timings};
use kernels::cpu::Cpu;
use serde_json::Value;
use shared::job::AdapterSpec;

use crate::clock::{self, Stopwatch};
use crate::exit::{Exit, Failure, OrExit};

/// Layers of the middle.
const LAYERS: usize = 2;
/// Fewest layers of a model that has two in the middle.
const FEWEST: usize = 3;
/// A size is timed for at least so long.
const LEAST: Duration = Duration::from_millis(60);
/// And at most so often.
const MOST: usize = 15;
/// Seed of values.
const SEED: u64 = 7;

/// Time of one direction of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    whole: Duration,
    timings: Timings,
}

impl Way {
    /// Nanoseconds of an operator.
    pub(crate) fn of(&self, operator: Operator) -> u64 {
        nanos(self.timings.of(operator))
    }

    /// Nanoseconds of an adapter: what it adds and the sums of its gradients.
    pub(crate) fn adapters(&self) -> u64 {
        self.of(Operator::Adapters) + self.of(Operator::GradientSums)
    }

    /// Nanoseconds of all but products, attention, adapters and the head: norms, copies, buffers.
    pub(crate) fn rest(&self) -> u64 {
        let known = [
            Operator::FrozenProducts,
            Operator::Attention,
            Operator::Head,
        ];
        let known: u64 = known.map(|operator| self.of(operator)).iter().sum();
        nanos(self.whole).saturating_sub(known + self.adapters())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Time of a pass, forward and backward.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassTime {
    /// Forward.
    pub(crate) forward: Way,
    /// Backward.
    pub(crate) backward: Way,
}

/// A stage to time passes on.
pub(crate) struct Bed {
    stage: Stage,
    layers: u64,
    passes: usize,
    number: u64,
}

impl Bed {
    /// Layers of the middle.
    ///
    /// # Errors
    /// [`Exit::BadInput`] when the model has none.
    pub(crate) fn middle(model: &Model, cpu: &Cpu, passes: usize) -> Result<Self, Failure> {
        let all = model.shape.layers;
        if all < FEWEST {
            let message = format!(
                "a model of {all} block(s) has none between its first and its last: {FEWEST} are needed to measure"
            );
            return Err(Failure::new(Exit::BadInput, message));
        }
        let few = LAYERS.min(all - 2);
        let first = (all - few) / 2;
        Ok(Self::of(
            model,
            first.max(1)..first.max(1) + few,
            cpu,
            passes,
        ))
    }

    /// The last layer, with the head.
    pub(crate) fn end(model: &Model, cpu: &Cpu, passes: usize) -> Self {
        let all = model.shape.layers;
        Self::of(model, all - 1..all, cpu, passes)
    }

    fn of(model: &Model, span: std::ops::Range<usize>, cpu: &Cpu, passes: usize) -> Self {
        let layers = span.len() as u64;
        let mut stage = Stage::new(Arc::new(model.slice(span)), cpu.clone());
        stage.measure(clock::since_first_asked);
        Self {
            stage,
            layers,
            passes,
            number: 0,
        }
    }

    /// Layers that a pass goes through.
    pub(crate) fn layers(&self) -> u64 {
        self.layers
    }

    /// The weights held, for products timed by themselves.
    pub(crate) fn model(&self) -> &Model {
        self.stage.model()
    }

    /// Puts an adapter on the layers; returns its slot.
    ///
    /// # Errors
    /// [`Exit::Internal`] when it is none that a job may ask for.
    pub(crate) fn attach(&mut self, spec: Value) -> Result<usize, Failure> {
        let spec: AdapterSpec = serde_json::from_value(spec).or_exit(Exit::Internal)?;
        let model = Arc::clone(self.stage.model());
        let layout = Layout::new(&spec, &model.shape, SEED);
        let whole = init::values(&layout, &model, self.stage.cpu(), SEED, &[]);
        let part = layout.slice(model.span());
        let values = part.cut(&whole);
        Ok(self
            .stage
            .attach(Adapter::new(Arc::new(part), values, SEED)))
    }

    /// Takes it off again.
    pub(crate) fn detach(&mut self, slot: usize) {
        self.stage.detach(slot);
    }

    /// Median time of a pass of so many rows in sequences of a length; `counted` of the rows count in the loss.
    ///
    /// # Errors
    /// [`Exit::Internal`] when the stage gives something else than it should.
    pub(crate) fn time(
        &mut self,
        slot: usize,
        rows: usize,
        length: usize,
        counted: usize,
    ) -> Result<PassTime, Failure> {
        let batch = Arc::new(self.batch(slot, rows, length, counted));
        self.pass(&batch)?;
        let clock = Stopwatch::start();
        let mut times = Vec::new();
        while times.len() < self.passes || (clock.elapsed() < LEAST && times.len() < MOST) {
            times.push(self.pass(&batch)?);
        }
        times.sort_by_key(|time| time.forward.whole + time.backward.whole);
        Ok(times[(times.len() - 1) / 2])
    }

    fn batch(&self, slot: usize, rows: usize, length: usize, counted: usize) -> Batch {
        let vocabulary = self.stage.model().shape.vocab as u32;
        let mut left = counted;
        let mut sequences = Vec::new();
        let mut at = 0;
        while at < rows {
            let length = length.min(rows - at);
            let ids: Vec<u32> = (0..length as u32)
                .map(|i| (i * 7 + 3) % vocabulary)
                .collect();
            // The first token of a sequence is predicted by nothing.
            let labels = ids.iter().enumerate().map(|(index, id)| {
                if index > 0 && left > 0 {
                    left -= 1;
                    *id as i32
                } else {
                    data::mask::NOT_TRAINED
                }
            });
            let labels = labels.collect();
            sequences.push(TokenRow::new(ids, labels));
            at += length;
        }
        let entry = JobEntry {
            slot,
            prompt_tokens: 0,
            prefix_tokens: 0,
            first_block: 0,
            first_sequence: 0,
            last: true,
            step: 0,
            trained_tokens: counted.max(1) as u64,
        };
        let mut batch = Batch::default();
        batch.push(entry, &sequences.iter().collect::<Vec<_>>());
        batch
    }

    fn pass(&mut self, batch: &Arc<Batch>) -> Result<PassTime, Failure> {
        let size = batch.rows() * self.stage.model().shape.hidden;
        let input = numbers(size, 0.01);
        self.number += 1;
        self.stage.take_timings();
        let clock = Stopwatch::start();
        let passed = self
            .stage
            .forward(self.number, Arc::clone(batch), Some(input));
        let forward = Way {
            whole: clock.elapsed(),
            timings: self.stage.take_timings(),
        };
        let gradient = match passed {
            Passed::Hidden(_) => Some(numbers(size, 1e-4)),
            Passed::Outcomes(outcomes) => {
                if let Some(bad) = outcomes.iter().find_map(|outcome| outcome.bad.as_ref()) {
                    let message = format!("a number of the measured pass is not finite: {bad:?}");
                    return Err(Failure::new(Exit::Internal, message));
                }
                None
            }
        };
        let clock = Stopwatch::start();
        self.stage.backward(self.number, gradient);
        let backward = Way {
            whole: clock.elapsed(),
            timings: self.stage.take_timings(),
        };
        self.stage.forget();
        Ok(PassTime { forward, backward })
    }
}

/// Any numbers do, as long as none is subnormal.
pub(super) fn numbers(count: usize, scale: f32) -> Vec<f32> {
    (0..count)
        .map(|i| ((i % 17) as f32 - 8.5) * scale)
        .collect()
}
