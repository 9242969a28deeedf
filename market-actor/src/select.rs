//! Which policy to play: learned from how all of them would have done.
//!
//! Once a job is over, its prices and capacities are known, so every member of the pool can be replayed on them: full
//! information. AdaHedge ([`weights`]) turns the replays into chances; its regret against the best fixed member is bounded on
//! any sequence. Weights are kept by regime: by pool, and if asked for by supply; what is best in a scarce pool need not be in
//! a plenty one, but each then learns from fewer jobs. The update rule of Kong et al. (arXiv 2512.20967) could not be read;
//! their bound, O(sqrt T), is met by this one.
//!
//! By utility too it is settled whether a forecaster is used ([`proof`]).

pub mod pool;
pub mod proof;
pub mod weights;
pub mod word;

use serde::{Deserialize, Serialize};
use shared::random::{Domain, Stream};

use crate::market::{Pool, Slot};
use pool::Member;
use weights::Weights;

/// The form of a stored selection.
pub const VERSION: u32 = 2;

/// Where weights hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Regime {
    /// The pool of machines.
    pub pool: Pool,
    /// How much of it there was lately; nothing where weights hold for any supply.
    pub supply: Option<Supply>,
}

/// How much spot there was lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Supply {
    /// In fewer than a third of the slots.
    Scarce,
    /// In between.
    Mixed,
    /// In more than two thirds.
    Plenty,
}

/// A pool of policies and what was learned of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    version: u32,
    members: Vec<Member>,
    keep: f64,
    seed: u64,
    regimes: Vec<(Regime, Weights)>,
}

/// Why a stored selection cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// Written by another program.
    #[error(
        "the stored selection has form {found}, this program reads {VERSION}: start without it, and it is learned anew"
    )]
    Version {
        /// The form found.
        found: u32,
    },
    /// Not a selection.
    #[error("the stored selection cannot be read: {0}: start without it, and it is learned anew")]
    Broken(#[from] serde_json::Error),
    /// Weights that do not fit the members.
    #[error(
        "the stored selection has {weights} weights for {members} members: start without it, and it is learned anew"
    )]
    Unlike {
        /// Weights of some regime.
        weights: usize,
        /// Members.
        members: usize,
    },
    /// No member.
    #[error("a selection among no policies: give at least one")]
    Empty,
    /// What is kept of a round is no share.
    #[error("{0} of a round kept after the next: it must be above 0 and at most 1")]
    Keep(f64),
}

impl Supply {
    /// Of the last slots.
    #[must_use]
    pub fn of(past: &[Slot]) -> Self {
        let some = past
            .iter()
            .filter(|slot| slot.spot_available > 0 && slot.spot_price < slot.on_demand_price)
            .count();
        if past.is_empty() {
            Self::Mixed
        } else if 3 * some < past.len() {
            Self::Scarce
        } else if 3 * some > 2 * past.len() {
            Self::Plenty
        } else {
            Self::Mixed
        }
    }
}

impl Selection {
    /// Nothing learned yet. `keep` is what a round is worth after one more: 1 has the best guarantee, a little less follows
    /// a market that changes (`docs/market-policies.md`).
    ///
    /// # Errors
    /// When there is no member, or what is kept is no share.
    pub fn new(members: Vec<Member>, keep: f64, seed: u64) -> Result<Self, SelectionError> {
        let fresh = Self {
            version: VERSION,
            members,
            keep,
            seed,
            regimes: Vec::new(),
        };
        fresh.check()?;
        Ok(fresh)
    }

    /// The members, in order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The chance of each member in a regime.
    #[must_use]
    pub fn chances(&self, regime: &Regime) -> Vec<f64> {
        self.regimes
            .iter()
            .find(|(known, _)| known == regime)
            .map_or_else(
                || Weights::new(self.members.len(), self.keep).chances(),
                |(_, weights)| weights.chances(),
            )
    }

    /// The member for the next job of a regime, drawn by its chances; `job` keys the draw.
    #[must_use]
    pub fn choose(&self, regime: &Regime, job: u64) -> usize {
        let place = [job as u32, (job >> 32) as u32, 3];
        let draw = Stream::new(self.seed, Domain::Policy, place).uniform64(0);
        let mut sum = 0.0;
        let chances = self.chances(regime);
        chances
            .iter()
            .position(|chance| {
                sum += chance;
                draw < sum
            })
            .unwrap_or(chances.len() - 1)
    }

    /// Learns from a job that is over: what each member would have earned, and the range that is mapped to `[0, 1]`;
    /// what lies outside is cut.
    ///
    /// # Panics
    /// When there are not as many utilities as members.
    pub fn learn(&mut self, regime: &Regime, utilities: &[f64], low: f64, high: f64) {
        assert_eq!(
            utilities.len(),
            self.members.len(),
            "every member is replayed"
        );
        let at = match self
            .regimes
            .binary_search_by(|(known, _)| known.cmp(regime))
        {
            Ok(at) => at,
            Err(at) => {
                let fresh = Weights::new(self.members.len(), self.keep);
                self.regimes.insert(at, (regime.clone(), fresh));
                at
            }
        };
        let scaled: Vec<f64> = utilities
            .iter()
            .map(|utility| weights::scale(*utility, low, high))
            .collect();
        self.regimes[at].1.learn(&scaled);
    }

    /// The same knowledge for another pool: members that stay keep what was learned, new ones begin at the mean of the
    /// rest by their chances.
    ///
    /// # Errors
    /// When there is no member.
    pub fn adopt(&self, members: Vec<Member>) -> Result<Self, SelectionError> {
        let mut next = Self::new(members, self.keep, self.seed)?;
        for (regime, weights) in &self.regimes {
            let chances = weights.chances();
            let sums = weights.sums();
            let mean: f64 = chances.iter().zip(sums).map(|(c, s)| c * s).sum();
            let known = next.members.iter().map(|member| {
                let before = self.members.iter().position(|old| old == member);
                before.map_or(mean, |at| sums[at])
            });
            let kept = weights.resumed(known.collect());
            next.regimes.push((regime.clone(), kept));
        }
        Ok(next)
    }

    /// The selection as JSON.
    ///
    /// # Errors
    /// None that a selection can cause.
    pub fn to_json(&self) -> Result<String, SelectionError> {
        Ok(serde_json::to_string(self)?)
    }

    /// A selection that [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// When it is of another form, or broken.
    pub fn from_json(text: &str) -> Result<Self, SelectionError> {
        #[derive(Deserialize)]
        struct Form {
            version: u32,
        }
        let form: Form = serde_json::from_str(text)?;
        if form.version != VERSION {
            return Err(SelectionError::Version {
                found: form.version,
            });
        }
        let mut stored: Self = serde_json::from_str(text)?;
        stored.regimes.sort_by(|a, b| a.0.cmp(&b.0));
        stored.check()?;
        Ok(stored)
    }

    fn check(&self) -> Result<(), SelectionError> {
        if self.members.is_empty() {
            return Err(SelectionError::Empty);
        }
        if !(self.keep > 0.0 && self.keep <= 1.0) {
            return Err(SelectionError::Keep(self.keep));
        }
        for (_, weights) in &self.regimes {
            if !weights.fits(self.members.len()) {
                return Err(SelectionError::Unlike {
                    weights: weights.sums().len(),
                    members: self.members.len(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
