//! What a node is given to hold, and how far that is.

use shared::ids::{PlanEpoch, Term};
use shared::plan::Replica;

/// One stage of one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// The plan.
    pub epoch: PlanEpoch,
    /// The leadership that gave it.
    pub term: Term,
    /// The replica.
    pub replica: Replica,
    /// Which of its stages.
    pub stage: u32,
}

impl Post {
    /// Whether it is a first stage.
    pub(super) fn leads(&self) -> bool {
        self.stage == 0
    }
}

/// How far the post held is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Taking,
    Linked,
    Broken,
}
