//! What a policy sees in a slot, what it answers, and why: the reason is data.

use serde::{Deserialize, Serialize};
use shared::units::Micros;

use super::Problem;
use super::offer::{Held, Offer};
use crate::market::Slot;

/// A job at the beginning of a slot.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The job, with the throughput known by now.
    pub problem: &'a Problem,
    /// Slots since the job began.
    pub slot: u32,
    /// Work done.
    pub progress: f64,
    /// Machines of the slot before that still live.
    pub held: Held,
    /// What this slot offers; it is observed, not forecast.
    pub offer: Offer,
    /// Index of this slot in its market.
    pub at: usize,
    /// The market's slots before this one.
    pub past: &'a [Slot],
    /// Length of a slot.
    pub length: Micros,
    /// Spot machines taken away from this job, by slot since it began; the last entry is the beginning of this slot.
    pub losses: &'a [u32],
    /// Slots in a row, up to now, in which the job held no spot.
    pub waited: u32,
}

impl Situation<'_> {
    /// Work to do.
    #[must_use]
    pub fn remaining(&self) -> f64 {
        (self.problem.work - self.progress).max(0.0)
    }

    /// Slots up to the soft deadline, this one included.
    #[must_use]
    pub const fn slots_left(&self) -> u32 {
        self.problem.soft_deadline.saturating_sub(self.slot)
    }
}

/// What a job holds in a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Machines.
    pub held: Held,
    /// Why.
    pub reason: Reason,
}

/// Why a policy decided as it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reason {
    /// A number that meets the deadline at an even pace.
    EvenPace {
        /// Machines that do.
        machines: u32,
    },
    /// Spot is cheap enough to take all that can be used.
    CheapSpot {
        /// Its price for the slot, millionths of a dollar.
        price: f64,
        /// Price up to which it is taken.
        limit: f64,
    },
    /// No spot worth having, and time enough.
    Waits {
        /// Slots up to the soft deadline.
        slots_left: u32,
        /// Slots that flat out would take.
        slots_needed: u32,
    },
    /// Behind, or short of the target of this slot.
    KeepsPace {
        /// Progress aimed at.
        target: f64,
    },
    /// On-demand stays until the pace is met with some reserve.
    StaysOnDemand {
        /// Progress that ends this.
        until: f64,
    },
    /// The number differs by one and the old one serves too: a change would cost more.
    StaysPut {
        /// What would have been chosen.
        instead_of: u32,
    },
    /// The best first step of a plan.
    Planned {
        /// Slots of the plan.
        window: u32,
        /// What the plan makes of it, millionths of a dollar: utility within its window, and what its ending gives for the work
        /// done by then. Not the utility of the job, where the window ends before the deadline.
        expected: f64,
        /// What the second-best number of machines has less of that.
        margin: f64,
    },
    /// The mean of plans made at different slots.
    Averaged {
        /// How many.
        plans: u32,
        /// Their mean before rounding.
        mean: f64,
    },
    /// Inside or outside of a drawn on-demand interval.
    Drawn {
        /// First slot of the interval.
        from: u32,
        /// Slot after its last.
        until: u32,
    },
    /// Anything less could miss the deadline.
    SafetyNet {
        /// Slots up to the soft deadline after this one.
        slots_left: u32,
        /// Slots that flat out would take after what was wished for.
        slots_needed: u32,
    },
    /// The safety net locked the job at the fastest number in a slot before.
    Locked,
    /// The soft deadline cannot be met, but finishing still pays.
    Late {
        /// What it is worth less its cost, millionths of a dollar.
        worth: f64,
    },
    /// Finishing would cost more than it brings.
    GivesUp,
    /// The tenant's rule on waiting: on-demand now.
    WaitedEnough {
        /// Slots waited.
        slots: u32,
    },
    /// The share of a pool that several jobs want.
    Share {
        /// Spot machines granted.
        granted: u32,
        /// Spot machines wanted.
        wanted: u32,
    },
}

impl Reason {
    /// One word, for tables and counts.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::EvenPace { .. } => "even-pace",
            Self::CheapSpot { .. } => "cheap-spot",
            Self::Waits { .. } => "waits",
            Self::KeepsPace { .. } => "keeps-pace",
            Self::StaysOnDemand { .. } => "stays-on-demand",
            Self::StaysPut { .. } => "stays-put",
            Self::Planned { .. } => "planned",
            Self::Averaged { .. } => "averaged",
            Self::Drawn { .. } => "drawn",
            Self::SafetyNet { .. } => "safety-net",
            Self::Locked => "locked",
            Self::Late { .. } => "late",
            Self::GivesUp => "gives-up",
            Self::WaitedEnough { .. } => "waited-enough",
            Self::Share { .. } => "share",
        }
    }
}
