//! The life of a job as its owner sees it: states, and why it ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Accepted; waits for room on a replica.
    Queued,
    /// Given to a replica that has not yet taken a step of it.
    Provisioning,
    /// Has taken a step in this placement.
    Running,
    /// Its owner asked for a halt; state kept.
    Paused,
    /// Its replica lost a stage or is being moved; goes on from the last durable step.
    Recovering,
    /// Took its last step; the adapter is being written.
    Finalizing,
    /// The adapter is written.
    Succeeded,
    /// Its owner asked for the end.
    Cancelling,
    /// Ended by its owner; the last checkpoint is kept.
    Cancelled,
    /// Ended by itself; see the reason.
    Failed,
}

impl JobState {
    /// Whether nothing will change any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Cancelled | Self::Failed)
    }

    /// The state as written in tables, logs and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Provisioning => "provisioning",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Recovering => "recovering",
            Self::Finalizing => "finalizing",
            Self::Succeeded => "succeeded",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Whose business a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonClass {
    /// The specification.
    UserError,
    /// The samples.
    DataError,
    /// Numbers that are not finite.
    Numeric,
    /// No node can hold it.
    NoCapacity,
    /// Ours.
    System,
}

/// Why a job is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Whose business it is.
    pub class: ReasonClass,
    /// A sentence.
    pub message: String,
}
