//! How many machines to hold: the policies, each a value of [`Policy`], and the one function that asks them.
//!
//! A policy is a function of the situation, its foresight and its [`Memory`]; the memory is small and can be stored, so a
//! job goes on after a restart where it was. Under every policy lies the safety net ([`net`]), over every one the rules
//! of its tenant ([`tenant`]).
//!
//! - POL-1: no policy wishes for a machine that adds no work. What the net makes of a wish may have one, where as many are held: to
//!   let it go would cost a change in a slot that has none to lose.

pub mod chain;
pub mod ending;
pub mod expectation;
pub mod foresight;
pub mod horizon;
pub mod lattice;
pub mod net;
pub mod pace;
pub mod pools;
pub mod ross;
pub mod share;
pub mod tariff;
pub mod tenant;

use std::fmt;

use ending::Ending;
use expectation::Expectation;
use foresight::Foresight;
use horizon::{Horizon, Plan};
use net::{Net, guard, locked};
use ross::Interval;
use serde::{Deserialize, Serialize};
use tenant::Rules;

use crate::market::Pool;
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::offer::Held;

/// A policy with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Policy {
    /// The least constant number of on-demand machines.
    OnDemand,
    /// All spot up to a price, nothing else.
    Maximal {
        /// Share of the on-demand price.
        limit: f64,
    },
    /// On demand when behind an even pace, spot whenever there is some.
    Uniform {
        /// Whether spot that falls short is topped up with on-demand.
        mixed: bool,
    },
    /// All spot up to a price, besides as few machines as an even pace takes.
    BuyAhead {
        /// Share of the on-demand price.
        sigma: f64,
    },
    /// Spot, and one drawn interval on demand.
    Ross {
        /// Seed of the draw.
        seed: u64,
    },
    /// Plans over a window of foresight.
    Horizon(Horizon),
    /// Plans against all paths of a chain fitted on the past.
    Expectation(Expectation),
}

/// What a policy remembers of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Plans made in the last slots.
    pub plans: Vec<Plan>,
    /// The interval drawn.
    pub interval: Option<Interval>,
    /// Whether [`Net::Lock`] holds the job.
    #[serde(default)]
    pub locked: bool,
    /// Number of the market's slot in which the job began: what is drawn for one job says nothing of another's.
    #[serde(default)]
    pub begun: u64,
}

impl Memory {
    /// Nothing remembered yet of a job that begins in a slot of the market.
    #[must_use]
    pub fn since(begun: u64) -> Self {
        Self {
            begun,
            ..Self::default()
        }
    }
}

/// The safety net's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Safety {
    /// What to take when a wish does not pass.
    pub net: Net,
    /// Slots in reserve.
    pub margin: u32,
}

impl Default for Safety {
    fn default() -> Self {
        Self {
            net: Net::Least,
            margin: 0,
        }
    }
}

impl Policy {
    /// What to hold in a slot, the safety net included.
    pub fn decide(
        &self,
        situation: &Situation<'_>,
        foresight: &dyn Foresight,
        memory: &mut Memory,
        safety: Safety,
    ) -> Decision {
        let late = situation.slot >= situation.problem.soft_deadline;
        if memory.locked && safety.net == Net::Lock && !late {
            return locked(situation);
        }
        let mut wish = match self {
            Self::OnDemand => pace::on_demand(situation),
            Self::Maximal { limit } => pace::maximal(situation, *limit),
            Self::Uniform { mixed } => pace::uniform(situation, *mixed),
            Self::BuyAhead { sigma } => pace::buy_ahead(situation, *sigma),
            Self::Ross { seed } => ross::decide(situation, *seed, memory),
            Self::Horizon(horizon) => horizon.decide(situation, foresight, memory),
            Self::Expectation(expectation) => expectation.decide(situation),
        };
        // POL-1
        let useful = situation.problem.thrifty(wish.held.count());
        wish.held = situation.offer.pared(wish.held, useful);
        let mut decision = guard(situation, wish, safety.net, safety.margin);
        if safety.net == Net::Lock && matches!(decision.reason, Reason::SafetyNet { .. }) {
            memory.locked = true;
            decision.held = locked(situation).held;
        }
        let count = decision.held.count();
        if situation.problem.allowed(count) != count {
            // Fewer than can hold the job is nothing.
            decision.held = Held::default();
        }
        decision
    }

    /// The same under the rules of a tenant; the safety net lies under both, within what the rules leave.
    pub fn decide_under(
        &self,
        rules: &Rules,
        pool: &Pool,
        situation: &Situation<'_>,
        foresight: &dyn Foresight,
        memory: &mut Memory,
        safety: Safety,
    ) -> Decision {
        let poorer = Situation {
            offer: rules.offer(pool, situation),
            ..*situation
        };
        let wish = self.decide(&poorer, foresight, memory, safety);
        rules.amend(&poorer, wish)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnDemand => write!(f, "on-demand"),
            Self::Maximal { limit } if *limit == 1.0 => write!(f, "maximal spot"),
            Self::Maximal { limit } => write!(f, "maximal spot <= {limit}"),
            Self::Uniform { mixed: false } => write!(f, "uniform progress"),
            Self::Uniform { mixed: true } => write!(f, "uniform progress, mixed"),
            Self::BuyAhead { sigma } => write!(f, "buy ahead {sigma}"),
            Self::Ross { seed } => write!(f, "ross {seed}"),
            Self::Horizon(horizon) => {
                let ending = match horizon.ending {
                    Ending::Track { rho } => format!("track {rho}"),
                    Ending::CostToGo => "c2g".to_owned(),
                    Ending::Chain(_) => "chain".to_owned(),
                };
                let (window, commitment) = (horizon.window, horizon.commitment);
                write!(f, "horizon w{window} v{commitment} {ending}")?;
                if horizon.caution != 0.0 {
                    write!(f, " caution {}", horizon.caution)?;
                }
                if horizon.spread {
                    write!(f, " spread")?;
                }
                Ok(())
            }
            Self::Expectation(expectation) => write!(f, "expectation m{}", expectation.memory),
        }
    }
}

#[cfg(test)]
mod tests;
