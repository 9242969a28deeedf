//! What a replica tells of a job, taken into its state.

use shared::life::{JobState, Reason, ReasonClass};
use shared::units::Micros;
use shared::wire::notice::JobNotice;

use super::Job;

/// Steps beyond the durable one whose tokens are known; beyond so many every second of them goes.
const MARKS: usize = 256;

impl Job {
    /// Takes a notice of the replica that it is on; `alone` when no other job is there.
    pub(super) fn hear(&mut self, notice: &JobNotice, at: Micros, alone: bool) {
        match notice {
            JobNotice::Admitted { step, total } => {
                self.total = *total;
                self.taken_up(*step, at);
            }
            JobNotice::Recovered { step } => self.taken_up(*step, at),
            JobNotice::Refused(reason) => self.refused(reason, at, alone),
            JobNotice::Step {
                step,
                loss,
                learning_rate,
                tokens,
                ..
            } => {
                if *step > self.step {
                    self.step = *step;
                    self.tokens = *tokens;
                    self.mark();
                    self.last_loss = Some(*loss);
                    self.learning_rate = Some(*learning_rate);
                    self.first_loss.get_or_insert(*loss);
                    self.started.get_or_insert(at);
                    self.stepped = true;
                    self.waiting.served();
                    self.runs();
                }
            }
            JobNotice::Evaluation { step, loss, .. } => {
                self.first_eval.get_or_insert(*loss);
                self.last_eval = Some((*loss, *step));
            }
            JobNotice::Durable { step, .. } => {
                self.durable = self.durable.max(*step);
                self.forget_marks();
            }
            JobNotice::Paused { step } => self.step = self.step.max(*step),
            JobNotice::Resumed => self.runs(),
            JobNotice::Quarantined { step, reason } => {
                let mut message = format!(
                    "numbers of the job are not finite after step {step}: {reason}; lower optimizer.learning_rate \
                     or set optimizer.max_grad_norm"
                );
                if let Some(good) = self.good {
                    message.push_str(&format!(
                        "; its good state after step {good} is kept: spotmux fetch {}",
                        self.id
                    ));
                } else if self.durable > 0 {
                    message.push_str(&format!(
                        "; its state after step {} is kept, which is not known to be good: spotmux sample --job {}",
                        self.durable, self.id
                    ));
                }
                let class = ReasonClass::Numeric;
                self.fail(Reason { class, message }, at);
            }
            JobNotice::Finished { step, .. } => {
                self.step = self.step.max(*step);
                if self.state != JobState::Cancelling && !self.displaced && !self.stalled {
                    self.state = JobState::Finalizing;
                }
            }
            JobNotice::Salvaged { step, files } => {
                self.good = Some(*step);
                self.files.clone_from(files);
            }
            JobNotice::Exported { files } => {
                self.files.clone_from(files);
                self.end(JobState::Succeeded, at);
            }
            JobNotice::Cancelled { step } => {
                self.step = self.step.max(*step);
                self.end(JobState::Cancelled, at);
            }
        }
    }

    /// On the backbone at this step.
    fn taken_up(&mut self, step: u64, at: Micros) {
        if step < self.durable {
            let message = format!(
                "it was taken up at step {step} although step {} was durable: the store of artifacts lost its state; \
                 restore the store and submit the job under another name",
                self.durable
            );
            let class = ReasonClass::System;
            return self.fail(Reason { class, message }, at);
        }
        self.go_back(step);
        if self.stalled {
            // A late word of a replica that broke since: it was there, and is to go on elsewhere.
            self.displaced = true;
            self.lost = true;
            if self.state == JobState::Provisioning {
                self.state = JobState::Recovering;
            }
            return;
        }
        match (self.displaced, self.lost) {
            (true, true) => self.recoveries += 1,
            (true, false) => self.moves += 1,
            (false, _) => {}
        }
        self.displaced = false;
        self.lost = false;
        self.admitted = true;
        self.refusals = 0;
        if self.state == JobState::Recovering {
            self.state = JobState::Provisioning;
        }
    }

    /// Remembers the tokens of the steps so far.
    fn mark(&mut self) {
        self.marks.insert(self.step, self.tokens);
        if self.marks.len() > MARKS {
            let mut odd = false;
            self.marks.retain(|_, _| {
                odd = !odd;
                odd
            });
        }
    }

    /// No loss takes back what is before the durable step.
    fn forget_marks(&mut self) {
        let before = self.marks.range(..=self.durable).next_back();
        if let Some(first) = before.map(|(step, _)| *step) {
            self.marks = self.marks.split_off(&first);
        }
    }

    /// Goes on from a step: tokens are of the steps that it has, as far as they are known.
    fn go_back(&mut self, step: u64) {
        if step < self.step {
            let known = self.marks.range(..=step).next_back();
            self.tokens = match known {
                Some((_, tokens)) => *tokens,
                None if step == 0 => 0,
                // A job of a snapshot of before, which knows of no step: its next one says it.
                None => self.tokens,
            };
            self.marks.retain(|at, _| *at <= step);
        }
        self.step = step;
    }

    fn runs(&mut self) {
        if self.state == JobState::Provisioning && self.stepped && !self.stalled {
            self.state = JobState::Running;
        }
    }

    fn refused(&mut self, reason: &Reason, at: Micros, alone: bool) {
        if self.state == JobState::Cancelling {
            return self.end(JobState::Cancelled, at);
        }
        let ours = match reason.class {
            ReasonClass::NoCapacity => !alone,
            // For how long that is borne is decided by who knows the time: it ends as `Unfit`.
            ReasonClass::System => {
                self.refusals = self.refusals.saturating_add(1);
                true
            }
            _ => false,
        };
        if !ours {
            return self.fail(reason.clone(), at);
        }
        if reason.class == ReasonClass::NoCapacity {
            self.shunned.extend(self.replica);
        }
        self.displace(false, at);
        self.reason = Some(reason.clone());
    }
}
