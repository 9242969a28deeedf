//! Episodes counted by hand.

use shared::units::Micros;

use super::*;
use crate::market::{Pool, Slot};
use crate::problem::tests::trial;

/// Slots of half an hour; prices of a slot in dollars.
pub(crate) fn market(spot: &[(f64, u32)], on_demand: f64) -> Market {
    let hourly = |price: f64| MicroUsd((price * 2e6).round() as u64);
    Market {
        pool: Pool {
            provider: "test".into(),
            region: String::new(),
            zone: String::new(),
            machine: "m".into(),
        },
        start: Micros(0),
        slot: Micros(1_800_000_000),
        slots: spot
            .iter()
            .map(|&(price, available)| Slot {
                spot_price: hourly(price),
                spot_available: available,
                on_demand_price: hourly(on_demand),
                on_demand_available: None,
            })
            .collect(),
    }
}

fn steady(count: u32) -> impl FnMut(&Situation<'_>) -> Decision {
    move |situation| {
        filled(
            &situation.offer,
            count,
            Reason::EvenPace { machines: count },
        )
    }
}

#[test]
fn an_episode_is_what_it_is_by_hand() {
    let mut problem = trial(0.5, Throughput::per_machine(1.0));
    problem.work = 20.0;
    let market = market(&[(0.25, 4), (0.5, 8), (2.0, 8), (0.5, 0)], 1.0);
    let outcome = play(&problem, &Course::plain(&market, 0), steady(6));
    // 5.4 + 6 + 6 + 6: done in four slots.
    assert_eq!(outcome.completed, Some(4));
    assert!((outcome.progress - 23.4).abs() < 1e-9);
    let costs: Vec<u64> = outcome.records.iter().map(|r| r.cost.0).collect();
    assert_eq!(costs, [3_000_000, 3_000_000, 6_000_000, 6_000_000]);
    assert_eq!(outcome.spent, MicroUsd(18_000_000));
    assert_eq!(outcome.utility, 216_000_000 - 18_000_000);
    assert_eq!(outcome.records[0].waste, MicroUsd(300_000));
    assert!(!outcome.missed);
}

#[test]
fn exchanging_machines_costs_what_the_job_says() {
    let mut problem = trial(0.5, Throughput::per_machine(1.0));
    problem.reconfigure.replace = 0.8;
    problem.work = 11.0;
    let market = market(&[(0.5, 6), (0.5, 0), (0.5, 0)], 1.0);
    let outcome = play(&problem, &Course::plain(&market, 0), steady(6));
    let gains: Vec<f64> = outcome.records.iter().map(|r| r.gained).collect();
    assert!((gains[0] - 5.4).abs() < 1e-9 && (gains[1] - 4.8).abs() < 1e-9);
    assert_eq!(outcome.reconfigurations, 2);
}

#[test]
fn a_reclaim_inside_a_slot_takes_work_and_is_paid_up_to_it() {
    let mut problem = trial(0.5, Throughput::per_machine(1.0));
    problem.reconfigure.lost = 0.1;
    problem.work = 7.0;
    let market = market(&[(0.5, 2), (0.5, 2), (0.5, 2)], 1.0);
    let reclaims = BTreeMap::from([(
        0,
        Reclaim {
            offered: 8,
            after: 0.5,
        },
    )]);
    let course = Course {
        reclaims: &reclaims,
        ..Course::plain(&market, 0)
    };
    let outcome = play(&problem, &course, steady(8));
    let first = &outcome.records[0];
    assert_eq!(first.reclaimed, 6);
    // .9 * .5 * 8 + .95 * .5 * 2 - .1 * 8
    assert!((first.gained - (3.6 + 0.95 - 0.8)).abs() < 1e-9);
    // Eight for half of the slot, two for the rest.
    assert_eq!(first.cost, MicroUsd(2_500_000));
    assert_eq!(outcome.records[1].decision.held.spot, 2);
    assert!(outcome.records[1].reconfigured);
}

#[test]
fn beyond_the_offer_is_cut_and_beyond_the_deadline_nothing_happens() {
    let problem = trial(0.5, Throughput::per_machine(1.0));
    let mut market = market(&[(0.5, 2)], 1.0);
    market.slots[0].on_demand_available = Some(1);
    let wish = |_: &Situation<'_>| Decision {
        held: Held {
            spot: 9,
            on_demand: 9,
        },
        reason: Reason::GivesUp,
    };
    let outcome = play(&problem, &Course::plain(&market, 0), wish);
    assert_eq!(outcome.records.len(), 36);
    let first = outcome.records[0].decision.held;
    assert_eq!((first.spot, first.on_demand), (2, 1));
    assert_eq!(outcome.records[1].decision.held.count(), 1);
    assert!(outcome.missed && outcome.completed.is_none() && outcome.value.0 == 0);
    assert_eq!(reasons(&outcome.records)["gives-up"], 36);
}

#[test]
fn a_curve_that_changes_is_known_from_then_on() {
    let mut problem = trial(0.5, Throughput::per_machine(1.0));
    problem.work = 20.0;
    let market = market(&[(0.5, 9); 8], 1.0);
    let curves = [(2, Throughput::per_machine(0.5))];
    let course = Course {
        curves: &curves,
        ..Course::plain(&market, 0)
    };
    let mut seen = Vec::new();
    let outcome = play(&problem, &course, |situation| {
        seen.push(situation.problem.throughput.at(4));
        filled(&situation.offer, 4, Reason::GivesUp)
    });
    assert_eq!(seen[..3], [4.0, 4.0, 2.0]);
    assert!((outcome.records[3].gained - 2.0).abs() < 1e-9);
}

#[test]
fn coarse_slots_say_what_vanishes_inside_them() {
    let fine = market(
        &[(0.1, 8), (0.2, 8), (0.3, 2), (0.4, 1), (0.5, 5), (0.6, 5)],
        1.0,
    );
    let (coarse, reclaims) = coarsen(&fine, 4);
    assert_eq!(coarse.slots.len(), 1);
    assert_eq!(coarse.slots[0].spot_available, 1);
    assert_eq!(coarse.slots[0].spot_price, MicroUsd(200_000));
    assert_eq!(
        reclaims[&0],
        Reclaim {
            offered: 8,
            after: 0.5
        }
    );
    assert_eq!(coarse.slot, Micros(7_200_000_000));
}
