//! Many jobs training on one stage, step by step. Pure: no clock, no files; events are returned.
//!
//! A round takes one optimizer step of every active job, their sequences fused into passes. Jobs join and leave
//! between rounds; a job whose numbers stop being finite is set aside, and its neighbours' bits do not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use data::order::Batches;
use data::rows::TokenRow;
use kernels::cpu::Cpu;
use shared::ids::JobName;
use shared::job::{AdapterSpec, JobSpec};

use super::event::{Ending, Event};
use super::pack::Request;
use super::progress::{self, Progress};
use super::tally::{Tally, tally};
use crate::model::Model;
use crate::peft::layout::Layout;
use crate::stage::adapter::Adapter;
use crate::stage::optim::{OptimizerState, Rule};
use crate::stage::step::Stage;

/// What a job is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Takes a step every round.
    Active,
    /// Took its last step.
    Finished(Ending),
    /// Set aside with a reason.
    Quarantined(String),
}

/// Everything a checkpoint holds of a job besides its specification.
#[derive(Clone, Debug, PartialEq)]
pub struct JobState {
    /// Adapter values in flat storage order.
    pub values: Vec<f32>,
    /// Moments and step count.
    pub optimizer: OptimizerState,
    /// Place in its life.
    pub progress: Progress,
}

impl JobState {
    /// Tells whether the state can be of this job.
    fn fits(&self, spec: &JobSpec, layout: &Layout, total: u64) -> Result<(), String> {
        let (found, wanted) = (self.values.len(), layout.len);
        if found != wanted {
            return Err(format!("has {found} values, the method has {wanted}"));
        }
        let new = OptimizerState::new(&spec.optimizer, wanted);
        let lengths = |state: &OptimizerState| (state.first.len(), state.second.len());
        if lengths(&self.optimizer) != lengths(&new) {
            return Err(format!(
                "has moments of {:?} values, the optimizer has {:?}",
                lengths(&self.optimizer),
                lengths(&new)
            ));
        }
        let (step, taken) = (self.progress.step, self.optimizer.step);
        if taken != step {
            return Err(format!("is of step {step}, its optimizer took {taken}"));
        }
        if step > total {
            return Err(format!("is of step {step}, the job has {total}"));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Run {
    spec: JobSpec,
    slot: usize,
    rows: Vec<TokenRow>,
    batches: Batches,
    eval_rows: Vec<TokenRow>,
    rule: Rule,
    optimizer: OptimizerState,
    progress: Progress,
    total: u64,
    standing: Standing,
}

/// Jobs on a stage.
#[derive(Debug)]
pub struct Session {
    stage: Stage,
    tokens_per_pass: usize,
    runs: BTreeMap<JobName, Run>,
}

impl Session {
    /// A session without jobs. `tokens_per_pass` bounds memory and changes no result.
    #[must_use]
    pub fn new(model: Arc<Model>, cpu: Cpu, tokens_per_pass: usize) -> Self {
        Self {
            stage: Stage::new(model, cpu),
            tokens_per_pass,
            runs: BTreeMap::new(),
        }
    }

    /// The stage, for sampling between rounds.
    pub fn stage_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }

    /// The stage.
    #[must_use]
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Adds a job. `state` continues an earlier run; without it the job starts from `values`.
    ///
    /// # Errors
    /// A sentence that says what is wrong: the name is taken, there is no row or one without a token that counts
    /// (a step of such rows has no loss), or the state is of another layout.
    pub fn admit(
        &mut self,
        spec: JobSpec,
        layout: Arc<Layout>,
        values: Vec<f32>,
        rows: Vec<TokenRow>,
        eval_rows: Vec<TokenRow>,
        state: Option<JobState>,
    ) -> Result<(), String> {
        if self.runs.contains_key(&spec.name) {
            return Err(format!("a job named {} is already here", spec.name));
        }
        let name = &spec.name;
        if rows.is_empty() {
            return Err(format!("job {name}: there is no row to train on"));
        }
        for (rows, what) in [(&rows, "row"), (&eval_rows, "held-out row")] {
            if let Some(at) = rows.iter().position(|row| row.trained() == 0) {
                let problem = "has no token that counts in the loss";
                return Err(format!("job {name}: {what} {at} {problem}"));
            }
        }
        let state = match state {
            Some(state) => {
                state
                    .fits(
                        &spec,
                        &layout,
                        progress::total_steps(&spec.train, rows.len()),
                    )
                    .map_err(|problem| format!("job {name}: the checkpoint {problem}"))?;
                state
            }
            None => JobState {
                optimizer: OptimizerState::new(&spec.optimizer, values.len()),
                values,
                progress: Progress::default(),
            },
        };
        let total = progress::total_steps(&spec.train, rows.len());
        let standing = if state.progress.step >= total {
            Standing::Finished(Ending::Complete)
        } else if state.progress.stopped_early(&spec.eval) {
            Standing::Finished(Ending::EarlyStopping)
        } else {
            Standing::Active
        };
        let slot = self
            .stage
            .attach(Adapter::new(layout, state.values, spec.seed));
        let run = Run {
            slot,
            batches: progress::batches(&spec, rows.len()),
            rows,
            eval_rows,
            rule: Rule::new(&spec.optimizer, &spec.adapter),
            optimizer: state.optimizer,
            progress: state.progress,
            total,
            standing,
            spec,
        };
        self.runs.insert(run.spec.name.clone(), run);
        Ok(())
    }

    /// Takes a job off the backbone and returns its state.
    pub fn remove(&mut self, name: &JobName) -> Option<JobState> {
        let run = self.runs.remove(name)?;
        let adapter = self.stage.detach(run.slot)?;
        let (optimizer, progress) = (run.optimizer, run.progress);
        Some(JobState {
            values: adapter.values,
            optimizer,
            progress,
        })
    }

    /// A copy of a job's state, for a checkpoint.
    #[must_use]
    pub fn state(&self, name: &JobName) -> Option<JobState> {
        let run = self.runs.get(name)?;
        Some(JobState {
            values: self.stage.adapter(run.slot)?.values.clone(),
            optimizer: run.optimizer.clone(),
            progress: run.progress.clone(),
        })
    }

    /// What a job is doing.
    #[must_use]
    pub fn standing(&self, name: &JobName) -> Option<&Standing> {
        Some(&self.runs.get(name)?.standing)
    }

    /// A job's place in its life, and its steps in all.
    #[must_use]
    pub fn progress(&self, name: &JobName) -> Option<(&Progress, u64)> {
        self.runs.get(name).map(|run| (&run.progress, run.total))
    }

    /// The bank slot of a job's adapter, for sampling with it.
    #[must_use]
    pub fn slot(&self, name: &JobName) -> Option<usize> {
        Some(self.runs.get(name)?.slot)
    }

    /// Bytes of a job's adapter, gradient and moments.
    #[must_use]
    pub fn job_bytes(&self, name: &JobName) -> Option<u64> {
        let run = self.runs.get(name)?;
        Some(self.stage.adapter(run.slot)?.bytes() + run.optimizer.bytes())
    }

    /// Whether no job is active.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.runs
            .values()
            .all(|run| run.standing != Standing::Active)
    }

    /// One optimizer step of every active job, with the evaluations due before and after it.
    pub fn round(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.evaluate_due(&mut events);
        self.train_step(&mut events);
        self.evaluate_due(&mut events);
        self.checkpoint_due(&mut events);
        self.finish_complete(&mut events);
        events
    }

    fn request<'a>(stage: &Stage, run: &Run, rows: Vec<&'a TokenRow>) -> Request<'a> {
        let adapter = stage.adapter(run.slot);
        let layout = adapter.map(|adapter| &adapter.layout);
        let tokens = |pick: fn(&Layout) -> usize| layout.map_or(0, |layout| pick(layout));
        Request {
            slot: run.slot,
            prompt_tokens: tokens(|l| l.prompt.as_ref().map_or(0, |p| p.tokens)),
            prefix_tokens: tokens(|l| l.prefix.as_ref().map_or(0, |p| p.tokens)),
            step: run.progress.step,
            rows,
        }
    }

    fn train_step(&mut self, events: &mut Vec<Event>) {
        let mut requests = Vec::new();
        for run in self
            .runs
            .values_mut()
            .filter(|run| run.standing == Standing::Active)
        {
            let chosen = run.batches.rows(run.progress.step);
            let rows = chosen
                .iter()
                .map(|&index| &run.rows[index as usize])
                .collect();
            requests.push(Self::request(&self.stage, run, rows));
        }
        let mut tallies = tally(
            &mut self.stage,
            &requests,
            self.tokens_per_pass,
            Stage::train,
        );
        for run in self.runs.values_mut() {
            if run.standing == Standing::Active
                && let Some(tally) = tallies.remove(&run.slot)
            {
                take_step(&mut self.stage, run, tally, events);
            }
        }
    }

    fn evaluate_due(&mut self, events: &mut Vec<Event>) {
        let due: Vec<JobName> = self
            .runs
            .values()
            .filter(|run| run.standing == Standing::Active && !run.eval_rows.is_empty())
            .filter(|run| run.progress.evaluation_due(&run.spec.eval, run.total))
            .map(|run| run.spec.name.clone())
            .collect();
        let requests: Vec<Request<'_>> = due
            .iter()
            .filter_map(|name| self.runs.get(name))
            .map(|run| Self::request(&self.stage, run, run.eval_rows.iter().collect()))
            .collect();
        let mut tallies = tally(
            &mut self.stage,
            &requests,
            self.tokens_per_pass,
            Stage::evaluate,
        );
        for name in due {
            let Some(run) = self.runs.get_mut(&name) else {
                continue;
            };
            let Some(tally) = tallies.remove(&run.slot) else {
                continue;
            };
            let step = run.progress.step;
            if !tally.loss.is_finite() {
                let reason = tally.reason("held-out");
                run.standing = Standing::Quarantined(reason.clone());
                events.push(Event::Quarantined {
                    job: name,
                    step,
                    reason,
                });
                continue;
            }
            let stop = run.progress.note_evaluation(&run.spec.eval, tally.loss);
            let (loss, accuracy, tokens) = (tally.loss, tally.accuracy(), tally.trained_tokens);
            events.push(Event::Evaluation {
                job: name.clone(),
                step,
                loss,
                accuracy,
                tokens,
            });
            if stop && step < run.total {
                run.standing = Standing::Finished(Ending::EarlyStopping);
                events.push(Event::CheckpointDue {
                    job: name.clone(),
                    step,
                });
                events.push(Event::Finished {
                    job: name,
                    step,
                    why: Ending::EarlyStopping,
                });
            }
        }
    }

    /// After the evaluations of the round: a state that counts one must not be saved before it is told.
    fn checkpoint_due(&self, events: &mut Vec<Event>) {
        for (name, run) in &self.runs {
            let (step, every) = (run.progress.step, run.spec.checkpoint.every_steps);
            let due = every > 0 && step.is_multiple_of(every) && step < run.total;
            if due && run.standing == Standing::Active {
                let job = name.clone();
                events.push(Event::CheckpointDue { job, step });
            }
        }
    }

    fn finish_complete(&mut self, events: &mut Vec<Event>) {
        for (name, run) in &mut self.runs {
            let step = run.progress.step;
            if run.standing == Standing::Active && step >= run.total {
                run.standing = Standing::Finished(Ending::Complete);
                events.push(Event::CheckpointDue {
                    job: name.clone(),
                    step,
                });
                events.push(Event::Finished {
                    job: name.clone(),
                    step,
                    why: Ending::Complete,
                });
            }
        }
    }
}

fn take_step(stage: &mut Stage, run: &mut Run, tally: Tally, events: &mut Vec<Event>) {
    let (job, step) = (run.spec.name.clone(), run.progress.step);
    let numbers = if tally.loss.is_finite() {
        let peak = run.spec.optimizer.learning_rate;
        let rate = run.spec.schedule.learning_rate(peak, step, run.total);
        stage
            .step(run.slot, &mut run.optimizer, &run.rule, rate)
            .map_err(|what| format!("{what} is not finite"))
    } else {
        Err(tally.reason("training"))
    };
    match numbers {
        Err(reason) => {
            run.standing = Standing::Quarantined(reason.clone());
            events.push(Event::Quarantined { job, step, reason });
        }
        Ok(numbers) => {
            run.progress.step += 1;
            run.progress.tokens += tally.tokens;
            run.progress.first_loss.get_or_insert(tally.loss);
            run.progress.last_loss = Some(tally.loss);
            events.push(Event::Step {
                job,
                step: run.progress.step,
                total: run.total,
                loss: tally.loss,
                accuracy: tally.accuracy(),
                learning_rate: numbers.learning_rate,
                gradient_norm: numbers.gradient_norm,
                tokens: tally.tokens,
                trained_tokens: tally.trained_tokens,
            });
        }
    }
}

/// Compiles a method for a backbone; the specification has passed [`JobSpec::problems`].
#[must_use]
pub fn layout_of(spec: &AdapterSpec, model: &Model, seed: u64) -> Arc<Layout> {
    Arc::new(Layout::new(spec, &model.shape, seed))
}
