//! Machines that are taken, vanish, are refused or given up.

use super::super::*;
use super::world::*;
use crate::provider::{Certainty, ProviderError, Want};

#[test]
fn a_notice_empties_the_machine_and_asks_for_another_at_once() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, token) = world.first(Kind::Spot);
    world.spot = 4;
    world.pass(1);
    world.done.clear();
    world.signal(&id, Certainty::Notice);
    let drain = Effect::Drain {
        node: token.clone(),
        until: Some(Micros(world.now + 20 * S)),
    };
    assert!(world.done.contains(&drain), "{:?}", world.done);
    let asked = world
        .done
        .iter()
        .any(|effect| matches!(effect, Effect::Acquire(_)));
    assert!(asked, "{:?}", world.done);
    world.pass(2);
    assert!(
        !world.machines.contains_key(&id),
        "it holds nothing any more"
    );
    assert_eq!(world.count(Kind::Spot) + world.count(Kind::OnDemand), 3);
}

#[test]
fn br_3_a_risk_moves_nothing() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, _) = world.first(Kind::Spot);
    world.done.clear();
    world.signal(&id, Certainty::Risk);
    world.pass(90);
    let moves = world.done.iter().filter(|effect| {
        matches!(
            effect,
            Effect::Drain { .. } | Effect::Release { .. } | Effect::Acquire(_) | Effect::Pause(_)
        )
    });
    assert_eq!(moves.count(), 0, "{:?}", world.done);
}

#[test]
fn br_3_the_coordinator_is_told_of_a_risk_until_it_knows_and_again_when_it_is_another() {
    let mut world = World::new(terms(), 3);
    world.pass(30);
    let (id, token) = world.first(Kind::Spot);
    world.done.clear();
    world.deaf = true;
    world.signal(&id, Certainty::Risk);
    world.pass(3);
    let risk = Effect::Risk {
        node: token,
        cause: Some("capacity".into()),
    };
    let told = |world: &World| world.done.iter().filter(|effect| **effect == risk).count();
    assert_eq!(told(&world), 3, "at each look");
    world.deaf = false;
    world.pass(5);
    assert_eq!(told(&world), 4, "until it is known");
    world.take(Event::Unheard);
    world.risky.clear();
    world.pass(2);
    assert_eq!(told(&world), 5, "another coordinator knows nothing");
}

/// How often the coordinator was told that no machine is at risk any more.
fn told_over(world: &World) -> usize {
    let over = |effect: &&Effect| matches!(effect, Effect::Risk { cause: None, .. });
    world.done.iter().filter(over).count()
}

#[test]
fn br_3_a_risk_that_is_over_is_told_once_and_the_pool_is_counted_on_again() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, token) = world.first(Kind::Spot);
    world.signal(&id, Certainty::Risk);
    world.pass(2);
    assert!(world.risky.contains(&token));
    world.done.clear();
    world.signal(&id, Certainty::Over);
    assert!(!world.risky.contains(&token), "{:?}", world.done);
    world.signal(&id, Certainty::Over);
    world.pass(90);
    assert_eq!(told_over(&world), 1);
    let moves = |effect: &&Effect| matches!(effect, Effect::Drain { .. } | Effect::Release { .. });
    assert_eq!(world.done.iter().filter(moves).count(), 0);
    // It may come again.
    world.signal(&id, Certainty::Risk);
    world.pass(2);
    assert!(world.risky.contains(&token));
}

#[test]
fn br_3_a_risk_that_ended_unseen_is_taken_back_and_that_of_a_node_is_asked_about_once() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, token) = world.first(Kind::Spot);
    world.signal(&id, Certainty::Risk);
    world.pass(2);
    // What is told next does not come to the coordinator.
    world.deaf = true;
    world.signal(&id, Certainty::Over);
    world.take(Event::Unheard);
    world.deaf = false;
    world.pass(2);
    assert!(!world.risky.contains(&token));
    // Nor does a process that begins know what the one before it told.
    world.signal(&id, Certainty::Risk);
    world.pass(2);
    world.restart(terms(), 1);
    world.pass(3);
    assert!(!world.risky.contains(&token));
    // The node says so itself: nobody else takes that back, or asks at each look.
    world.done.clear();
    world.deaf = true;
    world.risky.insert(token);
    world.take(Event::Untold);
    world.pass(5);
    assert_eq!(told_over(&world), 1);
}

#[test]
fn a_job_is_where_it_asks_to_be_and_nowhere_else() {
    let mut world = World::new(terms(), 3);
    world.jobs[0].zones = BTreeSet::from(["other".to_owned()]);
    world.pass(30);
    let decided = world.decided();
    assert_eq!(decided.target.count(), 0, "{decided:?}");
    assert!(
        decided
            .note
            .as_ref()
            .is_some_and(|note| note.contains("market.zones"))
    );
    world.zone = "other".into();
    world.pass(120);
    assert!(world.decided().target.count() > 0, "{:?}", world.decided());
}

#[test]
fn a_machine_that_vanishes_is_replaced_and_a_refusal_is_not_repeated_at_once() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, _) = world.first(Kind::Spot);
    world.machines.remove(&id);
    world.spot = 2;
    world.done.clear();
    world.pass(10);
    let asked = world
        .done
        .iter()
        .filter(|e| matches!(e, Effect::Acquire(_)))
        .count();
    assert!(asked <= 1, "asked {asked} times in ten seconds");
    world.spot = 3;
    world.pass(90);
    assert_eq!(world.count(Kind::Spot), 3);
}

#[test]
fn a_pool_that_refuses_is_left_alone_and_another_is_asked() {
    let mut world = World::new(terms(), 2);
    let both = vec![sighting("a", 200_000, 1), sighting("b", 300_000, 5)];
    let now = |seconds: u64| Now::both(Micros(seconds * S));
    world.broker.step(Event::Sighted(both), now(1));
    let jobs = vec![job(1)];
    let nodes = Vec::new();
    let effects = world.broker.step(Event::Cluster { nodes, jobs }, now(1));
    let asked = |effects: &[Effect]| -> Vec<Want> {
        let wants = effects.iter().filter_map(|effect| match effect {
            Effect::Acquire(want) => Some(want.clone()),
            _ => None,
        });
        wants.collect()
    };
    let first = asked(&effects);
    assert_eq!((first.len(), first[0].pool.zone.as_str()), (1, "a"));
    let answer = Err(ProviderError::NoCapacity {
        provider: "test".into(),
        why: "none".into(),
    });
    let token = first[0].token.clone();
    let event = Event::Machine(custody::Event::Answered { token, answer });
    let again = asked(&world.broker.step(event, now(2)));
    assert_eq!((again.len(), again[0].pool.zone.as_str()), (1, "b"));
}

#[test]
fn a_machine_that_leaves_by_itself_is_replaced_at_once() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (id, token) = world.first(Kind::Spot);
    world.done.clear();
    // Its cloud told it, and it told the coordinator.
    world.draining.insert(token);
    world.pass(1);
    let asked = |effect: &&Effect| matches!(effect, Effect::Acquire(_));
    assert_eq!(
        world.done.iter().filter(asked).count(),
        1,
        "{:?}",
        world.done
    );
    world.pass(2);
    assert!(
        !world.machines.contains_key(&id),
        "it is given back when it is empty"
    );
}

#[test]
fn only_spot_machines_that_are_taken_are_losses_of_spot() {
    let losses = |world: &World| {
        let stretch = world.broker.stretch.as_ref().expect("there is work");
        stretch.losses.iter().sum::<u32>()
    };
    let mut urgent = terms();
    urgent.deadline = Micros(60 * 60 * S);
    urgent.choice = fixed(crate::policy::Policy::Uniform { mixed: true });
    let mut world = World::new(urgent, 0);
    world.rate = 100;
    world.jobs[0].total_steps = 100_000;
    world.pass(150);
    let (id, token) = world.first(Kind::OnDemand);
    world.draining.insert(token);
    world.pass(30);
    assert!(!world.machines.contains_key(&id));
    let (id, _) = world.first(Kind::OnDemand);
    world.machines.remove(&id);
    world.pass(60);
    assert_eq!(
        losses(&world),
        0,
        "an operator's drain, and a machine on demand"
    );
    world.spot = 3;
    world.pass(300);
    let (id, _) = world.first(Kind::Spot);
    world.signal(&id, Certainty::Notice);
    world.pass(2);
    assert_eq!(losses(&world), 1);
}
