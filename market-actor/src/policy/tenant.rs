//! Rules of a tenant over whatever its policy wishes.
//!
//! Before the policy looks, [`Rules::offer`] takes away what the tenant will not have: spot at all, a region, spot above a
//! price, a pool that took machines too often. After it, [`Rules::amend`] ends a wait that has lasted long enough. Policies
//! need not know any of it: they see a poorer market.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use shared::units::{MicroUsd, Micros};

use crate::market::Pool;
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::episode::filled;
use crate::problem::offer::{Offer, slot_price};

/// Micros of an hour.
const HOUR: u64 = 3_600_000_000;

/// What a tenant allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// On-demand only.
    #[serde(default)]
    pub no_spot: bool,
    /// Regions where the job may be; all when empty.
    #[serde(default)]
    pub regions: BTreeSet<String>,
    /// Of each of these a zone or region must be where the job is.
    #[serde(default)]
    pub within: BTreeSet<BTreeSet<String>>,
    /// Whether it may be nowhere: tenants that share machines allow no region in common.
    #[serde(default)]
    pub nowhere: bool,
    /// Most that a spot machine may cost for an hour.
    #[serde(default)]
    pub max_spot_price: Option<MicroUsd>,
    /// Slots in a row without spot after which the job does not wait but goes on demand.
    #[serde(default)]
    pub wait_at_most: Option<u32>,
    /// When to leave spot of a pool alone.
    #[serde(default)]
    pub leave: Option<Leave>,
}

/// When spot is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// Machines lost within an hour that are too many.
    pub losses: u32,
    /// Slots without spot from the last of them on.
    pub slots: u32,
}

impl Rules {
    /// Whether the job may be in a pool at all.
    #[must_use]
    pub fn allows(&self, pool: &Pool) -> bool {
        let within =
            |names: &BTreeSet<String>| names.contains(&pool.region) || names.contains(&pool.zone);
        let there = self.regions.is_empty() || self.regions.contains(&pool.region);
        !self.nowhere && there && self.within.iter().all(within)
    }

    /// What both allow: of each rule the stricter.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let least = |a: Option<MicroUsd>, b: Option<MicroUsd>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, two) => one.or(two),
        };
        let (mut regions, mut nowhere) = (self.regions, self.nowhere || other.nowhere);
        if regions.is_empty() {
            regions.clone_from(&other.regions);
        } else if !other.regions.is_empty() {
            regions.retain(|region| other.regions.contains(region));
            nowhere |= regions.is_empty();
        }
        let wait_at_most = match (self.wait_at_most, other.wait_at_most) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, two) => one.or(two),
        };
        let leave = match (self.leave, other.leave) {
            (Some(a), Some(b)) => Some(Leave {
                losses: a.losses.min(b.losses),
                slots: a.slots.max(b.slots),
            }),
            (one, two) => one.or(two),
        };
        Self {
            no_spot: self.no_spot || other.no_spot,
            regions,
            within: self.within.union(&other.within).cloned().collect(),
            nowhere,
            max_spot_price: least(self.max_spot_price, other.max_spot_price),
            wait_at_most,
            leave,
        }
    }

    /// What is left of a slot's offer.
    #[must_use]
    pub fn offer(&self, pool: &Pool, situation: &Situation<'_>) -> Offer {
        let mut offer = situation.offer;
        if !self.allows(pool) {
            offer.on_demand_available = Some(0);
            offer.spot_available = 0;
        }
        self.less(offer, situation.losses, situation.length)
    }

    /// An offer of pools that are allowed, with losses by slot, the last under way: without spot where that is not allowed, too
    /// dear or taken too often.
    #[must_use]
    pub fn less(&self, mut offer: Offer, losses: &[u32], length: Micros) -> Offer {
        let dear = self
            .max_spot_price
            .is_some_and(|limit| offer.spot_price > slot_price(limit, length).0 as f64);
        if self.no_spot || dear || self.leaves(losses, length) {
            offer.spot_available = 0;
        }
        offer
    }

    /// Whether spot of a pool may be had at its price for an hour.
    #[must_use]
    pub fn allows_spot(&self, price: MicroUsd) -> bool {
        !self.no_spot && self.max_spot_price.is_none_or(|limit| price <= limit)
    }

    /// Ends a wait that has lasted as long as the tenant allows.
    #[must_use]
    pub fn amend(&self, situation: &Situation<'_>, decision: Decision) -> Decision {
        let Some(most) = self.wait_at_most else {
            return decision;
        };
        let waits = matches!(decision.reason, Reason::Waits { .. })
            || matches!(decision.reason, Reason::Planned { .. });
        if decision.held.count() > 0 || situation.waited < most || !waits {
            return decision;
        }
        let problem = situation.problem;
        let slot = f64::from(situation.slot);
        let target = problem.even_pace(slot + 1.0);
        let count = problem
            .least_for(situation.progress, target, 0)
            .max(problem.fewest);
        // Fewer than do work are not taken: then the wait goes on.
        let there = situation.offer.fill_most(count).count();
        let count = problem.allowed(problem.thrifty(there));
        if count == 0 {
            return decision;
        }
        let reason = Reason::WaitedEnough {
            slots: situation.waited,
        };
        filled(&situation.offer, count, reason)
    }

    /// Whether a pool that lost so many machines by slot, the last under way, took too many not long ago.
    #[must_use]
    pub fn leaves(&self, losses: &[u32], length: Micros) -> bool {
        let Some(leave) = self.leave else {
            return false;
        };
        let hour = (HOUR.div_ceil(length.0.max(1)) as usize).max(1);
        let from = losses.len().saturating_sub(leave.slots as usize);
        (from..losses.len()).any(|at| {
            if losses[at] == 0 {
                return false;
            }
            let within = &losses[(at + 1).saturating_sub(hour)..=at];
            let lost = within
                .iter()
                .fold(0, |sum: u32, lost| sum.saturating_add(*lost));
            lost >= leave.losses.max(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::foresight::Persistence;
    use crate::policy::{Memory, Policy, Safety};
    use crate::problem::episode::tests::market;
    use crate::problem::episode::{Course, Outcome, play};
    use crate::problem::offer::Held;
    use crate::problem::tests::trial;
    use crate::problem::throughput::Throughput;

    fn lived(rules: &Rules, policy: Policy, slots: &[(f64, u32)]) -> Outcome {
        let problem = trial(0.3, Throughput::per_machine(1.0));
        let market = market(slots, 1.0);
        let mut memory = Memory::default();
        play(&problem, &Course::plain(&market, 0), |situation| {
            policy.decide_under(
                rules,
                &market.pool,
                situation,
                &Persistence,
                &mut memory,
                Safety::default(),
            )
        })
    }

    #[test]
    fn no_spot_means_none_and_the_deadline_holds() {
        for rules in [
            Rules {
                no_spot: true,
                ..Rules::default()
            },
            Rules {
                max_spot_price: Some(MicroUsd(500_000)),
                ..Rules::default()
            },
        ] {
            for policy in [
                Policy::Maximal { limit: 1.0 },
                Policy::BuyAhead { sigma: 0.9 },
            ] {
                let outcome = lived(&rules, policy, &[(0.3, 12); 24]);
                assert!(outcome.records.iter().all(|r| r.decision.held.spot == 0));
                assert!(!outcome.missed);
            }
        }
    }

    #[test]
    fn a_region_that_is_not_allowed_gives_nothing() {
        let rules = Rules {
            regions: BTreeSet::from(["eu-central-1".to_owned()]),
            ..Rules::default()
        };
        let outcome = lived(&rules, Policy::OnDemand, &[(0.3, 12); 24]);
        assert_eq!(outcome.spent, MicroUsd(0));
    }

    #[test]
    fn two_tenants_without_a_region_in_common_have_none() {
        let of = |region: &str| Rules {
            regions: BTreeSet::from([region.to_owned()]),
            ..Rules::default()
        };
        let pool = market(&[(0.3, 1)], 1.0).pool;
        let here = of(&pool.region);
        assert!(here.allows(&pool));
        assert!(here.clone().and(&Rules::default()).allows(&pool));
        assert!(!here.and(&of("elsewhere")).allows(&pool));
    }

    #[test]
    fn waiting_ends_after_as_many_slots_as_allowed() {
        let rules = Rules {
            wait_at_most: Some(3),
            ..Rules::default()
        };
        let outcome = lived(&rules, Policy::Maximal { limit: 1.0 }, &[(0.3, 0); 24]);
        let held: Vec<u32> = outcome
            .records
            .iter()
            .map(|r| r.decision.held.count())
            .collect();
        assert_eq!(held[..3], [0, 0, 0]);
        assert!(held[3] > 0);
        assert_eq!(outcome.records[3].decision.reason.word(), "waited-enough");
        assert!(!outcome.missed);
    }

    #[test]
    fn a_wait_does_not_end_with_fewer_machines_than_do_work() {
        let mut problem = trial(0.3, Throughput::per_machine(1.0));
        problem.fewest = 2;
        let rules = Rules {
            wait_at_most: Some(3),
            ..Rules::default()
        };
        for (there, count) in [(1, 0), (2, 2)] {
            let mut market = market(&[(0.3, 0); 24], 1.0);
            for slot in &mut market.slots {
                slot.on_demand_available = Some(there);
            }
            let outcome = play(&problem, &Course::plain(&market, 0), |situation| {
                let waits = Decision {
                    held: Held::default(),
                    reason: Reason::Waits {
                        slots_left: 20,
                        slots_needed: 2,
                    },
                };
                let amended = rules.amend(situation, waits);
                assert!([0, 2].contains(&amended.held.count()), "{amended:?}");
                amended
            });
            assert_eq!(outcome.records[3].decision.held.count(), count);
        }
    }

    #[test]
    fn a_pool_that_takes_too_often_is_left_for_a_while() {
        let rules = Rules {
            leave: Some(Leave {
                losses: 1,
                slots: 4,
            }),
            ..Rules::default()
        };
        let slots: Vec<(f64, u32)> = [(0.3, 8), (0.3, 2)]
            .into_iter()
            .chain([(0.3, 8); 20])
            .collect();
        let outcome = lived(&rules, Policy::Maximal { limit: 1.0 }, &slots);
        let spot: Vec<u32> = outcome
            .records
            .iter()
            .map(|r| r.decision.held.spot)
            .collect();
        assert_eq!(spot[..7], [8, 0, 0, 0, 0, 8, 8]);
    }

    #[test]
    fn machines_lost_within_an_hour_count_however_few_slots_that_has() {
        let rules = Rules {
            leave: Some(Leave {
                losses: 3,
                slots: 4,
            }),
            ..Rules::default()
        };
        let half = Micros(HOUR / 2);
        assert!(!rules.leaves(&[0, 1, 1, 0], half));
        assert!(rules.leaves(&[0, 2, 1, 0], half) && rules.leaves(&[3, 0, 0, 0], half));
        assert!(!rules.leaves(&[3, 0, 0, 0, 0], half), "it is over");
    }
}
