//! Where machines may be. BR-9

use super::super::*;
use super::world::*;
use crate::custody::Held;

fn zones(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A world with pools in `z`, where machines are, and `x`; z has so many.
fn world(spot: u32) -> World {
    let mut world = World::new(terms(), spot);
    world.others = vec![sighting("x", 400_000, 3)];
    world
}

fn within(world: &World) -> BTreeSet<String> {
    let held = world.broker.custody().standing();
    held.map(|held: &Held| held.want.pool.zone.clone())
        .collect()
}

fn alarms(world: &World) -> Vec<&str> {
    let alarms = world.done.iter().filter_map(|effect| match effect {
        Effect::Say { alarm: true, what } => Some(what.as_str()),
        _ => None,
    });
    alarms.collect()
}

#[test]
fn br_9_machines_that_stand_where_a_new_job_may_not_be_are_replaced() {
    let mut world = world(3);
    world.others[0].spot_available = Some(0);
    world.pass(150);
    assert_eq!(within(&world), zones(&["z"]));
    let before = world.machines.len();
    let mut second = job(2);
    second.zones = zones(&["x"]);
    world.jobs.push(second);
    world.others[0].spot_available = Some(3);
    world.done.clear();
    world.pass(1);
    assert!(
        world.machines.len() >= before,
        "BR-2: those that stood serve until others do"
    );
    world.pass(150);
    assert_eq!(within(&world), zones(&["x"]));
    assert!(world.machines.len() >= 2, "{:?}", world.machines);
    assert!(!world.jobs.iter().any(|job| job.paused));
    assert_eq!(alarms(&world), [""; 0]);
    // Once it is done the others may be anywhere.
    world.jobs[1].ended = true;
    world.pass(150);
    assert!(within(&world).contains("z"), "{:?}", world.machines);
}

#[test]
fn br_2_a_machine_that_is_elsewhere_goes_only_when_as_many_serve() {
    let mut world = world(2);
    world.others[0].spot_available = Some(0);
    world.pass(150);
    let held = world.count(Kind::Spot);
    assert!(held > 0);
    world.jobs[0].zones = zones(&["x"]);
    world.others[0].spot_available = Some(1);
    world.unheeded = zones(&["x"]);
    world.pass(50);
    assert!(
        world.count(Kind::Spot) > held,
        "one boots in x and those of z serve: {:?}",
        world.machines
    );
    world.unheeded.clear();
    world.pass(90);
    assert_eq!(within(&world), zones(&["x"]));
}

#[test]
fn br_9_who_comes_last_and_leaves_no_pool_is_paused_and_the_others_go_on() {
    let mut world = world(3);
    world.jobs[0].zones = zones(&["z"]);
    world.pass(150);
    assert_eq!(within(&world), zones(&["z"]));
    let held = world.machines.len();
    assert!(held > 1);
    let mut second = job(2);
    second.zones = zones(&["x"]);
    world.jobs.push(second);
    world.pass(2);
    let paused: Vec<bool> = world.jobs.iter().map(|job| job.paused).collect();
    assert_eq!(paused, [false, true]);
    let said = alarms(&world);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("j2 in x") && said[0].contains("j1 in z"),
        "{said:?}"
    );
    // The first is replaced as before.
    let (id, _) = world.first(Kind::Spot);
    world.machines.remove(&id);
    world.pass(60);
    assert_eq!(world.machines.len(), held);
    assert_eq!(within(&world), zones(&["z"]));
    // Whoever resumes it is told again; when the first is done it has its place.
    world.jobs[1].paused = false;
    world.pass(2);
    assert!(world.jobs[1].paused && alarms(&world).len() == 2);
    world.jobs[0].ended = true;
    world.jobs[1].paused = false;
    world.pass(120);
    assert!(!world.jobs[1].paused);
    assert_eq!(within(&world), zones(&["x"]));
}

#[test]
fn br_9_who_had_a_place_keeps_it_before_one_that_is_resumed() {
    let mut world = world(3);
    world.jobs[0].zones = zones(&["z"]);
    world.jobs[0].paused = true;
    let mut second = job(2);
    second.zones = zones(&["x"]);
    world.jobs.push(second);
    world.pass(150);
    assert_eq!(within(&world), zones(&["x"]));
    world.jobs[0].paused = false;
    world.pass(2);
    let paused: Vec<bool> = world.jobs.iter().map(|job| job.paused).collect();
    assert_eq!(paused, [true, false]);
    assert_eq!(within(&world), zones(&["x"]));
}

#[test]
fn without_any_pool_zones_and_jobs_are_named() {
    let mut world = world(3);
    world.jobs[0].zones = zones(&["us-east-1a"]);
    world.pass(5);
    let decided = world.decided();
    assert_eq!(decided.target.count(), 0);
    let note = decided.note.clone().unwrap_or_default();
    assert!(
        note.contains("j1 in us-east-1a") && note.contains("there are x, z"),
        "{note}"
    );
}
