//! How many machines.

use super::super::*;
use super::world::*;
use crate::policy::Policy;
use crate::policy::horizon::Horizon;
use crate::policy::tenant::Rules;
use crate::select::pool::standard;
use crate::terms::Choice;

#[test]
fn work_gets_the_fewest_machines_until_its_rate_is_known_and_then_what_the_policy_says() {
    let mut world = World::new(terms(), 4);
    world.pass(30);
    assert_eq!(world.count(Kind::Spot), 1);
    world.pass(120);
    assert_eq!(
        (world.count(Kind::Spot), world.count(Kind::OnDemand)),
        (4, 0)
    );
    // No work, no machine.
    world.jobs[0].ended = true;
    world.pass(3);
    assert!(world.machines.is_empty(), "{:?}", world.machines);
    assert!(world.broker.custody().is_empty());
}

#[test]
fn br_5_spot_replaces_on_demand_after_a_while_and_only_when_it_serves() {
    let mut urgent = terms();
    // Three machines all the time.
    urgent.deadline = Micros(60 * 60 * S);
    urgent.choice = fixed(Policy::Uniform { mixed: true });
    let mut world = World::new(urgent, 0);
    world.rate = 100;
    world.jobs[0].total_steps = 100_000;
    world.pass(150);
    assert_eq!(world.count(Kind::Spot), 0);
    let needed = world.count(Kind::OnDemand);
    assert!(needed >= 2, "{needed}");
    world.spot = 6;
    world.pass(62);
    assert!(world.count(Kind::OnDemand) >= 2, "too early to change");
    world.pass(240);
    assert_eq!(world.count(Kind::OnDemand), 0);
    assert!(world.count(Kind::Spot) >= 2);
}

#[test]
fn a_market_and_a_plan_of_stages_do_not_block_each_other() {
    let mut staged = terms();
    (staged.stages, staged.replicas, staged.fewest) = (2, 2, 2);
    for policy in [
        Policy::Maximal { limit: 1.0 },
        Policy::Uniform { mixed: true },
        Policy::Horizon(Horizon::track(6)),
    ] {
        staged.choice = fixed(policy);
        let mut world = World::new(staged.clone(), 3);
        for _ in 0..10 {
            world.pass(30);
            let held = world.count(Kind::Spot) + world.count(Kind::OnDemand);
            assert!((2..=4).contains(&held), "{policy}: {held} machines");
        }
        assert!(world.jobs[0].tokens > 0);
    }
}

#[test]
fn fewer_machines_than_do_work_are_not_bought() {
    let mut staged = terms();
    (staged.stages, staged.replicas, staged.fewest) = (2, 2, 2);
    staged.choice = fixed(Policy::OnDemand);
    for (there, held) in [(1, 0), (3, 2)] {
        let mut world = World::new(staged.clone(), 0);
        world.on_demand = Some(there);
        // No rate yet, then a deadline that nothing meets any more.
        world.pass(20);
        assert_eq!(world.machines.len(), held, "{:?}", world.decided());
        world.jobs[0].deadline = Some(Micros(30 * S));
        world.pass(90);
        assert_eq!(world.machines.len(), held, "{:?}", world.decided());
    }
}

#[test]
fn after_one_machine_left_the_rest_is_not_given_up() {
    let mut small = terms();
    (small.stages, small.replicas, small.fewest) = (2, 3, 2);
    small.choice = fixed(Policy::Horizon(Horizon::track(6)));
    let mut world = World::new(small, 4);
    world.rate = 100;
    // Work of a slot or so, and time for forty: to be done now or later costs the same.
    world.jobs[0].total_steps = 2_000;
    world.pass(90);
    let (id, _) = world.first(Kind::Spot);
    world.machines.remove(&id);
    for _ in 0..6 {
        world.pass(10);
        let held = world.count(Kind::Spot) + world.count(Kind::OnDemand);
        assert!(
            held >= 2 || world.jobs[0].step >= 2_000,
            "{:?}",
            world.decided()
        );
    }
}

#[test]
fn late_work_on_machines_that_cost_nothing_takes_all() {
    let mut free = terms();
    free.deadline = Micros(3 * 60 * S);
    free.on_demand_price = MicroUsd(0);
    let mut world = World::new(free, 0);
    world.prices = [0, 0];
    world.jobs[0].total_steps = 100_000;
    world.pass(400);
    let decided = world.decided();
    assert_eq!(decided.target.count(), 6, "{decided:?}");
    assert_eq!(world.broker.spent(), MicroUsd(0));
}

#[test]
fn the_deadline_of_a_job_that_presses_takes_more_machines() {
    let machines = |deadline: Option<u64>| {
        let mut calm = terms();
        calm.deadline = Micros(400 * 60 * S);
        calm.choice = fixed(Policy::OnDemand);
        let mut world = World::new(calm, 0);
        world.jobs = vec![job(1), job(2)];
        world.jobs[0].deadline = deadline.map(|seconds| Micros(seconds * S));
        world.pass(200);
        (world.count(Kind::OnDemand), world.decided().pressing)
    };
    let (calm, nobody) = machines(None);
    let (hurried, pressing) = machines(Some(2_000));
    assert!(hurried > calm, "{hurried} and {calm}");
    assert_eq!((nobody, pressing), (None, Some(JobId(1))));
}

#[test]
fn a_policy_is_learned_from_one_stretch_to_the_next() {
    let mut learned = terms();
    learned.choice = Choice::Learned(standard(24));
    let mut world = World::new(learned.clone(), 3);
    world.jobs[0].total_steps = 600;
    for _ in 0..60 {
        if world.jobs[0].step < 600 {
            world.pass(40);
        }
    }
    assert!(world.jobs[0].step >= 600);
    world.jobs[0].ended = true;
    world.pass(5);
    let selection = world
        .kept()
        .and_then(|kept| kept.selection)
        .expect("it was chosen among");
    let regime = crate::select::Regime {
        pool: world.broker.pool(),
        supply: Some(crate::select::Supply::Plenty),
    };
    let chances = selection.chances(&regime);
    let spread = chances.iter().copied().fold(0.0, f64::max) - 1.0 / chances.len() as f64;
    assert!(spread > 1e-3, "it learned nothing: {chances:?}");
    // It survives.
    world.restart(learned, 5);
    world.jobs.push(job(2));
    world.pass(5);
    let again = world
        .kept()
        .and_then(|kept| kept.selection)
        .expect("it goes on");
    assert_eq!(again.chances(&regime), chances);
}

#[test]
fn tenants_that_allow_no_spot_get_none() {
    let mut strict = terms();
    let rules = Rules {
        no_spot: true,
        ..Rules::default()
    };
    strict.rules = BTreeMap::from([("a".to_owned(), rules)]);
    let mut world = World::new(strict, 4);
    world.jobs[0].tenant = "a".into();
    world.pass(150);
    assert_eq!(world.count(Kind::Spot), 0, "{:?}", world.decided());
    // Not for a moment either, also while no rate is known.
    let spot =
        |effect: &&Effect| matches!(effect, Effect::Acquire(want) if want.kind == Kind::Spot);
    assert_eq!(world.done.iter().filter(spot).count(), 0);
    let other = |effect: &Effect| matches!(effect, Effect::Acquire(_));
    assert!(world.done.iter().any(other), "it gets machines on demand");
}

#[test]
fn spot_above_the_price_of_a_tenant_is_not_taken_where_the_cheaper_pool_is_full() {
    let mut strict = terms();
    let rules = Rules {
        max_spot_price: Some(MicroUsd(250_000)),
        ..Rules::default()
    };
    strict.rules = BTreeMap::from([("*".to_owned(), rules)]);
    strict.fewest = 3;
    let mut world = World::new(strict, 0);
    world.spot = 9;
    let both = vec![sighting("a", 200_000, 1), sighting("b", 300_000, 5)];
    world.take(Event::Sighted(both));
    let (nodes, jobs) = (Vec::new(), world.jobs.clone());
    world.take(Event::Cluster { nodes, jobs });
    let spot = world
        .machines
        .values()
        .filter(|want| want.kind == Kind::Spot);
    let zones: Vec<&str> = spot.map(|want| want.pool.zone.as_str()).collect();
    assert_eq!(zones, ["a"]);
    assert_eq!(world.count(Kind::OnDemand), 2);
}

#[test]
fn where_tenants_may_be_nowhere_it_is_said_once_with_what_there_is() {
    let mut strict = terms();
    let rules = Rules {
        regions: BTreeSet::from(["atlantis".to_owned()]),
        ..Rules::default()
    };
    strict.rules = BTreeMap::from([("*".to_owned(), rules)]);
    let mut world = World::new(strict, 4);
    world.pass(150);
    assert!(world.machines.is_empty());
    let alarms: Vec<&Effect> = world
        .done
        .iter()
        .filter(|effect| matches!(effect, Effect::Say { alarm: true, .. }))
        .collect();
    assert_eq!(alarms.len(), 1, "{alarms:?}");
}
