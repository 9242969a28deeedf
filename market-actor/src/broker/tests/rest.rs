//! How long a pool that took a machine, or refused one, is left alone, and what is held in several pools meanwhile. BR-7

use super::super::*;
use super::world::*;
use crate::problem::offer::Held;
use crate::provider::ProviderError;

/// A cluster that holds two machines: zone `a` has two, at less than `b`, which has three.
fn world() -> World {
    let mut both = terms();
    (both.fewest, both.most) = (2, 2);
    let mut world = World::new(both, 2);
    world.zone = "a".into();
    world.others = vec![sighting("b", 400_000, 3)];
    world.pass(30);
    assert_eq!(held(&world), [2, 0]);
    world
}

/// Machines that stand in `a` and in `b`.
fn held(world: &World) -> [u32; 2] {
    ["a", "b"].map(|zone| world.broker.standing_in(&pool(zone)).count())
}

fn pool(zone: &str) -> Pool {
    sighting(zone, 0, 0).pool
}

fn now(world: &World) -> Now {
    Now::both(Micros(world.now))
}

fn is_avoided(world: &World, zone: &str) -> bool {
    let kind = Kind::Spot;
    world.broker.is_avoided(kind, &pool(zone), now(world))
}

/// A zone takes a machine without a word: time passes until that is found out.
fn lose(world: &mut World, zone: &str) {
    let mut all = world.machines.iter();
    let found = all.find(|(_, want)| want.pool.zone == zone);
    let id = found.expect("one is held there").0.clone();
    world.machines.remove(&id);
    while world
        .broker
        .custody()
        .held()
        .values()
        .any(|own| own.id.as_ref() == Some(&id))
    {
        world.pass(1);
    }
}

#[test]
fn br_7_a_pool_is_left_alone_for_the_whole_rest_and_not_longer() {
    let mut world = world();
    lose(&mut world, "a");
    assert_eq!(held(&world), [1, 1], "the other one stays where it is");
    let mut rested = 0;
    while is_avoided(&world, "a") {
        world.pass(1);
        rested += 1;
    }
    assert_eq!(rested, terms().rest.0 / S);
    lose(&mut world, "b");
    assert_eq!(held(&world), [2, 0], "it has rested");
}

#[test]
fn br_7_each_loss_begins_the_rest_anew() {
    let mut world = world();
    lose(&mut world, "a");
    world.pass(15);
    lose(&mut world, "a");
    world.pass(15);
    assert!(is_avoided(&world, "a"));
    assert_eq!(held(&world), [0, 2]);
    world.pass(5);
    assert!(!is_avoided(&world, "a"));
}

#[test]
fn br_7_a_loss_of_spot_says_nothing_of_machines_on_demand() {
    let mut world = world();
    let next = |world: &World, kind| {
        let next = world.broker.next(kind, now(world));
        next.map(|one| one.pool.zone.clone()).unwrap_or_default()
    };
    lose(&mut world, "a");
    assert_eq!(next(&world, Kind::Spot), "b");
    assert_eq!(
        next(&world, Kind::OnDemand),
        "a",
        "of two at one price the first"
    );
}

#[test]
fn br_7_what_stands_in_a_pool_that_rests_is_offered_and_paid_at_its_own_price() {
    let mut world = world();
    let offered = |world: &World| {
        let rules = world.broker.rules();
        let offer = world.broker.offer(&rules, now(world));
        // Of a slot of a minute, told in thousandths of a dollar an hour.
        let hourly = (offer.spot_price * 0.06).round() as u64;
        (offer.spot_available, hourly)
    };
    let cost = |world: &World, spot| {
        let both = Held { spot, on_demand: 0 };
        let hour = Micros(3600 * S);
        world.broker.cost(both, hour, now(world)).0
    };
    assert_eq!((offered(&world), cost(&world, 2)), ((5, 300), 600_000));
    lose(&mut world, "a");
    // The one that stands in a, and three of b.
    assert_eq!((offered(&world), cost(&world, 2)), ((4, 300), 700_000));
    assert_eq!(cost(&world, 3), 1_100_000, "the next is asked of b");
    lose(&mut world, "a");
    assert_eq!((offered(&world), cost(&world, 2)), ((3, 400), 800_000));
    world.pass(20);
    assert_eq!((offered(&world), cost(&world, 2)), ((5, 300), 800_000));
}

#[test]
fn a_refusal_holds_for_the_rest_of_its_pool_and_a_quota_of_all() {
    for (error, free) in [
        (
            ProviderError::NoCapacity {
                provider: "test".into(),
                why: "none".into(),
            },
            vec!["b"],
        ),
        (
            ProviderError::Quota {
                provider: "test".into(),
                why: "two".into(),
            },
            vec![],
        ),
    ] {
        let mut world = World::new(terms(), 2);
        world.zone = "a".into();
        world.others = vec![sighting("b", 400_000, 2)];
        // Nothing is decided before the coordinator is heard, so nothing else is asked for.
        world.take(Event::Sighted(vec![
            sighting("a", 300_000, 2),
            world.others[0].clone(),
        ]));
        let token = NodeName::new("n").expect("a plain word is a name");
        let want = crate::provider::Want {
            token: token.clone(),
            pool: pool("a"),
            kind: Kind::Spot,
        };
        let mut effects = Vec::new();
        let begin = now(&world);
        let event = custody::Event::Acquire(want);
        world.broker.machine(event, begin, &mut effects);
        let answer = Err(error);
        let event = custody::Event::Answered { token, answer };
        world.broker.machine(event, begin, &mut effects);
        let zones = |now: Now| -> Vec<&str> {
            let free = world.broker.free(Kind::Spot, now).into_iter();
            free.map(|one| one.pool.zone.as_str()).collect()
        };
        let rest = terms().rest;
        let last = Now::both(Micros(begin.steady.0 + rest.0 - 1));
        assert_eq!((zones(begin), zones(last)), (free.clone(), free));
        let over = Now::both(begin.steady.plus(rest));
        assert_eq!(zones(over), ["a", "b"]);
    }
}
