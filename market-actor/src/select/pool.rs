//! The policies to choose among, and which of them need not be kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::forecast::record::{Kind, Outlooks};
use crate::market::Market;
use crate::policy::Policy;
use crate::policy::ending::Ending;
use crate::policy::expectation::Expectation;
use crate::policy::foresight::outlook::{Asking, Guess, Recorded};
use crate::policy::foresight::{Autoregression, Foresight, Noisy, Perfect, Persistence};
use crate::policy::horizon::Horizon;

/// Where a member's foresight comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// The future itself; for judging only.
    Perfect,
    /// The future with noise; for judging only.
    Noisy {
        /// Half the width, as a share of the on-demand price and of the pool's size.
        error: f64,
        /// Seed.
        seed: u64,
    },
    /// All stays as it is.
    Persistence,
    /// Drift back to the mean of the last `memory` slots.
    Autoregression {
        /// Slots.
        memory: u32,
    },
    /// What a forecaster thinks.
    Forecast {
        /// Which.
        forecaster: Kind,
        /// A day in slots, 0 where there is no day to look for.
        day: u32,
        /// Which number stands for a distribution.
        guess: Guess,
    },
}

/// What forecasters thought at each slot of a market, by forecaster.
pub type Library = BTreeMap<Kind, Arc<Outlooks>>;

/// Slots ahead that a forecaster is asked for: what the longest window of the standard pool needs.
pub const AHEAD: usize = 11;

/// A policy and its foresight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Policy.
    pub policy: Policy,
    /// Foresight; policies that look at the past alone do not ask it.
    pub source: Source,
}

impl Source {
    /// Whether it looks at what is to come, which only a back-test can.
    #[must_use]
    pub const fn sees_the_future(&self) -> bool {
        matches!(self, Self::Perfect | Self::Noisy { .. })
    }

    /// One word.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Perfect => "perfect".into(),
            Self::Noisy { error, .. } => format!("noise {error}"),
            Self::Persistence => "persistence".into(),
            Self::Autoregression { .. } => "AR(1)".into(),
            Self::Forecast {
                forecaster, guess, ..
            } => match guess {
                Guess::Median => forecaster.word().into(),
                Guess::Mean => format!("{}, means", forecaster.word()),
            },
        }
    }

    /// Runs `act` with the foresight on a market. A forecast is read from the library; one that is not there is asked
    /// anew each slot, which says the same and takes far longer.
    pub fn with<T>(
        &self,
        market: &Market,
        library: &Library,
        act: impl FnOnce(&dyn Foresight) -> T,
    ) -> T {
        match *self {
            Self::Perfect => act(&Perfect { market }),
            Self::Noisy { error, seed } => {
                let counts = market.slots.iter().map(|slot| slot.spot_available);
                act(&Noisy {
                    market,
                    error,
                    size: counts.max().unwrap_or(0),
                    seed,
                })
            }
            Self::Persistence => act(&Persistence),
            Self::Autoregression { memory } => act(&Autoregression { memory }),
            Self::Forecast {
                forecaster,
                day,
                guess,
            } => match library.get(&forecaster) {
                Some(outlooks) => act(&Recorded { outlooks, guess }),
                None => act(&Asking {
                    forecaster: forecaster.forecast(day as usize, AHEAD).as_ref(),
                    horizon: AHEAD,
                    guess,
                }),
            },
        }
    }
}

impl Member {
    /// A policy that asks no foresight.
    #[must_use]
    pub const fn plain(policy: Policy) -> Self {
        Self {
            policy,
            source: Source::Persistence,
        }
    }

    /// Its name: the policy, and its foresight where it asks for one.
    #[must_use]
    pub fn name(&self) -> String {
        match self.policy {
            Policy::Horizon(_) => format!("{}, {}", self.policy, self.source.word()),
            _ => self.policy.to_string(),
        }
    }
}

/// The pool that a market actor begins with: nothing in it sees the future. `day` is the slots of a day.
#[must_use]
pub fn standard(day: u32) -> Vec<Member> {
    let mut members: Vec<Member> = [
        Policy::Maximal { limit: 1.0 },
        Policy::Maximal { limit: 0.5 },
        Policy::Uniform { mixed: false },
        Policy::Uniform { mixed: true },
        Policy::BuyAhead { sigma: 0.7 },
        Policy::BuyAhead { sigma: 0.4 },
        Policy::Ross { seed: 1 },
        Policy::Expectation(Expectation::default()),
        Policy::Expectation(Expectation {
            memory: 5 * day,
            ..Expectation::default()
        }),
    ]
    .into_iter()
    .map(Member::plain)
    .collect();
    let drift = Source::Autoregression { memory: 5 * day };
    for source in [Source::Persistence, drift] {
        for (window, ending) in [
            (6, Ending::Track { rho: 0.6 }),
            (6, Ending::CostToGo),
            (12, Ending::CostToGo),
        ] {
            let horizon = Horizon {
                ending,
                ..Horizon::track(window)
            };
            let policy = Policy::Horizon(horizon);
            members.push(Member { policy, source });
        }
    }
    let policy = Policy::Horizon(Horizon::chain(4));
    members.push(Member {
        policy,
        source: drift,
    });
    members
}

/// The members worth keeping, given what each earned in each past round: those that no single other member equals or beats
/// in every round. Of members that earned the same throughout the first stays. Never empty unless `utilities` is.
///
/// `utilities` is by round, then by member.
#[must_use]
pub fn prune(utilities: &[Vec<f64>]) -> Vec<usize> {
    let Some(first) = utilities.first() else {
        return Vec::new();
    };
    let members = first.len();
    let beaten = |weak: usize| {
        (0..members).any(|strong| {
            let mut better = strong < weak;
            let covers = strong != weak
                && utilities.iter().all(|round| {
                    better |= round[strong] > round[weak];
                    round[strong] >= round[weak]
                });
            covers && better
        })
    };
    (0..members).filter(|&member| !beaten(member)).collect()
}

/// The `most` members whose mean is highest, in their order: after [`prune`], what is far behind only slows learning.
#[must_use]
pub fn strongest(utilities: &[Vec<f64>], members: &[usize], most: usize) -> Vec<usize> {
    let total = |member: usize| utilities.iter().map(|round| round[member]).sum::<f64>();
    let mut ranked: Vec<(f64, usize)> = members.iter().map(|&at| (total(at), at)).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut kept: Vec<usize> = ranked.into_iter().take(most).map(|(_, at)| at).collect();
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_that_one_other_covers_are_pruned() {
        let utilities = vec![
            vec![1.0, 2.0, 2.0, 0.0, 1.5],
            vec![3.0, 2.0, 2.0, 2.0, 1.0],
            vec![0.0, 1.0, 1.0, 1.0, 0.5],
        ];
        // 1 and 2 are equal; 3 and 4 are covered by 1.
        assert_eq!(prune(&utilities), [0, 1]);
        assert_eq!(prune(&[]), [0usize; 0]);
        assert_eq!(prune(&[vec![1.0, 1.0]]), [0]);
        assert_eq!(strongest(&utilities, &[0, 1, 3], 2), [0, 1]);
    }

    #[test]
    fn the_standard_pool_has_no_two_alike_and_no_seer() {
        let members = standard(48);
        for (at, member) in members.iter().enumerate() {
            assert!(!members[..at].contains(member), "{}", member.name());
            assert!(!matches!(
                member.source,
                Source::Perfect | Source::Noisy { .. }
            ));
        }
    }
}
