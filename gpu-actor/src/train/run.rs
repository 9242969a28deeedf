//! One job in a session: its rows, where it is in its life, and what was planned of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use data::order::Batches;
use data::rows::TokenRow;
use shared::job::JobSpec;

use super::engine::{Fault, Goal};
use super::event::{Ending, Event};
use super::pack::Request;
use super::progress::{self, Progress};
use super::proof::Proof;
use super::spread;
use super::tally::Tally;
use crate::peft::layout::Layout;
use crate::stage::optim::StepNumbers;
use shared::ids::JobName;

/// What a job is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Takes steps: one a round, or a part of one.
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
    /// Steps taken, and those that are on their way with all their sequences.
    pub(super) planned: u64,
    /// Its state is wanted after so many steps; 0: only at the end.
    every_steps: u64,
    /// Besides, it is wanted after so many steps; 0: not so.
    pub(super) hastened: u64,
    /// States that are wanted are not stored yet: those that fall due are put off until they are.
    pub(super) store_is_behind: bool,
    /// The newest step after which its state was wanted, or with which it came.
    kept: u64,
    /// Steps on their way after which it is wanted.
    keeps: BTreeSet<u64>,
    /// Sequences of the step behind those that passed or are on their way.
    pub(super) begun: usize,
    /// Took a step in this round: one that joined behind rounds on their way does not in each.
    pub(super) stepped: bool,
    /// What is known of its states: of all before it was set aside, or before the newest.
    proof: Option<Proof>,
}

impl Run {
    pub(super) fn new(
        name: JobName,
        spec: JobSpec,
        layout: Arc<Layout>,
        [rows, eval_rows]: [Vec<TokenRow>; 2],
        progress: Progress,
        every_steps: u64,
    ) -> Self {
        let total = progress::total_steps(&spec.train, rows.len());
        let every = spec.checkpoint.every_steps.unwrap_or(every_steps);
        let kept = progress.step;
        // One that was ended in a hurry may lack its last evaluation.
        let measured =
            eval_rows.is_empty() || !progress.evaluation_due(progress.step, &spec.eval, total);
        let standing = if progress.step >= total && measured {
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
            begun: 0,
            name,
            spec,
            layout,
            rows,
            eval_rows,
            progress,
            total,
            standing,
            asked: None,
            every_steps: every,
            hastened: 0,
            store_is_behind: false,
            kept,
            keeps: BTreeSet::new(),
            stepped: false,
            proof: None,
        }
    }

    /// What is known of its states.
    pub(super) fn proof(&self) -> Proof {
        self.proof
            .unwrap_or_else(|| Proof::of_taken(self.progress.step))
    }

    pub(super) fn is_active(&self) -> bool {
        self.standing == Standing::Active
    }

    /// Whether all that was planned of it is done, and no step is begun.
    pub(super) fn is_settled(&self) -> bool {
        self.planned == self.progress.step && self.begun == 0
    }

    /// Whether it has sequences for the next turn; before a pause those of a step that is begun, before its end none.
    pub(super) fn takes_part(&self) -> bool {
        let wanted = match self.asked {
            None => true,
            Some(Halt::Pause) => self.begun > 0,
            Some(Halt::Cancel) => false,
        };
        self.is_active() && wanted && self.planned < self.total
    }

    /// Whether it comes to the halt that it was asked for: at the end of a step, but one that is begun and not all planned
    /// is dropped with a job that will not go on.
    pub(super) fn halts(&self) -> bool {
        match self.asked {
            None => false,
            Some(Halt::Pause) => self.is_settled(),
            Some(Halt::Cancel) => self.planned == self.progress.step,
        }
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

    /// The state after a step that was taken is to be saved.
    pub(super) fn keeps(&mut self, step: u64) -> bool {
        let keeps = self.keeps.remove(&step);
        if keeps {
            self.kept = step;
        }
        keeps
    }

    /// Whether the state after a step that is planned is wanted. One that was put off is, as soon as it can be.
    fn is_wanted(&self, step: u64) -> bool {
        let before = self.keeps.last().copied().unwrap_or(self.kept);
        let due = |every: u64| every > 0 && step / every > before / every;
        let hastened = self.hastened > 0 && step.is_multiple_of(self.hastened);
        step < self.total && !self.store_is_behind && (hastened || due(self.every_steps))
    }

    fn request<'a>(&self, step: u64, rows: Vec<&'a TokenRow>) -> Request<'a> {
        let layout = &self.layout;
        Request {
            slot: self.slot,
            prompt_tokens: layout.prompt.as_ref().map_or(0, |p| p.tokens),
            prefix_tokens: layout.prefix.as_ref().map_or(0, |p| p.tokens),
            step,
            rows,
            part: None,
        }
    }

    /// Sequences of its next step, or of the one that is begun.
    fn upcoming(&mut self) -> Request<'_> {
        let chosen = self.batches.rows(self.planned);
        let rows = chosen.iter().map(|&index| &self.rows[index as usize]);
        self.request(self.planned, rows.collect())
    }

    /// Rows of that step that are not planned.
    pub(super) fn rest(&mut self) -> usize {
        let begun = self.begun;
        self.upcoming().lengths()[begun..].iter().sum()
    }

    /// The next sequences of at most so many rows, or one, which are then planned; with a goal, if the step ends with them.
    pub(super) fn next_part(&mut self, most: usize) -> (Request<'_>, Option<Goal>) {
        let (step, from) = (self.planned, self.begun);
        let lengths = self.upcoming().lengths();
        let end = from + spread::part(&lengths[from..], most);
        let ends = end == lengths.len();
        (self.planned, self.begun) = match ends {
            true => (step + 1, 0),
            false => (step, end),
        };
        let wanted = ends && self.is_wanted(step + 1);
        if wanted {
            self.keeps.insert(step + 1);
        }
        let peak = self.spec.optimizer.learning_rate;
        let goal = ends.then(|| Goal {
            learning_rate: self.spec.schedule.learning_rate(peak, step, self.total),
            keep: wanted || step + 1 == self.total,
        });
        let chosen = self.batches.rows(step);
        let rows = chosen.iter().map(|&index| &self.rows[index as usize]);
        let mut request = self.request(step, rows.collect());
        request.part = Some(from..end);
        (request, goal)
    }

    /// Takes back this step behind so many of its sequences, and those behind it, which were planned and not begun.
    pub(super) fn take_back(&mut self, step: u64, begun: usize) {
        if step <= self.planned {
            self.planned = step;
            self.begun = begun;
            self.keeps.retain(|kept| *kept <= step);
        }
    }

    /// Its held-out rows.
    pub(super) fn evaluation(&self) -> Request<'_> {
        self.request(self.progress.step, self.eval_rows.iter().collect())
    }

    /// Notes a step that was taken or broke.
    pub(super) fn note_step(
        &mut self,
        tally: &Tally,
        step: Result<StepNumbers, Fault>,
        events: &mut Vec<Event>,
    ) {
        let numbers = match step {
            Ok(numbers) => numbers,
            Err(mut fault) => {
                if let Some(place) = self.place_in_step(tally) {
                    fault.reason.push_str(&place);
                }
                self.quarantine(fault, events);
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
            let mut reason = tally.reason("held-out");
            if let Some(row) = tally.bad_sequence().and_then(|at| self.eval_rows.get(at)) {
                let data = &self.spec.data;
                reason.push_str(&place(data.eval.as_deref().unwrap_or(&data.train), row));
            }
            let proven = false;
            self.quarantine(Fault { reason, proven }, events);
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

    /// Where the sample of the step after those taken comes from whose loss is not finite.
    fn place_in_step(&mut self, tally: &Tally) -> Option<String> {
        let at = tally.bad_sequence()?;
        let chosen = self.batches.rows(self.progress.step);
        let row = self.rows.get(*chosen.get(at)? as usize)?;
        Some(place(&self.spec.data.train, row))
    }

    fn quarantine(&mut self, fault: Fault, events: &mut Vec<Event>) {
        let Fault { reason, proven } = fault;
        self.proof = Some(Proof::of_set_aside(self.progress.step, proven));
        self.standing = Standing::Quarantined(reason.clone());
        self.planned = self.progress.step;
        self.keeps.clear();
        self.begun = 0;
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

/// The file and the line that a row came from, to end a sentence with; nothing of one that came from none.
fn place(file: &str, row: &TokenRow) -> String {
    match row.line {
        0 => String::new(),
        line => format!(" ({file}: line {line})"),
    }
}
