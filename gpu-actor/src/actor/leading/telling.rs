//! What happens on the replica, told to the coordinator, the log and the meters.

use shared::ids::JobName;
use shared::units::Bytes;
use shared::wire::notice::JobNotice;

use super::{Last, Leading};
use crate::replica::event::ReplicaEvent;
use crate::train::event::{Ending, Event as Training};

impl Leading<'_> {
    /// Names the submission of a job in all processes; empty for one that is not here.
    pub(super) fn trace(&self, own: &JobName) -> &str {
        self.submissions.get(own).map_or("", String::as_str)
    }

    /// What an event is to the coordinator, and what follows from it here.
    pub(super) fn translate(&mut self, event: ReplicaEvent) -> (JobName, Option<JobNotice>) {
        match event {
            ReplicaEvent::Training(training) => self.trained(training),
            ReplicaEvent::Durable { job, step, bytes } => {
                let bytes = Bytes(bytes);
                let now = (self.around.clock)();
                self.around.meters.durable(&job, step, now);
                self.again.stored();
                tracing::debug!(trace = self.trace(&job), %job, step, "state durable");
                (job, Some(JobNotice::Durable { step, bytes }))
            }
            ReplicaEvent::NotDurable { job, step, reason } => {
                self.around.meters.not_durable(&job, step);
                self.again.failed((self.around.clock)());
                tracing::warn!(trace = self.trace(&job), %job, step, reason, "state not stored");
                if let Some(draining) = &mut self.draining {
                    draining.refused.insert(job.clone(), reason);
                }
                (job, None)
            }
            ReplicaEvent::NotShared {
                job,
                replica,
                reason,
            } => {
                tracing::warn!(trace = self.trace(&job), %job, replica, reason, "steps not shared");
                (job, None)
            }
            ReplicaEvent::Paused { job, step } => (job, Some(JobNotice::Paused { step })),
            ReplicaEvent::Resumed { job } => (job, Some(JobNotice::Resumed)),
            ReplicaEvent::Cancelled { job, step } => {
                self.submissions.remove(&job);
                (job, Some(JobNotice::Cancelled { step }))
            }
        }
    }

    fn trained(&mut self, event: Training) -> (JobName, Option<JobNotice>) {
        match event {
            Training::Step {
                job,
                step,
                loss,
                accuracy,
                learning_rate,
                gradient_norm,
                tokens,
                ..
            } => {
                self.around.traces.trained(tokens);
                self.around.meters.trained(tokens);
                tracing::debug!(trace = self.trace(&job), %job, step, tokens, "step taken");
                let tokens = self.lead.progress(&job).map_or(0, |(p, _)| p.tokens);
                let notice = JobNotice::Step {
                    step,
                    loss,
                    accuracy,
                    gradient_norm,
                    learning_rate,
                    tokens,
                };
                (job, Some(notice))
            }
            Training::Evaluation {
                job,
                step,
                loss,
                accuracy,
                ..
            } => {
                let notice = JobNotice::Evaluation {
                    step,
                    loss,
                    accuracy,
                };
                (job, Some(notice))
            }
            Training::CheckpointDue { job, .. } => (job, None),
            Training::Quarantined { job, step, reason } => {
                self.set_aside(&job, step, reason);
                (job, None)
            }
            Training::Finished { job, step, why } => {
                self.ending.insert(job.clone(), (step, Last::Export));
                let early = why == Ending::EarlyStopping;
                (job, Some(JobNotice::Finished { step, early }))
            }
        }
    }
}
