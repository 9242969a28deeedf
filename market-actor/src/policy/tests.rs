//! What holds under every policy, on markets drawn at random.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::foresight::{Autoregression, Perfect, Persistence};
use super::share::{Claim, Shares};
use super::*;
use crate::problem::Problem;
use crate::problem::episode::tests::market;
use crate::problem::episode::{Course, Outcome, Reclaim, play};
use crate::problem::offer::{Held, Offer};
use crate::problem::tests::trial;
use crate::problem::throughput::Throughput;

fn every() -> Vec<Policy> {
    let light = Expectation {
        capacities: 3,
        prices: 2,
        cells: 24,
        ..Expectation::default()
    };
    let mut policies = vec![
        Policy::OnDemand,
        Policy::Maximal { limit: 1.0 },
        Policy::Maximal { limit: 0.5 },
        Policy::Uniform { mixed: false },
        Policy::Uniform { mixed: true },
        Policy::BuyAhead { sigma: 0.7 },
        Policy::Ross { seed: 1 },
        Policy::Expectation(light),
    ];
    for ending in [
        Ending::Track { rho: 0.6 },
        Ending::CostToGo,
        Ending::Chain(light),
    ] {
        policies.push(Policy::Horizon(Horizon {
            ending,
            cells: 60,
            ..Horizon::track(4)
        }));
    }
    policies.push(Policy::Horizon(Horizon {
        spread: true,
        cells: 60,
        ..Horizon::track(4)
    }));
    policies.push(Policy::Horizon(Horizon {
        commitment: 3,
        caution: 1.0,
        cells: 60,
        ..Horizon::track(5)
    }));
    policies
}

fn live(policy: &Policy, problem: &Problem, course: &Course<'_>, safety: Safety) -> Outcome {
    let mut memory = Memory::default();
    let drift = Autoregression { memory: 48 };
    play(problem, course, |situation| {
        policy.decide(situation, &drift, &mut memory, safety)
    })
}

fn job(load: f64, curve: usize, fewest: u32, replace: f64) -> Problem {
    let curves = [
        Throughput::per_machine(1.0),
        Throughput::Affine {
            alpha: 0.72,
            beta: 2.0,
        },
        Throughput::measured(&[(1, 1.0), (4, 3.4), (8, 6.0), (12, 7.0)]).unwrap(),
    ];
    let mut problem = trial(load, curves[curve].clone());
    problem.soft_deadline = 10;
    problem.hard_deadline = 15;
    problem.fewest = fewest;
    problem.reconfigure.replace = replace;
    // The most that flat out can do, times the load.
    let rate = problem.throughput.at(problem.fastest(None));
    problem.work = load * (9.0 + problem.reconfigure.grow) * rate;
    problem
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// NET-1: no policy misses a deadline that on-demand can meet, whatever spot does, reclaims inside slots included.
    #[test]
    fn no_deadline_is_missed(
        slots in proptest::collection::vec((0.05f64..1.5, 0u32..17), 26),
        reclaims in proptest::collection::btree_map(14usize..26, (0u32..17, 0.0f64..1.0), 0..8),
        load in 0.2f64..1.0,
        curve in 0usize..3,
        fewest in 1u32..5,
        replace in 0.85f64..1.0,
        lock in any::<bool>(),
    ) {
        let market = market(&slots, 1.0);
        let mut problem = job(load, curve, fewest, replace);
        let reclaims: BTreeMap<usize, Reclaim> = reclaims
            .into_iter()
            .map(|(at, (offered, after))| (at, Reclaim { offered, after }))
            .collect();
        let safety = Safety {
            net: if lock { Net::Lock } else { Net::Least },
            margin: 0,
        };
        for policy in every() {
            problem.reclaims = false;
            let plain = live(&policy, &problem, &Course::plain(&market, 14), safety);
            prop_assert!(!plain.missed, "{} missed: {:?}", policy, plain);
            problem.reclaims = true;
            problem.reconfigure.lost = 0.2;
            let course = Course { reclaims: &reclaims, ..Course::plain(&market, 14) };
            let hit = live(&policy, &problem, &course, safety);
            prop_assert!(!hit.missed, "{} missed under reclaims: {:?}", policy, hit);
            problem.reconfigure.lost = 0.0;
        }
    }

    /// The same situation gives the same decision, and what is held is always there: also when on-demand runs out.
    #[test]
    fn decisions_repeat_and_hold_what_there_is(
        slots in proptest::collection::vec((0.05f64..1.5, 0u32..17, 0u32..13), 30),
        load in 0.2f64..0.9,
        curve in 0usize..3,
    ) {
        let prices: Vec<(f64, u32)> = slots.iter().map(|slot| (slot.0, slot.1)).collect();
        let mut market = market(&prices, 1.0);
        for (slot, limit) in market.slots.iter_mut().zip(&slots) {
            slot.on_demand_available = (limit.2 < 8).then_some(limit.2);
        }
        let problem = job(load, curve, 2, 1.0);
        for policy in every() {
            let course = Course::plain(&market, 12);
            let mut wishes = Vec::new();
            let mut memory = Memory::default();
            let outcome = play(&problem, &course, |situation| {
                let wish = policy.decide(situation, &Persistence, &mut memory, Safety::default());
                wishes.push(wish.held);
                wish
            });
            for (record, wish) in outcome.records.iter().zip(&wishes) {
                prop_assert_eq!(record.decision.held, *wish, "{} asked for what is not there", policy);
                let limit = record.offer.on_demand_available.unwrap_or(u32::MAX);
                prop_assert!(wish.on_demand <= limit && wish.spot <= record.offer.spot_available);
            }
            let mut memory = Memory::default();
            let again = play(&problem, &course, |situation| {
                // A restart in each slot: the memory is stored and read.
                let stored = serde_json::to_string(&memory).unwrap();
                memory = serde_json::from_str(&stored).unwrap();
                policy.decide(situation, &Persistence, &mut memory, Safety::default())
            });
            prop_assert_eq!(again, outcome);
        }
    }
}

/// Work has no unit of its own (`problem`): in units a 128th as large all is decided alike, to the bit.
#[test]
fn the_unit_of_work_changes_no_decision() {
    let scaled = |curve: &Throughput| {
        let table = (1..=12).map(|count| curve.at(count) * 128.0);
        Throughput::Table(table.collect())
    };
    let slots = (0..40).map(|at| (0.2 + 0.1 * f64::from(at % 7), at * 5 % 13));
    let slots: Vec<(f64, u32)> = slots.collect();
    let market = market(&slots, 1.0);
    for curve in 0..3 {
        let mut problem = job(0.6, curve, 2, 0.9);
        // Neither unit is that of one machine.
        problem.throughput = scaled(&problem.throughput);
        problem.work *= 128.0;
        let mut large = problem.clone();
        large.throughput = scaled(&problem.throughput);
        large.work *= 128.0;
        for policy in every() {
            let held = |problem: &Problem| -> Vec<Held> {
                let course = Course::plain(&market, 14);
                let outcome = live(&policy, problem, &course, Safety::default());
                let records = outcome.records.iter();
                records.map(|record| record.decision.held).collect()
            };
            assert_eq!(held(&problem), held(&large), "{policy}");
            let mut usual = problem.clone();
            usual.throughput = job(0.6, curve, 2, 0.9).throughput;
            usual.work /= 128.0;
            assert_eq!(held(&problem), held(&usual), "{policy}");
        }
    }
}

#[test]
fn a_drawn_interval_is_that_of_seed_and_begin_whatever_was_seen_before() {
    let mut problem = job(0.8, 0, 1, 1.0);
    (problem.soft_deadline, problem.hard_deadline) = (60, 90);
    problem.work *= 4.0;
    let market = market(&[(0.3, 0); 200], 1.0);
    let drawn = |seed: u64, first: usize, begun: u64| {
        let mut memory = Memory::since(begun);
        let policy = Policy::Ross { seed };
        play(&problem, &Course::plain(&market, first), |situation| {
            policy.decide(situation, &Persistence, &mut memory, Safety::default())
        });
        memory.interval.expect("it was drawn")
    };
    assert_eq!(drawn(1, 14, 7), drawn(1, 60, 7));
    let seeds: Vec<Interval> = (0..9).map(|seed| drawn(seed, 14, 7)).collect();
    assert!(seeds.iter().any(|one| *one != seeds[0]), "{seeds:?}");
    // Who saw that of one job does not know that of the next.
    let jobs: Vec<Interval> = (0..9).map(|begun| drawn(1, 14, begun)).collect();
    assert!(jobs.iter().any(|one| *one != jobs[0]), "{jobs:?}");
}

#[test]
fn a_stock_out_that_ends_is_waited_for_and_one_that_does_not_is_no_panic() {
    let problem = job(0.5, 0, 1, 1.0);
    let mut market = market(&[(0.5, 0); 40], 1.0);
    for (at, slot) in market.slots.iter_mut().enumerate() {
        slot.on_demand_available = (at < 14).then_some(0);
    }
    for policy in every() {
        let outcome = live(
            &policy,
            &problem,
            &Course::plain(&market, 12),
            Safety::default(),
        );
        assert!(!outcome.missed, "{policy}");
        assert_eq!(outcome.records[0].cost.0, 0);
    }
    for slot in &mut market.slots {
        slot.on_demand_available = Some(0);
    }
    for policy in every() {
        let outcome = live(
            &policy,
            &problem,
            &Course::plain(&market, 12),
            Safety::default(),
        );
        assert!(outcome.missed && outcome.spent.0 == 0, "{policy}");
    }
}

#[test]
fn a_late_job_goes_on_while_it_pays_and_then_gives_up() {
    let mut problem = job(0.9, 0, 1, 1.0);
    let mut market = market(&[(0.5, 0); 40], 1.0);
    for slot in &mut market.slots[12..15] {
        slot.on_demand_available = Some(0);
    }
    let late = live(
        &Policy::OnDemand,
        &problem,
        &Course::plain(&market, 12),
        Safety::default(),
    );
    assert!(
        late.missed && late.completed.is_some_and(|slots| slots <= 15),
        "{late:?}"
    );
    assert!(late.utility > 0);
    assert!(
        late.records
            .iter()
            .any(|r| r.decision.reason.word() == "late")
    );
    problem.value.0 /= 4;
    let gone = live(
        &Policy::OnDemand,
        &problem,
        &Course::plain(&market, 12),
        Safety::default(),
    );
    assert_eq!(gone.records[4].decision.reason.word(), "gives-up");
    assert_eq!(gone.completed, None);
}

#[test]
fn perfect_foresight_plans_around_a_price_that_rises() {
    let problem = job(0.4, 0, 1, 1.0);
    let cheap_first: Vec<(f64, u32)> = (0..20)
        .map(|at| (if at < 16 { 0.2 } else { 0.9 }, 12))
        .collect();
    let market = market(&cheap_first, 1.0);
    let perfect = Perfect { market: &market };
    let policy = Policy::Horizon(Horizon::track(6));
    let outcome = play(&problem, &Course::plain(&market, 10), |situation| {
        policy.decide(
            situation,
            &perfect,
            &mut Memory::default(),
            Safety::default(),
        )
    });
    assert!(
        outcome
            .records
            .iter()
            .take(6)
            .all(|record| record.decision.held.spot > 0)
    );
    let mean = outcome.spent.0 as f64 / problem.work;
    assert!(mean < 0.27e6, "a unit cost {mean}");
}

/// Work that fits into any slot up to the deadline is as cheap now as later: after one of two machines has left, the job that
/// needs two goes on.
#[test]
fn a_plan_does_not_put_off_by_a_tie_what_it_may_as_well_do_now() {
    let mut problem = job(0.1, 0, 2, 1.0);
    problem.most = 4;
    problem.work = 1.5;
    problem.reclaims = true;
    let market = market(&[(0.3, 4); 40], 1.0);
    for (spot, on_demand) in [(1, 0), (0, 1), (0, 0), (2, 0)] {
        let losses = [1];
        let situation = Situation {
            problem: &problem,
            slot: 2,
            progress: 0.0,
            held: Held { spot, on_demand },
            offer: Offer::of(&market.slots[20], market.slot),
            at: 20,
            past: &market.slots[..20],
            length: market.slot,
            losses: &losses,
            waited: 0,
        };
        for horizon in [Horizon::track(6), Horizon::cost_to_go(6), Horizon::chain(4)] {
            let policy = Policy::Horizon(horizon);
            let mut memory = Memory::default();
            let decision = policy.decide(&situation, &Persistence, &mut memory, Safety::default());
            assert!(
                decision.held.count() >= 2,
                "{policy} from {spot} and {on_demand}: {decision:?}"
            );
        }
    }
}

#[test]
fn jobs_share_a_pool_by_what_spot_is_worth_to_them() {
    let market = market(&[(0.3, 8); 40], 1.0);
    let situation = |problem: &'_ Problem, progress: f64| -> Vec<f64> {
        let losses = [0];
        let situation = Situation {
            problem,
            slot: 6,
            progress,
            held: Held::default(),
            offer: Offer::of(&market.slots[20], market.slot),
            at: 20,
            past: &market.slots[..20],
            length: market.slot,
            losses: &losses,
            waited: 0,
        };
        Horizon::track(4).worth_of_spot(&situation, &Persistence, 8)
    };
    let problem = job(0.6, 1, 1, 1.0);
    let behind = situation(&problem, 0.1 * problem.work);
    let almost_done = situation(&problem, 0.95 * problem.work);
    for worth in [&behind, &almost_done] {
        assert!(worth.windows(2).all(|pair| pair[1] >= pair[0]), "{worth:?}");
    }
    let claims = BTreeMap::from([
        (
            "almost-done".to_owned(),
            Claim {
                worth: almost_done,
                weight: 1.0,
            },
        ),
        (
            "behind".to_owned(),
            Claim {
                worth: behind,
                weight: 1.0,
            },
        ),
    ]);
    let granted = Shares::new(4).grant(&claims, 8);
    assert!(granted["behind"] > granted["almost-done"], "{granted:?}");
    assert!(granted.values().sum::<u32>() <= 8);
}
