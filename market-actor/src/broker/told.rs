//! What the broker is told of the cluster, and what it tells of a decision.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, JobName, NodeName};
use shared::units::{MicroUsd, Micros};
use thiserror::Error;

use crate::problem::ProblemError;
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
    /// Whether the coordinator knows that its machine may be taken.
    pub at_risk: bool,
}

/// A job, as the coordinator shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTold {
    /// Which.
    pub id: JobId,
    /// Its owner's name for it.
    pub name: JobName,
    /// Whose it is; empty where nobody says.
    pub tenant: String,
    /// Whether it has ended.
    pub ended: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// Optimizer steps taken.
    pub step: u64,
    /// Optimizer steps in all.
    pub total_steps: u64,
    /// Tokens of the steps taken: they fall with the step when the job goes on from an older state.
    pub tokens: u64,
    /// When its owner wants it done, since 1970.
    pub deadline: Option<Micros>,
    /// What its owner would spend.
    pub budget: Option<MicroUsd>,
    /// Zones or regions where its machines may be; all when empty.
    pub zones: BTreeSet<String>,
}

impl JobTold {
    /// Whether it wants machines.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !self.ended && !self.paused
    }

    /// Whether it wants machines by a deadline that lies ahead, and its steps are not known before it is admitted on some.
    #[must_use]
    pub fn is_unmeasured(&self, now: Micros) -> bool {
        let ahead = self.deadline.is_some_and(|deadline| deadline > now);
        self.is_live() && ahead && self.total_steps == 0
    }
}

/// Why no policy was asked.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Unasked {
    /// Nothing to do.
    #[error("no job wants a machine")]
    NoWork,
    /// Nothing was measured.
    #[error("no rate was measured yet: what stands stays, at least the fewest machines")]
    NoRate,
    /// Nowhere to be.
    #[error(
        "no pool is where all jobs at work may be ({asked}); there are {}: change market.rules, or cancel them and submit them with other \
         market.zones",
        known.join(", ")
    )]
    NoPool {
        /// Regions and zones of the pools that there are.
        known: Vec<String>,
        /// Jobs that say where they may be, and where.
        asked: String,
    },
    /// Jobs, but no steps that are left and known.
    #[error(
        "no job at work has steps left that are known: what stands stays, at least the fewest machines"
    )]
    NoSteps,
    /// The work is no problem that can be.
    #[error("the work cannot be planned for, so what stands stays: {0}")]
    Problem(#[from] ProblemError),
    /// Finishing in time costs more than it brings.
    #[error("the deadline cannot be met at a gain: the fewest machines until it is done")]
    Late,
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
    /// Who decided; nothing where no policy was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The job whose deadline asks for most; nothing where that is the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressing: Option<JobId>,
    /// Jobs whose deadline cannot be met any more, not even on all machines: they say nothing for the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<JobId>,
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
    /// Paid since the first start.
    pub spent: MicroUsd,
}
