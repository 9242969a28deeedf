//! What survives a restart.

use super::super::*;
use super::world::*;
use crate::policy::Policy;
use crate::provider::Certainty;

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
fn me_1_what_was_done_while_it_was_away_makes_no_rate() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    // Ten tokens in a second: of a slot of a minute.
    let near = |world: &World| (world.decided().rate - 600.0).abs() < 30.0;
    assert!(near(&world), "{:?}", world.decided());
    for away in [true, false] {
        match away {
            true => world.restart(terms(), 100),
            false => {
                world.take(Event::Unheard);
                world.now += 100 * S;
            }
        }
        // What the coordinator has on record, then what its nodes tell it.
        let held = world.machines.len();
        let rate = std::mem::take(&mut world.rate);
        world.pass(2);
        world.jobs[0].tokens += 5_000;
        world.pass(1);
        world.rate = rate;
        world.pass(130);
        assert!(near(&world), "{away}: {:?}", world.decided());
        assert_eq!(world.machines.len(), held);
    }
}

#[test]
fn br_8_nothing_is_decided_while_the_coordinator_is_away() {
    let decided = |world: &World| {
        let is = |effect: &&Effect| matches!(effect, Effect::Decided(_));
        world.done.iter().filter(is).count()
    };
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let (target, held) = (world.broker.target(), world.machines.clone());
    assert_eq!(target.count(), 3);
    for again in [true, false] {
        if again {
            world.restart(terms(), 1);
        }
        world.done.clear();
        // Longer than a machine may take to join.
        for _ in 0..130 {
            world.now += S;
            world.take(Event::Unheard);
            world.take(Event::Sighted(vec![sighting("z", 300_000, 3)]));
            world.take(Event::Tick);
        }
        assert_eq!(decided(&world), 0, "{again}: {:?}", world.done);
        assert_eq!(world.broker.target(), target);
        world.pass(1);
        assert_eq!(decided(&world), 1, "{again}: as soon as it is heard");
        assert_eq!((world.broker.target(), &world.machines), (target, &held));
        // The next round begins where this one was measured.
        world.pass(130);
    }
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
fn br_6_machines_are_no_waste_for_nobody_having_watched_them() {
    let mut world = World::new(terms(), 3);
    world.pass(600);
    world.restart(terms(), 3_600);
    world.pass(60);
    let account = world.broker.purse.of(JobId(1));
    let waste = account.waste.0 as f64 / account.spent().0 as f64;
    assert!(waste < 0.1, "{waste}");
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
fn another_policy_decides_after_a_restart_that_says_so() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    let mut other = terms();
    other.choice = fixed(Policy::OnDemand);
    world.restart(other, 1);
    world.done.clear();
    world.pass(3);
    let said = |effect: &&Effect| matches!(effect, Effect::Say { what, .. } if what.contains("decides from now on"));
    assert_eq!(world.done.iter().filter(said).count(), 1);
    let member = world
        .kept()
        .and_then(|kept| kept.stretch)
        .map(|own| own.member);
    assert_eq!(member.map(|own| own.policy), Some(Policy::OnDemand));
}

#[test]
fn slots_of_another_length_begin_anew_and_the_deadline_goes_on() {
    let mut world = World::new(terms(), 3);
    world.pass(630);
    let before = world.decided().slot;
    assert!(before >= 9, "{before}");
    let mut shorter = terms();
    shorter.slot = Micros(20 * S);
    world.restart(shorter, 1);
    let kept = world.broker.to_keep(Now::both(Micros(world.now)));
    assert_eq!(
        (kept.history.slots.len(), kept.history.length),
        (0, Micros(20 * S))
    );
    world.pass(3);
    let slot = world.decided().slot;
    assert!((30..=32).contains(&slot), "{slot} after {before}");
}

#[test]
fn br_1_a_node_that_is_not_heard_for_a_moment_is_not_taken_for_empty() {
    let mut world = World::new(terms(), 1);
    world.pass(30);
    let (id, token) = world.first(Kind::Spot);
    world.signal(&id, Certainty::Notice);
    let node = |alive| NodeTold {
        name: token.clone(),
        alive,
        draining: alive,
        holds: true,
        at_risk: false,
    };
    let jobs = world.jobs.clone();
    for alive in [false, true] {
        let (nodes, jobs) = (vec![node(alive)], jobs.clone());
        world.take(Event::Cluster { nodes, jobs });
    }
    assert!(
        world.machines.contains_key(&id),
        "it holds work: {:?}",
        world.done
    );
    // When it goes is known after a restart too.
    let until = world.kept().expect("kept").emptied[&token];
    assert_eq!(until, Some(Micros(world.now + 20 * S)));
    world.restart(terms(), 2);
    world.done.clear();
    let mut drained = node(true);
    drained.draining = false;
    let nodes = vec![drained];
    world.take(Event::Cluster { nodes, jobs });
    let drain = Effect::Drain { node: token, until };
    assert!(world.done.contains(&drain), "{:?}", world.done);
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

#[test]
fn em_1_a_machine_that_is_being_emptied_is_waited_for_though_a_coordinator_that_began_does_not_list_it()
 {
    let mut world = World::new(terms(), 1);
    world.pass(30);
    let (id, token) = world.first(Kind::Spot);
    world.signal(&id, Certainty::Notice);
    world.take(Event::Unheard);
    let show = |world: &mut World| {
        let jobs = world.jobs.clone();
        let nodes = Vec::new();
        world.take(Event::Cluster { nodes, jobs });
    };
    show(&mut world);
    world.now += 40 * S;
    show(&mut world);
    assert!(world.machines.contains_key(&id), "{:?}", world.done);
    // Its end and its grace.
    world.now += 11 * S;
    show(&mut world);
    let asked = Effect::Release { id };
    assert!(world.done.contains(&asked), "{token}: {:?}", world.done);
}

#[test]
fn em_1_what_was_drained_from_here_is_given_work_again_by_a_coordinator_that_began_anew() {
    for (away, again) in [(3, true), (70, false)] {
        let mut world = World::new(terms(), 1);
        world.listed = true;
        world.same = NodeName::new("n1").ok();
        world.pass(30);
        world.jobs[0].ended = true;
        world.pass(3);
        assert!(world.machines.is_empty() && world.draining.len() == 1);
        world.take(Event::Unheard);
        // Nothing has said hello to it yet.
        world.pass(away);
        world.jobs.push(job(2));
        world.pass(5);
        assert_eq!(world.machines.len(), 1);
        let back = world.same.clone().map(Effect::Undrain);
        let back = back.is_some_and(|back| world.done.contains(&back));
        assert_eq!(back, again, "after {away} s: {:?}", world.done);
    }
}

#[test]
fn work_that_stands_still_for_very_long_leaves_what_is_kept_readable() {
    let mut world = World::new(terms(), 3);
    world.pass(150);
    world.rate = 0;
    world.broker.meter.wear();
    world.done.clear();
    world.pass(61);
    let rate = world.broker.meter.rate(Micros(60 * S));
    assert!(rate > 0.0 && rate < 1e-300, "{rate}");
    assert!(world.decided().note.is_some(), "{:?}", world.decided());
    let kept = world.kept().expect("kept");
    let read = Kept::from_json(&kept.to_json());
    assert!(read.is_ok(), "{:?}", read.err());
}
