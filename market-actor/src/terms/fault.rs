//! What of a market's settings cannot be: which key, its value, and the number that would work.

use shared::config::market::Provider;
use shared::units::{MicroUsd, Micros};
use thiserror::Error;

use super::tenants::RuleError;
use crate::problem::MOST_SLOTS;
use crate::select::word::WordError;

/// A key that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{key}: {fault}")]
pub struct Misfit {
    /// The key.
    pub key: &'static str,
    /// What is wrong with its value.
    pub fault: Fault,
}

/// Why a value does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// No such policy or foresight.
    #[error(transparent)]
    Word(#[from] WordError),
    /// A foresight that nobody has.
    #[error(
        "{word:?} knows the future, which is for back-tests only: persistence, real, ensemble and proven look at the past"
    )]
    Seer {
        /// The word.
        word: String,
    },
    /// Fewer machines than hold one replica: they would cost money and do no work.
    #[error(
        "{value} machines hold no replica of plan.stages = {stages}: use at least {stages} (0 for market.fewest is what the plan \
         needs), or lower plan.stages"
    )]
    BelowPlan {
        /// Machines.
        value: u64,
        /// Stages of a replica.
        stages: u64,
    },
    /// More machines than a plan gives work, at all times.
    #[error(
        "{fewest} machines at least, and plan.stages x plan.replicas gives work to {seats}: the others would cost money and do nothing; \
         lower it to {seats} (0 is what the plan needs), or raise plan.replicas"
    )]
    BeyondPlan {
        /// Fewest machines.
        fewest: u64,
        /// Machines that have work.
        seats: u64,
    },
    /// An empty range.
    #[error("{fewest} is above market.most = {most}: lower it to {most}, or raise market.most")]
    AboveMost {
        /// Fewest machines.
        fewest: u64,
        /// Most.
        most: u64,
    },
    /// More than there are.
    #[error(
        "{fewest} machines at least, and the file lists {nodes}: add [[node]] tables, or use at most {nodes}"
    )]
    AboveFleet {
        /// Fewest machines.
        fewest: u64,
        /// Nodes of the file.
        nodes: u64,
    },
    /// A deadline of no slot, or of more than are planned for.
    #[error(
        "a deadline of {deadline} is {} slots of market.slot_seconds = {:.0}: between 1 and {limit} can be planned for; {}",
        deadline.0 / slot.0.max(1), slot.seconds(), remedy(*deadline, *slot), limit = MOST_SLOTS / 2
    )]
    Slots {
        /// The deadline.
        deadline: Micros,
        /// Length of a slot.
        slot: Micros,
    },
    /// Less than the first slot costs.
    #[error(
        "a budget of {budget} does not pay one slot of the fewest machines at the lower price, {floor}: use at least {} USD, 0 for \
         no cap, or shorter slots",
        floor.0.div_ceil(1_000_000)
    )]
    Budget {
        /// The cap.
        budget: MicroUsd,
        /// What the first slot costs.
        floor: MicroUsd,
    },
    /// A key that the provider cannot do without.
    #[error(
        "it is not said, and market.provider = \"{provider}\" needs it: docs/market.md shows the keys of each provider"
    )]
    Unset {
        /// The provider.
        provider: Provider,
    },
    /// A rule that is none.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

fn remedy(deadline: Micros, slot: Micros) -> String {
    let minutes = |micros: u64| micros.div_ceil(60_000_000);
    if deadline < slot {
        return format!("use at least {} minutes, or shorter slots", minutes(slot.0));
    }
    let least = deadline.0.div_ceil(u64::from(MOST_SLOTS / 2));
    format!("use slots of at least {} s", least.div_ceil(1_000_000))
}
