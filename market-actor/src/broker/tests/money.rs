//! Budgets, and what pauses.

use super::super::*;
use super::world::*;
use crate::money::Budget;

#[test]
fn the_coordinator_is_told_what_is_offered_and_owed_and_only_what_changed() {
    let mut world = World::new(terms(), 3);
    world.pass(30);
    let told = |world: &World| {
        let told = world.done.iter().filter_map(|effect| match effect {
            Effect::Tell(told) => Some(told.as_ref().clone()),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let first = told(&world);
    let ground = first.iter().rev().find_map(|told| told.ground.clone());
    let ground = ground.expect("what is offered is told");
    assert_eq!(ground.offers[0].place.zone, "z");
    assert_eq!(ground.offers[0].spot_price, MicroUsd(300_000));
    // Ten tokens a second and machine; one that has just come works before it is seen to serve.
    let rate = ground.tokens_per_machine_hour;
    assert!((36_000..72_000).contains(&rate), "{rate}");
    let last = first.iter().rev().find(|told| !told.bills.is_empty());
    let (job, money) = last.expect("what is owed is told").bills[0];
    assert_eq!(job, JobId(1));
    let account = world.broker.purse.of(job);
    assert_eq!(
        (money.spent, money.saved),
        (account.spent(), account.saved())
    );
    // Nothing happens any more: nothing is told, until it is another that listens.
    world.jobs[0].ended = true;
    world.pass(60);
    world.done.clear();
    world.pass(5);
    assert_eq!(told(&world), []);
    // But that it is still offered, once a minute.
    world.pass(60);
    let again = told(&world);
    assert!(again.len() == 1 && again[0].ground.is_some(), "{again:?}");
    world.done.clear();
    world.take(Event::Unheard);
    world.pass(1);
    let again = told(&world);
    assert_eq!(again.len(), 1, "{again:?}");
    assert!(again[0].ground.is_some() && again[0].bills[0].0 == job);
    // Or it refused to hear it.
    world.done.clear();
    world.pass(2);
    assert_eq!(told(&world), []);
    world.take(Event::Untold);
    world.pass(1);
    assert_eq!(told(&world).first(), again.first());
}

#[test]
fn br_4_the_budget_pauses_jobs_and_gives_up_machines_before_it_is_passed() {
    let mut capped = terms();
    let cap = MicroUsd(60_000);
    capped.budget = Some(Budget {
        cap,
        warn_per_mille: 800,
    });
    let mut world = World::new(capped, 4);
    world.pass(900);
    assert!(world.jobs[0].paused && world.machines.is_empty());
    let spent = world.broker.spent();
    // The machines that are given up cost until they are empty: that was kept back.
    assert!(spent <= cap && spent.0 > 30_000, "{spent:?}");
    let alarms = world
        .done
        .iter()
        .filter(|e| matches!(e, Effect::Say { alarm: true, .. }));
    assert_eq!(alarms.count(), 1);
    let pause = world
        .done
        .iter()
        .position(|e| matches!(e, Effect::Pause(_)));
    let drain = world
        .done
        .iter()
        .position(|e| matches!(e, Effect::Drain { .. }));
    assert!(pause < drain, "what is saved first is not lost");
}

#[test]
fn br_4_machines_that_take_their_whole_grace_do_not_pass_the_budget_either() {
    // A slot of four machines costs 20,000, their grace 10,000: one of these caps leaves less than that at the end of a slot.
    for cap in [50_000, 55_000, 60_000, 65_000, 70_000].map(MicroUsd) {
        let mut capped = terms();
        capped.budget = Some(Budget {
            cap,
            warn_per_mille: 800,
        });
        let mut world = World::new(capped, 4);
        // Neither the pause nor what empties machines is heard.
        world.deaf = true;
        world.pass(900);
        assert!(world.machines.is_empty());
        let spent = world.broker.spent();
        // A machine costs until it is seen to be gone: some seconds.
        assert!(spent.0 <= cap.0 + 1_000, "{spent:?} of {cap:?}");
    }
}

#[test]
fn br_4_a_pause_that_was_not_heard_is_asked_again_also_after_a_restart() {
    let mut capped = terms();
    capped.budget = Some(Budget {
        cap: MicroUsd(40_000),
        warn_per_mille: 800,
    });
    let mut world = World::new(capped.clone(), 4);
    world.deaf = true;
    for _ in 0..60 {
        world.pass(10);
        if world.done.iter().any(|e| matches!(e, Effect::Pause(_))) {
            break;
        }
    }
    assert!(!world.jobs[0].paused, "it was not heard");
    world
        .done
        .retain(|e| matches!(e, Effect::Record(_) | Effect::Keep(_)));
    world.restart(capped.clone(), 1);
    world.deaf = false;
    world.pass(2);
    assert!(world.jobs[0].paused);
    world.pass(60);
    assert!(world.machines.is_empty());
    let halts = world.kept().expect("kept").halts;
    assert!(
        halts.all,
        "fewer machines would be paid, and nothing is: {halts:?}"
    );
    // More money, and the job is resumed: it goes on.
    capped.budget = Some(Budget {
        cap: MicroUsd(4_000_000),
        warn_per_mille: 800,
    });
    world.restart(capped, 1);
    world.jobs[0].paused = false;
    let before = world.jobs[0].tokens;
    world.pass(60);
    assert!(!world.jobs[0].paused && world.jobs[0].tokens > before);
}

#[test]
fn br_4_a_larger_budget_lifts_the_pause_before_it_is_asked_again() {
    let mut capped = terms();
    let budget = |cap| {
        Some(Budget {
            cap: MicroUsd(cap),
            warn_per_mille: 800,
        })
    };
    capped.budget = budget(40_000);
    let mut world = World::new(capped.clone(), 4);
    world.pass(900);
    assert!(world.jobs[0].paused && world.machines.is_empty());
    // As many dollars: a job that is resumed is paused again.
    world.restart(capped.clone(), 1);
    world.jobs[0].paused = false;
    world.pass(30);
    assert!(world.jobs[0].paused && world.machines.is_empty());
    // More, and the first that is heard is a job at work: before any pool was seen.
    capped.budget = budget(4_000_000);
    world.restart(capped, 1);
    world.jobs[0].paused = false;
    let (nodes, jobs) = (Vec::new(), world.jobs.clone());
    world.take(Event::Cluster { nodes, jobs });
    assert!(!world.jobs[0].paused);
    world.pass(60);
    assert!(!world.jobs[0].paused && world.count(Kind::Spot) > 0);
}

#[test]
fn br_4_without_a_coordinator_nothing_is_paid_beyond_the_budget_for_long() {
    let mut capped = terms();
    let cap = MicroUsd(60_000);
    capped.budget = Some(Budget {
        cap,
        warn_per_mille: 800,
    });
    let mut world = World::new(capped.clone(), 4);
    world.pass(150);
    assert!(!world.machines.is_empty());
    let mut silent = 0;
    while !world.machines.is_empty() && silent < 3_000 {
        silent += 1;
        world.now += S;
        world.take(Event::Unheard);
        world.take(Event::Tick);
    }
    assert!(silent as u64 >= UNHEARD * capped.grace.0 / S, "{silent}");
    assert!(world.machines.is_empty());
    let spent = world.broker.spent();
    assert!(spent >= cap && spent.0 < cap.0 + 60_000, "{spent:?}");
}

#[test]
fn a_job_that_is_resumed_and_paused_again_is_told_of_again() {
    let mut world = World::new(terms(), 2);
    world.jobs = vec![job(1), job(2)];
    world.jobs[0].budget = Some(MicroUsd(12_000));
    world.pass(600);
    assert!(world.jobs[0].paused);
    world.jobs[0].paused = false;
    world.pass(300);
    assert!(world.jobs[0].paused);
    let alarms = world
        .done
        .iter()
        .filter(|e| matches!(e, Effect::Say { alarm: true, .. }));
    assert_eq!(alarms.count(), 2);
}

#[test]
fn br_4_the_budget_of_a_job_pauses_that_job_alone() {
    let mut world = World::new(terms(), 2);
    world.jobs = vec![job(1), job(2)];
    world.jobs[0].budget = Some(MicroUsd(12_000));
    world.pass(600);
    assert!(world.jobs[0].paused && !world.jobs[1].paused);
    let bill = world.kept().expect("kept").purse.of(JobId(1));
    assert!(
        bill.spent().0 <= 12_000 && bill.spent().0 > 3_000,
        "{bill:?}"
    );
    let alarms = world
        .done
        .iter()
        .filter(|e| matches!(e, Effect::Say { alarm: true, .. }));
    assert_eq!(alarms.count(), 1);
}
