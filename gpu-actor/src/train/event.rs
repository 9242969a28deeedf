//! What a training session reports; the shell decides how to show or store it.

use serde::{Deserialize, Serialize};
use shared::ids::JobName;

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An optimizer step was taken.
    Step {
        /// The job.
        job: JobName,
        /// Steps taken, this one included.
        step: u64,
        /// Steps in all.
        total: u64,
        /// Loss before the step.
        loss: f64,
        /// Share of labelled tokens predicted right, before the step.
        accuracy: f64,
        /// Learning rate used.
        learning_rate: f64,
        /// Global gradient norm before clipping.
        gradient_norm: f64,
        /// Tokens passed, virtual ones not counted.
        tokens: u64,
        /// Tokens that counted in the loss.
        trained_tokens: u64,
    },
    /// Held-out rows were measured.
    Evaluation {
        /// The job.
        job: JobName,
        /// Steps taken before.
        step: u64,
        /// Mean loss of a labelled token.
        loss: f64,
        /// Share of labelled tokens predicted right.
        accuracy: f64,
        /// Labelled tokens measured.
        tokens: u64,
    },
    /// The job's state should be saved now.
    CheckpointDue {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
    },
    /// A number of the job is not finite; it stopped where it was, others go on.
    Quarantined {
        /// The job.
        job: JobName,
        /// Steps taken before the bad one; its state is of then, and proven only where the session says so
        /// ([`super::proof`]).
        step: u64,
        /// Where the number appeared: sample, row and layer, or parameter.
        reason: String,
    },
    /// The job took its last step.
    Finished {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
        /// Why it ended.
        why: Ending,
    },
}

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps taken.
    Complete,
    /// The held-out loss stopped falling.
    EarlyStopping,
}

impl Event {
    /// The job it happened to.
    #[must_use]
    pub fn job(&self) -> &JobName {
        match self {
            Self::Step { job, .. }
            | Self::Evaluation { job, .. }
            | Self::CheckpointDue { job, .. }
            | Self::Quarantined { job, .. }
            | Self::Finished { job, .. } => job,
        }
    }
}
