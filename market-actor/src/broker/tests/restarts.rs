//! What survives a restart.

use super::super::*;
use super::world::*;

#[test]
fn a_restart_gives_nothing_up_before_it_has_heard_the_cluster() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let held = world.machines.clone();
    world.restart(terms(), 0);
    world.take(Event::Tick);
    world.take(Event::Sighted(Vec::new()));
    assert_eq!(world.machines, held);
    world.pass(5);
    assert!(
        held.keys().all(|id| world.machines.contains_key(id)),
        "all go on"
    );
    world.pass(150);
    assert_eq!(world.count(Kind::Spot), 3);
}

#[test]
fn br_6_money_deadline_and_policy_survive_a_restart() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (spent, decided) = (world.broker.spent(), world.decided().clone());
    assert!(spent.0 > 0);
    let stretch = world
        .kept()
        .and_then(|kept| kept.stretch)
        .expect("work is under way");
    // Two minutes in which nobody watched, while three machines cost.
    world.restart(terms(), 120);
    let after = world.broker.spent();
    let gap = 3 * 300_000 * 120 / 3600;
    let more = after.0 - spent.0;
    assert!(more.abs_diff(gap) < 3_000, "{more} and not {gap}");
    world.done.clear();
    world.pass(3);
    let again = world.decided();
    assert!(
        again.slot >= decided.slot + 2,
        "the deadline goes on: {again:?}"
    );
    assert!(world.broker.spent() >= after);
    let kept = world
        .kept()
        .and_then(|kept| kept.stretch)
        .expect("it goes on");
    assert_eq!((kept.first, kept.before), (stretch.first, stretch.before));
}

#[test]
fn br_6_what_must_survive_is_kept_before_anything_follows_from_it() {
    let mut world = World::new(terms(), 2);
    world.pass(5);
    let asked = |effect: &Effect| matches!(effect, Effect::Acquire(_));
    let first = world.done.iter().position(asked).expect("it asks");
    let kept = world.done[..first]
        .iter()
        .any(|effect| matches!(effect, Effect::Keep(kept) if kept.stretch.is_some()));
    assert!(kept, "{:?}", &world.done[..=first]);
}

#[test]
fn what_is_given_up_stays_so_over_a_restart() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    world.spot = 3;
    world.jobs[0].ended = true;
    world.deaf = true;
    world.pass(1);
    let emptied = world.kept().map(|kept| kept.emptied).unwrap_or_default();
    assert_eq!(emptied.len(), 3, "all are being emptied");
    world.restart(terms(), 1);
    world.deaf = false;
    world.pass(3);
    assert!(world.machines.is_empty(), "{:?}", world.machines);
}
