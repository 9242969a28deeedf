//! Policies that take their time. TH-1, TH-2

use super::super::thought::Question;
use super::super::*;
use super::world::*;
use crate::money::Budget;
use crate::provider::Certainty;

fn asked(world: &World) -> Vec<Question> {
    let asked = world.done.iter().filter_map(|effect| match effect {
        Effect::Think(question) => Some(question.as_ref().clone()),
        _ => None,
    });
    asked.collect()
}

/// A question that a policy is asked.
pub(crate) fn open_question() -> Question {
    let mut world = World::new(terms(), 3);
    world.pass(60);
    world.slow = true;
    world.pass(60);
    asked(&world).pop().expect("one is open")
}

fn answer(world: &mut World, question: Question) {
    world.take(Event::Thought(Box::new(question.answer())));
}

#[test]
fn th_1_while_a_policy_thinks_what_was_wanted_stands_and_machines_are_replaced() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let held = world.machines.len();
    assert!(held > 1, "{held}");
    world.slow = true;
    world.done.clear();
    world.pass(90);
    let open = asked(&world);
    assert_eq!(open.len(), 1, "one at a time");
    let decided = |effect: &Effect| matches!(effect, Effect::Decided(_));
    assert!(!world.done.iter().any(decided));
    world.spot = 4;
    world.pass(1);
    // A notice is heard at once, and a machine that vanishes has a successor.
    let (id, token) = world.first(Kind::Spot);
    world.signal(&id, Certainty::Notice);
    let until = Some(Micros(world.now + 20 * S));
    let drain = Effect::Drain { node: token, until };
    assert!(world.done.contains(&drain), "{:?}", world.done);
    world.pass(5);
    assert_eq!(world.machines.len(), held);
    assert_eq!(asked(&world).len(), 1);
    // What changed meanwhile is asked about as soon as the answer is there.
    answer(&mut world, open[0].clone());
    assert!(world.done.iter().any(decided));
    assert_eq!(asked(&world).len(), 2);
}

#[test]
fn th_2_an_answer_that_nobody_waits_for_changes_nothing() {
    let mut world = World::new(terms(), 3);
    world.pass(60);
    world.slow = true;
    world.pass(60);
    let late = asked(&world).pop().expect("one is open");
    // Nobody waits for an answer while all is paused, then for another.
    world.jobs[0].paused = true;
    world.pass(5);
    world.jobs[0].paused = false;
    world.pass(5);
    let mut open = asked(&world);
    assert_eq!(open.len(), 2, "another question of the same stretch");
    let before = world.decided().clone();
    answer(&mut world, late.clone());
    assert_eq!(world.decided(), &before, "that is not what is waited for");
    assert_eq!(asked(&world).len(), 2);
    let awaited = open.pop().expect("there are two");
    answer(&mut world, awaited);
    assert!(world.decided().at > before.at);
    // The work is over before the policy has an answer.
    world.jobs[0].ended = true;
    world.pass(30);
    assert_eq!(world.machines.len(), 0);
    let before = world.decided().clone();
    answer(&mut world, late.clone());
    answer(&mut world, late);
    assert_eq!(world.decided(), &before);
    assert_eq!(world.machines.len(), 0);
}

#[test]
fn br_8_an_answer_that_comes_while_the_coordinator_is_away_is_asked_for_again() {
    let mut world = World::new(terms(), 3);
    world.pass(60);
    world.slow = true;
    world.pass(60);
    let late = asked(&world).pop().expect("one is open");
    let before = world.decided().clone();
    world.take(Event::Unheard);
    world.done.clear();
    answer(&mut world, late);
    assert!(world.done.is_empty(), "{:?}", world.done);
    world.slow = false;
    world.pass(1);
    assert!(world.decided().at > before.at);
}

#[test]
fn br_4_a_budget_is_kept_while_a_policy_thinks() {
    let budget = Budget {
        cap: MicroUsd(60_000),
        warn_per_mille: 1000,
    };
    let terms = Terms {
        budget: Some(budget),
        ..terms()
    };
    let mut world = World::new(terms, 3);
    world.pass(45);
    assert!(
        world.broker.spent() < budget.cap,
        "{}",
        world.broker.spent()
    );
    assert!(!world.machines.is_empty());
    world.slow = true;
    world.pass(900);
    assert!(world.jobs[0].paused, "{}", world.broker.spent());
    assert_eq!(world.machines.len(), 0);
    // The time in which machines are emptied is kept back.
    assert!(
        world.broker.spent() <= budget.cap,
        "{}",
        world.broker.spent()
    );
}
