//! What the broker is told of the cluster, and what it tells of a decision.

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, NodeName};
use shared::units::{MicroUsd, Micros};

use crate::problem::decision::Reason;
use crate::problem::offer::{Held, Offer};

/// A node, as the coordinator shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTold {
    /// Its name.
    pub name: NodeName,
    /// Whether it is heard.
    pub alive: bool,
    /// Whether work is being taken off it.
    pub draining: bool,
    /// Whether it holds a stage.
    pub holds: bool,
}

/// A job, as the coordinator shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTold {
    /// Which.
    pub id: JobId,
    /// Whether it has ended.
    pub ended: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// Optimizer steps taken.
    pub step: u64,
    /// Optimizer steps in all.
    pub total_steps: u64,
    /// Tokens passed.
    pub tokens: u64,
}

impl JobTold {
    /// Whether it wants machines.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !self.ended && !self.paused
    }
}

/// A decision, with what it was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// When, since 1970.
    pub at: Micros,
    /// Slots since the work began.
    pub slot: u32,
    /// Tokens done since then.
    pub progress: f64,
    /// Tokens left.
    pub remaining: f64,
    /// Tokens that a machine does in a slot; 0 while nothing was measured.
    pub rate: f64,
    /// What stood.
    pub held: Held,
    /// What is offered.
    pub offer: Offer,
    /// What is wanted.
    pub target: Held,
    /// Why; nothing where no policy was asked.
    pub reason: Option<Reason>,
    /// In words, where no policy was asked.
    pub note: Option<String>,
    /// Paid since the start.
    pub spent: MicroUsd,
}
