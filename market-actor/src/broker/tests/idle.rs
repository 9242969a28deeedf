//! Machines without a stage: they are no part of a rate, they show in the bill, and no policy takes one.

use super::super::*;
use super::world::*;
use crate::policy::Policy;
use crate::provider::Certainty;

#[test]
fn a_rate_is_that_of_machines_that_hold_a_stage() {
    let rate = |fewest: u32| {
        let mut wide = terms();
        (wide.fewest, wide.choice) = (fewest, fixed(Policy::OnDemand));
        let mut world = World::new(wide, 0);
        world.seats = 2;
        world.pass(200);
        world.decided().rate
    };
    let (all, half) = (rate(2), rate(4));
    assert!(
        (half / all - 1.0).abs() < 0.1,
        "{all} and {half} tokens in a slot"
    );
}

#[test]
fn machines_without_a_stage_are_waste_on_the_bill() {
    let waste = |seats: usize| {
        let mut wide = terms();
        wide.fewest = 4;
        let mut world = World::new(wide, 4);
        world.seats = seats;
        world.pass(300);
        let account = world.broker.purse.of(JobId(1));
        account.waste.0 as f64 / account.spent().0 as f64
    };
    assert!(waste(4) < 0.1, "{}", waste(4));
    assert!(waste(2) > 0.45, "{}", waste(2));
}

#[test]
fn no_policy_takes_a_machine_that_would_have_nothing_to_do() {
    for policy in [
        Policy::Maximal { limit: 1.0 },
        Policy::Uniform { mixed: false },
        Policy::Uniform { mixed: true },
        Policy::BuyAhead { sigma: 0.9 },
        Policy::Ross { seed: 3 },
    ] {
        let mut staged = terms();
        (staged.stages, staged.replicas, staged.fewest) = (2, 2, 2);
        staged.choice = fixed(policy);
        // Five or six would be there.
        for spot in [3, 5, 6] {
            let mut world = World::new(staged.clone(), spot);
            world.seats = 4;
            for _ in 0..8 {
                world.pass(30);
                let target = world.broker.target();
                assert!([0, 2, 4].contains(&target.count()), "{policy}: {target:?}");
            }
        }
    }
}

#[test]
fn nodes_of_a_fixed_list_without_a_stage_are_idle_too() {
    let seen = |seats: usize| {
        let mut wide = terms();
        (wide.fewest, wide.choice) = (4, fixed(Policy::OnDemand));
        let mut world = World::new(wide, 0);
        (world.seats, world.listed) = (seats, true);
        world.pass(200);
        let account = world.broker.purse.of(JobId(1));
        let waste = account.waste.0 as f64 / account.spent().0 as f64;
        (world.decided().rate, waste)
    };
    let (all, half) = (seen(4), seen(2));
    assert!((half.0 / all.0 - 1.0).abs() < 0.1, "{all:?} and {half:?}");
    assert!(half.1 > 0.4, "{half:?}");
}

#[test]
fn who_has_no_stage_is_given_up_first() {
    let mut wide = terms();
    (wide.fewest, wide.deadline) = (4, Micros(400 * 60 * S));
    wide.choice = fixed(Policy::OnDemand);
    let mut world = World::new(wide.clone(), 0);
    (world.seats, world.newest) = (2, true);
    world.pass(90);
    let names: Vec<NodeName> = world
        .machines
        .values()
        .map(|want| world.node(want))
        .collect();
    assert_eq!(names.len(), 4);
    wide.fewest = 2;
    world.restart(wide, 1);
    world.pass(200);
    assert_eq!(world.machines.len(), 2);
    let left: Vec<NodeName> = world
        .machines
        .values()
        .map(|want| world.node(want))
        .collect();
    assert_eq!(left, names[2..]);
}

#[test]
fn a_machine_that_has_its_notice_works_to_its_end() {
    let mut wide = terms();
    (wide.fewest, wide.choice) = (2, fixed(Policy::OnDemand));
    wide.deadline = Micros(400 * 60 * S);
    let mut world = World::new(wide, 0);
    // The coordinator does not take its work off it in time.
    world.deaf = true;
    world.pass(60);
    for _ in 0..16 {
        let (id, _) = world.first(Kind::OnDemand);
        world.signal(&id, Certainty::Notice);
        world.pass(21);
    }
    let rate = world.decided().rate / 600.0;
    assert!((rate - 1.0).abs() < 0.1, "{rate} of what a machine does");
    let account = world.broker.purse.of(JobId(1));
    let waste = account.waste.0 as f64 / account.spent().0 as f64;
    assert!(waste < 0.1, "{waste}");
}
