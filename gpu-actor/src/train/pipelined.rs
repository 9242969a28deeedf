//! Jobs on several stages of one process, each on its own thread: the same bits as on one stage.
//!
//! A job's state is whole outside, in the order of its whole layout; each stage holds its slice. Stages share the
//! compute threads: each runs its passes on them, so there are never more at work than were asked for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kernels::cpu::Cpu;

use super::meeting::Meeting;
use super::pack::{self, Request};
use super::pipeline_error::PipelineError;
use super::station::{Found, Goal, Shared, Station, Tenant};
use super::tally::Tally;
use crate::batch::Batch;
use crate::link::bell::Bell;
use crate::link::local::{self, LocalLink};
use crate::model::Model;
use crate::peft::layout::Layout;
use crate::pipeline::{MicroBatch, Pipeline, Place, Share, Slot};
use crate::stage::adapter::Adapter;
use crate::stage::optim::{OptimizerState, Rule, StepNumbers};
use crate::stage::step::Stage;
use crate::stage::tape;

/// One optimizer step of one job, to be taken.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// Its sequences, slot and number.
    pub request: Request<'a>,
    /// Learning rate.
    pub learning_rate: f64,
}

/// One optimizer step of one job, taken or not.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// The job.
    pub slot: Slot,
    /// Number of the step.
    pub step: u64,
    /// Loss before the step.
    pub loss: f64,
    /// Share of labelled tokens predicted right, before the step.
    pub accuracy: f64,
    /// What the step did, or why the job was set aside on all stages in the state before.
    pub numbers: Result<StepNumbers, String>,
}

#[derive(Debug)]
struct Part {
    stage: Stage,
    tenants: BTreeMap<Slot, Tenant>,
}

/// Jobs on several stages.
#[derive(Debug)]
pub struct Pipelined {
    parts: Vec<Part>,
    layouts: BTreeMap<Slot, Arc<Layout>>,
    cpu: Cpu,
    /// Most bytes of activations on a stage.
    pub budget: u64,
    /// Chunks that a stage may be ahead of its neighbour.
    pub credits: usize,
    /// How long nothing may move before a stage says what it waits for.
    pub patience: Duration,
    epoch: u64,
    lost: bool,
}

/// Cuts so many layers into stages as even as can be; the first ones get one more.
///
/// # Errors
/// [`PipelineError::Stages`] when there would be a stage without a layer, or no stage.
pub fn spans(layers: usize, stages: usize) -> Result<Vec<Range<usize>>, PipelineError> {
    if stages == 0 || stages > layers {
        return Err(PipelineError::Stages { stages, layers });
    }
    let cut = |stage: usize| (stage * layers).div_ceil(stages);
    Ok((0..stages)
        .map(|stage| cut(stage)..cut(stage + 1))
        .collect())
}

impl Pipelined {
    /// So many stages of a whole model, without jobs.
    ///
    /// # Errors
    /// [`PipelineError::Stages`] when the model has fewer layers, or no stage is asked for.
    pub fn new(model: &Model, cpu: Cpu, stages: usize) -> Result<Self, PipelineError> {
        let part = |span| Part {
            stage: Stage::new(Arc::new(model.slice(span)), cpu.clone()),
            tenants: BTreeMap::new(),
        };
        let parts = spans(model.layers.len(), stages)?
            .into_iter()
            .map(part)
            .collect();
        Ok(Self {
            parts,
            layouts: BTreeMap::new(),
            cpu,
            budget: u64::MAX,
            credits: 2,
            patience: Duration::from_secs(60),
            epoch: 0,
            lost: false,
        })
    }

    /// Adds a job with its whole values and optimizer state; returns its slot, the same on all stages.
    ///
    /// # Panics
    /// When the values or moments are of another layout.
    pub fn admit(
        &mut self,
        layout: &Arc<Layout>,
        seed: u64,
        rule: &Rule,
        values: &[f32],
        optimizer: &OptimizerState,
    ) -> Slot {
        let mut slots = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            let slice = Arc::new(layout.slice(part.stage.model().span()));
            let moments = OptimizerState {
                first: cut(&slice, &optimizer.first),
                second: cut(&slice, &optimizer.second),
                step: optimizer.step,
            };
            let adapter = Adapter::new(Arc::clone(&slice), slice.cut(values), seed);
            let slot = part.stage.attach(adapter);
            let tenant = Tenant {
                rule: rule.clone(),
                optimizer: moments,
                aside: false,
            };
            part.tenants.insert(slot, tenant);
            slots.push(slot);
        }
        let slot = slots[0];
        debug_assert!(slots.iter().all(|&other| other == slot), "slots differ");
        self.layouts.insert(slot, Arc::clone(layout));
        slot
    }

    /// A copy of a job's whole values and optimizer state; none when a failed run may have left them torn.
    #[must_use]
    pub fn state(&self, slot: Slot) -> Option<(Vec<f32>, OptimizerState)> {
        let layout = self.layouts.get(&slot).filter(|_| !self.lost)?;
        let mut values = vec![0.0; layout.len];
        let mut state = self.parts[0].tenants.get(&slot)?.optimizer.clone();
        state.first = vec![0.0; layout.len];
        let both = !state.second.is_empty();
        state.second = vec![0.0; if both { layout.len } else { 0 }];
        for part in &self.parts {
            let adapter = part.stage.adapter(slot)?;
            let own = &part.tenants.get(&slot)?.optimizer;
            adapter.layout.join(&adapter.values, &mut values);
            adapter.layout.join(&own.first, &mut state.first);
            if both {
                adapter.layout.join(&own.second, &mut state.second);
            }
        }
        Some((values, state))
    }

    /// Takes a job off all stages.
    pub fn remove(&mut self, slot: Slot) {
        self.layouts.remove(&slot);
        for part in &mut self.parts {
            part.tenants.remove(&slot);
            part.stage.detach(slot);
        }
    }

    /// Takes the steps of some rounds, in passes of at most `tokens_per_pass` rows: a round's jobs share passes, and
    /// rounds follow each other without a gap. A job's steps must be numbered one after another.
    ///
    /// # Errors
    /// [`PipelineError`] when a stage cannot go on; the pipeline is then of no more use.
    pub fn run(
        &mut self,
        rounds: &[Vec<Step<'_>>],
        tokens_per_pass: usize,
    ) -> Result<Vec<StepOutcome>, PipelineError> {
        if self.lost {
            return Err(PipelineError::Lost);
        }
        let steps = rounds.iter().flatten();
        let mut tallies = BTreeMap::new();
        let mut goals = BTreeMap::new();
        for step in steps {
            let matter = (step.request.slot, step.request.step);
            let learning_rate = step.learning_rate;
            goals.insert(matter, Goal { learning_rate });
            tallies.insert(matter, Tally::of(&step.request));
        }
        let mut batches = Vec::new();
        for round in rounds {
            let requests: Vec<Request<'_>> = round.iter().map(|s| s.request.clone()).collect();
            let passes = pack::passes(&requests, tokens_per_pass);
            batches.extend(passes.into_iter().map(Arc::new));
        }
        let bells = self.parts.iter().map(|_| Bell::default()).collect();
        self.epoch += 1;
        let shared = Shared {
            epoch: self.epoch,
            batches: &batches,
            goals: &goals,
            meeting: Mutex::new(Meeting::new(self.parts.len())),
            bells,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            turn: (self.cpu.threads() == 1).then(|| Mutex::new(())),
            patience: self.patience,
        };
        match self.work(&shared, tallies) {
            Ok(found) => Ok(outcomes(found)),
            Err(error) => {
                self.lost = true;
                Err(error)
            }
        }
    }

    /// Runs all stations to their end; returns what the last one found.
    fn work(
        &mut self,
        shared: &Shared<'_>,
        tallies: BTreeMap<(Slot, u64), Tally>,
    ) -> Result<Found, PipelineError> {
        let (stages, budget) = (self.parts.len(), self.budget);
        let mut links = links(&shared.bells, self.credits).into_iter();
        let mut tallies = Some(tallies);
        let results: Vec<Result<Found, PipelineError>> = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(stages);
            for (number, part) in self.parts.iter_mut().enumerate() {
                let place = Place {
                    stage: number,
                    stages,
                };
                let plan = micro_batches(shared.batches, &part.stage);
                let (stage, tenants) = (&mut part.stage, &mut part.tenants);
                let pipeline = Pipeline::new(place, budget);
                let links = links.next().expect("links for each stage");
                let station = Station::new(number, stage, tenants, shared, pipeline, links);
                let own = if place.is_last() {
                    tallies.take()
                } else {
                    None
                };
                threads.push(scope.spawn(move || station.run(&plan, own.unwrap_or_default())));
            }
            let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        // A stage that left because of another says less than that other.
        let secondary = |error: &PipelineError| matches!(error, PipelineError::Left { .. });
        let (mut last, mut failed) = (None, None);
        for result in results {
            match result {
                Ok(found) => last = Some(found),
                Err(error) if failed.as_ref().is_none_or(secondary) => failed = Some(error),
                Err(_) => {}
            }
        }
        match (failed, last) {
            (None, Some(found)) => Ok(found),
            (failed, _) => Err(failed.unwrap_or(PipelineError::Lost)),
        }
    }
}

fn cut(slice: &Layout, moments: &[f32]) -> Vec<f32> {
    if moments.is_empty() {
        return Vec::new();
    }
    slice.cut(moments)
}

/// For each stage the ends of its links to the one before and the one behind.
fn links(bells: &[Bell], credits: usize) -> Vec<[Option<LocalLink>; 2]> {
    let mut ends: Vec<[Option<LocalLink>; 2]> = bells.iter().map(|_| [None, None]).collect();
    for (stage, pair) in bells.windows(2).enumerate() {
        let [before, behind] = local::pair(credits, [&pair[0], &pair[1]]);
        ends[stage][1] = Some(before);
        ends[stage + 1][0] = Some(behind);
    }
    ends
}

fn micro_batches(batches: &[Arc<Batch>], stage: &Stage) -> Vec<MicroBatch> {
    let model = stage.model();
    let per_row = model.layers.len() as u64 * tape::bytes_per_row_and_layer(&model.shape);
    let micro_batch = |(number, batch): (usize, &Arc<Batch>)| MicroBatch {
        number: number as u64,
        bytes: batch.rows() as u64 * per_row,
        shares: batch
            .jobs
            .iter()
            .map(|job| Share {
                slot: job.slot,
                step: job.step,
                last: job.last,
            })
            .collect(),
    };
    batches.iter().enumerate().map(micro_batch).collect()
}

fn outcomes(mut found: Found) -> Vec<StepOutcome> {
    let mut list = Vec::with_capacity(found.tallies.len());
    for ((slot, step), tally) in found.tallies {
        // Steps of a job that was set aside before are passed, not taken.
        let Some(numbers) = found.steps.remove(&(slot, step)) else {
            continue;
        };
        list.push(StepOutcome {
            slot,
            step,
            loss: tally.loss,
            accuracy: tally.accuracy(),
            numbers: numbers.map_err(|broken| match broken.piece {
                None => broken.what,
                Some(_) => format!("{} is not finite", broken.what),
            }),
        });
    }
    list
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn layers_are_cut_as_even_as_can_be() {
        assert_eq!(spans(5, 3).unwrap(), [0..2, 2..4, 4..5]);
        assert_eq!(spans(4, 2).unwrap(), [0..2, 2..4]);
        for stages in [0, 6] {
            let error = spans(5, stages).unwrap_err().to_string();
            assert!(error.contains("ask for 1 to 5"), "{error}");
        }
    }
}
