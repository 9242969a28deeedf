//! One job in a session: its rows, where it is in its life, and what was planned of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use data::order::Batches;
use data::rows::TokenRow;
use shared::job::JobSpec;

use super::engine::Goal;
use super::event::{Ending, Event};
use super::pack::Request;
use super::progress::{self, Progress};
use super::tally::Tally;
use crate::peft::layout::Layout;
use crate::stage::optim::StepNumbers;
use shared::ids::JobName;

/// What a job is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Takes a step every round.
    Active,
    /// Waits for an order to go on.
    Paused,
    /// Ended by an order.
    Cancelled,
    /// Took its last step.
    Finished(Ending),
    /// Set aside with a reason.
    Quarantined(String),
}

/// A halt that was asked for and waits for the step under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// To go on later.
    Pause,
    /// For good.
    Cancel,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: JobName,
    pub(super) spec: JobSpec,
    pub(super) slot: usize,
    pub(super) layout: Arc<Layout>,
    pub(super) rows: Vec<TokenRow>,
    batches: Batches,
    pub(super) eval_rows: Vec<TokenRow>,
    pub(super) progress: Progress,
    pub(super) total: u64,
    pub(super) standing: Standing,
    pub(super) asked: Option<Halt>,
    /// Steps taken, and those on their way.
    pub(super) planned: u64,
    /// Besides when it asks for it, its state is wanted after so many steps; 0: not so.
    pub(super) every_steps: u64,
    /// Steps on their way after which it is wanted for that.
    hastened: BTreeSet<u64>,
    /// Took a step in this round: one that joined behind rounds on their way does not in each.
    pub(super) stepped: bool,
}

impl Run {
    pub(super) fn new(
        name: JobName,
        spec: JobSpec,
        layout: Arc<Layout>,
        [rows, eval_rows]: [Vec<TokenRow>; 2],
        progress: Progress,
    ) -> Self {
        let total = progress::total_steps(&spec.train, rows.len());
        let standing = if progress.step >= total {
            Standing::Finished(Ending::Complete)
        } else if progress.stopped_early(&spec.eval) {
            Standing::Finished(Ending::EarlyStopping)
        } else {
            Standing::Active
        };
        Self {
            batches: progress::batches(&spec, rows.len()),
            slot: usize::MAX,
            planned: progress.step,
            name,
            spec,
            layout,
            rows,
            eval_rows,
            progress,
            total,
            standing,
            asked: None,
            every_steps: 0,
            hastened: BTreeSet::new(),
            stepped: false,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.standing == Standing::Active
    }

    /// Whether all that was planned of it is done.
    pub(super) fn is_settled(&self) -> bool {
        self.planned == self.progress.step
    }

    /// Whether it has a step for the next turn.
    pub(super) fn takes_part(&self) -> bool {
        self.is_active() && self.asked.is_none() && self.planned < self.total
    }

    /// Whether held-out rows are measured now.
    pub(super) fn evaluates(&self) -> bool {
        self.is_active() && self.is_settled() && self.evaluation_due(self.progress.step)
    }

    /// Whether an evaluation waits for steps on their way, so that nothing may be planned behind them.
    pub(super) fn holds_up(&self) -> bool {
        self.is_active() && !self.is_settled() && self.evaluation_due(self.planned)
    }

    fn evaluation_due(&self, step: u64) -> bool {
        let (spec, total) = (&self.spec.eval, self.total);
        !self.eval_rows.is_empty() && self.progress.evaluation_due(step, spec, total)
    }

    /// The state after a step that was taken is to be saved: it asks for it, or it was planned so.
    pub(super) fn keeps(&mut self, step: u64) -> bool {
        let hastened = self.hastened.remove(&step);
        hastened || self.checkpoint_due(step)
    }

    /// What was planned from a step on is planned again.
    pub(super) fn take_back(&mut self, step: u64) {
        let planned = step.min(self.planned);
        self.planned = planned;
        self.hastened.retain(|kept| *kept <= planned);
    }

    /// The state after the step is to be saved, as it asks for.
    fn checkpoint_due(&self, step: u64) -> bool {
        let every = self.spec.checkpoint.every_steps;
        every > 0 && step.is_multiple_of(every) && step < self.total
    }

    fn request<'a>(&self, step: u64, rows: Vec<&'a TokenRow>) -> Request<'a> {
        let layout = &self.layout;
        Request {
            slot: self.slot,
            prompt_tokens: layout.prompt.as_ref().map_or(0, |p| p.tokens),
            prefix_tokens: layout.prefix.as_ref().map_or(0, |p| p.tokens),
            step,
            rows,
        }
    }

    /// Its next step, which is then planned.
    pub(super) fn next_step(&mut self) -> (Request<'_>, Goal) {
        let step = self.planned;
        self.planned += 1;
        let every = self.every_steps;
        let hastened = every > 0 && (step + 1).is_multiple_of(every) && step + 1 < self.total;
        if hastened {
            self.hastened.insert(step + 1);
        }
        let chosen = self.batches.rows(step);
        let rows = chosen.iter().map(|&index| &self.rows[index as usize]);
        let rows = rows.collect();
        let peak = self.spec.optimizer.learning_rate;
        let goal = Goal {
            learning_rate: self.spec.schedule.learning_rate(peak, step, self.total),
            keep: hastened || self.checkpoint_due(step + 1) || step + 1 == self.total,
        };
        (self.request(step, rows), goal)
    }

    /// Its held-out rows.
    pub(super) fn evaluation(&self) -> Request<'_> {
        self.request(self.progress.step, self.eval_rows.iter().collect())
    }

    /// Notes a step that was taken or broke.
    pub(super) fn note_step(
        &mut self,
        tally: &Tally,
        step: Result<StepNumbers, String>,
        events: &mut Vec<Event>,
    ) {
        let numbers = match step {
            Ok(numbers) => numbers,
            Err(reason) => {
                self.quarantine(reason, events);
                return;
            }
        };
        self.progress.step += 1;
        self.stepped = true;
        self.progress.tokens += tally.tokens;
        self.progress.first_loss.get_or_insert(tally.loss);
        self.progress.last_loss = Some(tally.loss);
        events.push(Event::Step {
            job: self.name.clone(),
            step: self.progress.step,
            total: self.total,
            loss: tally.loss,
            accuracy: tally.accuracy(),
            learning_rate: numbers.learning_rate,
            gradient_norm: numbers.gradient_norm,
            tokens: tally.tokens,
            trained_tokens: tally.trained_tokens,
        });
    }

    /// Notes what held-out rows gave.
    pub(super) fn note_evaluation(&mut self, tally: &Tally, events: &mut Vec<Event>) {
        if !tally.loss.is_finite() {
            self.quarantine(tally.reason("held-out"), events);
            return;
        }
        let (job, step) = (self.name.clone(), self.progress.step);
        let stop = self.progress.note_evaluation(&self.spec.eval, tally.loss);
        let (loss, accuracy, tokens) = (tally.loss, tally.accuracy(), tally.trained_tokens);
        events.push(Event::Evaluation {
            job,
            step,
            loss,
            accuracy,
            tokens,
        });
        if stop && step < self.total {
            self.finish(Ending::EarlyStopping, events);
        }
    }

    fn quarantine(&mut self, reason: String, events: &mut Vec<Event>) {
        self.standing = Standing::Quarantined(reason.clone());
        self.planned = self.progress.step;
        self.hastened.clear();
        self.asked = None;
        let (job, step) = (self.name.clone(), self.progress.step);
        events.push(Event::Quarantined { job, step, reason });
    }

    /// Ends it; its state is to be saved first.
    pub(super) fn finish(&mut self, why: Ending, events: &mut Vec<Event>) {
        self.standing = Standing::Finished(why);
        self.asked = None;
        let (job, step) = (self.name.clone(), self.progress.step);
        events.push(Event::CheckpointDue {
            job: job.clone(),
            step,
        });
        events.push(Event::Finished { job, step, why });
    }
}
