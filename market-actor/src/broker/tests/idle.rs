//! Machines without a stage: they are no part of a rate, they show in the bill, and no policy takes one.

use super::super::*;
use super::world::*;
use crate::policy::Policy;

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
