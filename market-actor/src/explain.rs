//! Why a decision was taken: what was known, what else could have been done and what each would have come to, who won.
//!
//! An alternative is judged by playing the job on: this slot with its number of machines, then the same policy, in a market
//! that is what the policy expected (the means of its foresight, the last of them on and on). So its figure is what the policy
//! had to go by, not what came. NET: an alternative that the safety net does not let pass says so; it may earn more and is not
//! taken, since the promise of the deadline comes first.

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;

use crate::market::{Market, Pool, Slot};
use crate::policy::foresight::{Foresight, Perfect, View};
use crate::policy::net::guard;
use crate::policy::{Memory, Policy, Safety};
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::episode::{Course, Outcome, Standing, filled, play_from};
use crate::problem::offer::{Held, Offer, hourly};

/// One number of machines and what it comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The cheapest way to hold it.
    pub held: Held,
    /// Of this slot.
    pub cost: MicroUsd,
    /// Work of this slot.
    pub gained: f64,
    /// Whether the safety net lets it pass.
    pub passes: bool,
    /// Utility from here on if all comes as expected, millionths of a dollar.
    pub utility: i64,
    /// What is paid from here on if all comes as expected.
    pub spent: MicroUsd,
    /// Slots since the job began until it would be done; nothing when it would not.
    pub completed: Option<u32>,
    /// Whether it is the one that was decided for.
    pub chosen: bool,
}

/// A decision with all that it depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The policy.
    pub policy: String,
    /// Where the job stands.
    pub standing: Standing,
    /// Work left.
    pub remaining: f64,
    /// Slots up to the soft deadline, this one included.
    pub slots_left: u32,
    /// Slots that flat out on demand would take from here.
    pub slots_flat_out: Option<u32>,
    /// What this slot offers.
    pub offer: Offer,
    /// What is expected of the next.
    pub expected: Vec<View>,
    /// What is done, and why.
    pub decision: Decision,
    /// What the policy wished before the safety net, where that is another.
    pub wished: Option<Held>,
    /// All numbers of machines that can be had, rising.
    pub alternatives: Vec<Alternative>,
    /// By how much the utility of the chosen one is above that of the best other that passes, millionths of a dollar; below 0
    /// where another is expected to earn more. Nothing where there is no other.
    pub margin: Option<i64>,
}

/// The chosen one against the others that pass, on the scale of [`Alternative::utility`].
fn margin(alternatives: &[Alternative]) -> Option<i64> {
    let chosen = alternatives.iter().find(|one| one.chosen)?.utility;
    let others = alternatives.iter().filter(|one| one.passes && !one.chosen);
    let best = others.map(|one| one.utility).max()?;
    Some(chosen.saturating_sub(best))
}

/// Who decides.
#[derive(Clone, Copy)]
pub struct Decider<'a> {
    /// The policy.
    pub policy: Policy,
    /// What it is told of the slots to come.
    pub foresight: &'a dyn Foresight,
    /// The net under it.
    pub safety: Safety,
}

impl std::fmt::Debug for Decider<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decider")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Explains what `decider` does in a situation, `ahead` slots of its foresight with it.
#[must_use]
pub fn explain(
    situation: &Situation<'_>,
    decider: &Decider<'_>,
    memory: &Memory,
    ahead: u32,
) -> Explanation {
    let problem = situation.problem;
    let mut own = memory.clone();
    let decision = decider
        .policy
        .decide(situation, decider.foresight, &mut own, decider.safety);
    let wished = match decision.reason {
        Reason::SafetyNet { .. } | Reason::Locked => {
            // A net without reserve at the hard deadline lets every wish pass.
            let mut free = problem.clone();
            free.soft_deadline = problem.hard_deadline;
            let loose = Situation {
                problem: &free,
                ..*situation
            };
            let mut own = memory.clone();
            let wish =
                decider
                    .policy
                    .decide(&loose, decider.foresight, &mut own, Safety::default());
            Some(wish.held).filter(|held| *held != decision.held)
        }
        _ => None,
    };
    let expected = decider.foresight.look(situation, ahead);
    let market = imagined(situation, &expected);
    let counts = problem.actions();
    let mut alternatives: Vec<Alternative> = counts
        .into_iter()
        .filter_map(|count| situation.offer.fill(count))
        .map(|held| {
            alternative(
                situation,
                decider,
                &market,
                memory,
                held,
                decision.held == held,
            )
        })
        .collect();
    if !alternatives.iter().any(|one| one.chosen) {
        let own = alternative(situation, decider, &market, memory, decision.held, true);
        let at = alternatives.partition_point(|one| one.held.count() <= decision.held.count());
        alternatives.insert(at, own);
    }
    Explanation {
        policy: decider.policy.to_string(),
        standing: standing(situation),
        remaining: situation.remaining(),
        slots_left: situation.slots_left(),
        slots_flat_out: problem.slots_flat_out(
            situation.remaining(),
            situation.held.count(),
            situation.offer.on_demand_available,
        ),
        offer: situation.offer,
        expected,
        decision,
        wished,
        margin: margin(&alternatives),
        alternatives,
    }
}

/// Where the job of a situation stands.
#[must_use]
pub fn standing(situation: &Situation<'_>) -> Standing {
    let before = situation.losses.len().saturating_sub(1);
    Standing {
        slot: situation.slot,
        progress: situation.progress,
        held: situation.held,
        losses: situation.losses[..before].to_vec(),
        waited: situation.waited,
    }
}

fn alternative(
    situation: &Situation<'_>,
    decider: &Decider<'_>,
    market: &Market,
    memory: &Memory,
    held: Held,
    chosen: bool,
) -> Alternative {
    let problem = situation.problem;
    let wish = Decision {
        held,
        reason: Reason::GivesUp,
    };
    let passes = guard(
        situation,
        wish.clone(),
        decider.safety.net,
        decider.safety.margin,
    ) == wish;
    let outcome = on(situation, decider, market, memory, held);
    let first = outcome.records.first();
    Alternative {
        held,
        cost: first.map_or(MicroUsd(0), |record| record.cost),
        gained: first.map_or(0.0, |record| record.gained),
        passes: passes || problem.done(situation.progress),
        utility: outcome.utility,
        spent: outcome.spent,
        completed: outcome.completed,
        chosen,
    }
}

/// The job goes on with `held` in this slot and by the policy after it.
fn on(
    situation: &Situation<'_>,
    decider: &Decider<'_>,
    market: &Market,
    memory: &Memory,
    held: Held,
) -> Outcome {
    let first = situation.at.saturating_sub(situation.slot as usize);
    let course = Course::plain(market, first);
    let mut own = memory.clone();
    play_from(situation.problem, &course, standing(situation), |later| {
        if later.slot == situation.slot {
            return Decision {
                held,
                reason: Reason::GivesUp,
            };
        }
        let perfect = Perfect { market };
        decider
            .policy
            .decide(later, &perfect, &mut own, decider.safety)
    })
}

/// What was, this slot, and the means of what is expected, the last of them until the hard deadline; what a market that has
/// ended does not show is as now.
fn imagined(situation: &Situation<'_>, expected: &[View]) -> Market {
    let of = |offer: &Offer| Slot {
        spot_price: hourly(offer.spot_price, situation.length),
        spot_available: offer.spot_available,
        on_demand_price: hourly(offer.on_demand_price, situation.length),
        on_demand_available: offer.on_demand_available,
    };
    let now = of(&situation.offer);
    let mut slots = situation.past.to_vec();
    slots.resize(situation.at, now);
    slots.push(now);
    slots.extend(expected.iter().map(|view| of(&view.offer(0.0))));
    let last = slots[slots.len() - 1];
    let left = situation
        .problem
        .hard_deadline
        .saturating_sub(situation.slot) as usize;
    let wanted = situation.at + left;
    if slots.len() < wanted {
        slots.resize(wanted, last);
    }
    Market {
        pool: Pool {
            provider: "expected".into(),
            region: String::new(),
            zone: String::new(),
            machine: String::new(),
        },
        start: shared::units::Micros(0),
        slot: situation.length,
        slots,
    }
}

/// A decision in an episode, played up to a slot of the job: what `decider` did before it is remembered.
#[must_use]
pub fn at_slot(
    problem: &crate::problem::Problem,
    course: &Course<'_>,
    decider: &Decider<'_>,
    slot: u32,
    ahead: u32,
) -> Option<Explanation> {
    let mut memory = Memory::since(course.first as u64);
    let mut found = None;
    let _ = play_from(problem, course, Standing::default(), |situation| {
        if situation.slot == slot {
            found = Some(explain(situation, decider, &memory, ahead));
        }
        if situation.slot >= slot {
            return filled(&situation.offer, 0, Reason::GivesUp);
        }
        decider
            .policy
            .decide(situation, decider.foresight, &mut memory, decider.safety)
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::foresight::Persistence;
    use crate::policy::horizon::Horizon;
    use crate::problem::episode::tests::market;
    use crate::problem::tests::trial;
    use crate::problem::throughput::Throughput;

    fn decider(policy: Policy) -> Decider<'static> {
        Decider {
            policy,
            foresight: &Persistence,
            safety: Safety::default(),
        }
    }

    #[test]
    fn the_winner_of_a_plan_is_the_best_of_its_alternatives_that_pass() {
        let problem = trial(
            0.5,
            Throughput::Affine {
                alpha: 0.72,
                beta: 2.0,
            },
        );
        let market = market(&[(0.3, 6); 40], 1.0);
        let planner = decider(Policy::Horizon(Horizon::track(24)));
        let course = Course::plain(&market, 2);
        let told = at_slot(&problem, &course, &planner, 3, 23).expect("the job lives then");
        assert_eq!(told.slots_left, 21);
        assert!(told.alternatives.len() == 13 && told.expected.len() == 23);
        let chosen: Vec<&Alternative> = told.alternatives.iter().filter(|one| one.chosen).collect();
        assert_eq!(chosen.len(), 1);
        let best = told
            .alternatives
            .iter()
            .filter(|one| one.passes)
            .map(|one| one.utility);
        let best = best.max().expect("some pass");
        // The plan's grid is coarser than the play.
        assert!(
            best - chosen[0].utility < problem.value.0 as i64 / 100,
            "{told:#?}"
        );
        assert!(matches!(told.decision.reason, Reason::Planned { .. }));
        let others = told
            .alternatives
            .iter()
            .filter(|one| one.passes && !one.chosen);
        let next = others.map(|one| one.utility).max().expect("some pass");
        assert_eq!(told.margin, Some(chosen[0].utility - next));
    }

    #[test]
    fn a_job_that_must_run_says_what_it_wished_for() {
        let problem = trial(0.7, Throughput::per_machine(1.0));
        let market = market(&[(0.3, 0); 40], 1.0);
        let course = Course::plain(&market, 0);
        let waiting = decider(Policy::Maximal { limit: 1.0 });
        let (mut nets, mut wishes) = (0, 0);
        for slot in 0..24 {
            let Some(told) = at_slot(&problem, &course, &waiting, slot, 4) else {
                break;
            };
            if matches!(told.decision.reason, Reason::SafetyNet { .. }) {
                nets += 1;
                wishes += u32::from(told.wished == Some(Held::default()));
                let none = &told.alternatives[0];
                assert!(none.held == Held::default() && !none.passes, "{none:?}");
            }
        }
        assert!(nets > 0, "without spot the net must hold the job");
        assert!(wishes > 0, "and the wish was to wait");
    }
}
