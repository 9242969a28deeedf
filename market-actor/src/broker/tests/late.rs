//! What was done stays done, and a deadline that cannot be met does not decide for the others.

use super::super::*;
use super::world::*;
use crate::policy::Policy;
use crate::problem::decision::Reason;

#[test]
fn a_job_that_is_forgotten_takes_no_progress_with_it() {
    let mut world = World::new(terms(), 3);
    world.jobs = vec![job(1), job(2)];
    world.pass(100);
    world.jobs[0].ended = true;
    world.pass(60);
    let before = world.decided().progress;
    world.jobs.remove(0);
    world.pass(60);
    let after = world.decided().progress;
    assert!(after > before && before > 1000.0, "{before} and {after}");
    world.restart(terms(), 1);
    world.pass(61);
    let again = world.decided().progress;
    assert!(again > after, "{after} and {again}");
}

/// Machines and who presses, after some time with a job that must be done within 2000 s and others by so many seconds.
fn played(first: Option<u64>, others: [Option<u64>; 2]) -> World {
    let mut calm = terms();
    calm.deadline = Micros(400 * 60 * S);
    calm.choice = fixed(Policy::OnDemand);
    let mut world = World::new(calm, 0);
    world.jobs = vec![job(1), job(2), job(3)];
    for (job, deadline) in world.jobs.iter_mut().zip([first, others[0], others[1]]) {
        job.deadline = deadline.map(|seconds| Micros(seconds * S));
    }
    world.pass(200);
    world
}

#[test]
fn a_hopeless_deadline_is_told_and_decides_nothing_for_the_others() {
    let good = played(Some(2_000), [None, None]);
    let count = good.count(Kind::OnDemand);
    assert!(count >= 4, "{:?}", good.decided());
    // One is over before it began, one asks for more than all machines can do.
    for hopeless in [[Some(1), None], [Some(1), Some(600)]] {
        let world = played(Some(2_000), hopeless);
        let decided = world.decided();
        assert_eq!(decided.pressing, Some(JobId(1)), "{decided:?}");
        assert_eq!(world.count(Kind::OnDemand), count, "{decided:?}");
        assert_eq!(decided.late.len(), hopeless.iter().flatten().count());
        let alarms = world.done.iter().filter_map(|effect| match effect {
            Effect::Say { alarm: true, what } => Some(what.as_str()),
            _ => None,
        });
        let alarms: Vec<&str> = alarms.collect();
        assert_eq!(alarms.len(), decided.late.len(), "{alarms:?}");
        assert!(
            alarms[0].contains("j2") && alarms[0].contains("6 machines"),
            "{alarms:?}"
        );
    }
    // Alone it takes no more than background work does.
    let calm = played(None, [None, None]);
    let alone = played(None, [Some(1), None]);
    assert_eq!(alone.decided().pressing, None);
    assert_eq!(alone.count(Kind::OnDemand), calm.count(Kind::OnDemand));
}

/// A job whose steps are not known yet, with a deadline so many seconds from now.
fn queued(world: &World, seconds: u64) -> JobTold {
    let mut queued = job(2);
    queued.total_steps = 0;
    queued.deadline = Some(Micros(world.now + seconds * S));
    queued
}

#[test]
fn a_job_whose_steps_are_not_known_yet_takes_no_machine_away() {
    // The cluster's deadline is over since the first slot: all others are late.
    let mut short = terms();
    short.deadline = Micros(60 * S);
    short.fewest = 2;
    short.choice = fixed(Policy::BuyAhead { sigma: 0.9 });
    let mut world = World::new(short, 0);
    world.pass(200);
    let queued = queued(&world, 8 * 3600);
    world.jobs.push(queued);
    for _ in 0..20 {
        world.pass(10);
        assert_eq!(world.broker.target().count(), 2, "{:?}", world.decided());
    }
    // Once they are known it is planned for at once.
    world.jobs[1].total_steps = 50_000;
    world.pass(2);
    assert_eq!(world.decided().pressing, Some(JobId(2)));
    // What is left is what it needs to be done with: all that stands.
    world.jobs[0].ended = true;
    world.jobs[1].total_steps = world.jobs[1].step;
    world.pass(130);
    assert!(world.broker.target().count() >= 2, "{:?}", world.decided());
}

#[test]
fn br_10_a_job_with_a_deadline_is_admitted_while_a_policy_waits() {
    let mut world = World::new(terms(), 3);
    world.pass(130);
    world.prices = [2_000_000, 1_000_000];
    world.pass(120);
    assert_eq!(world.broker.target().count(), 0, "{:?}", world.decided());
    let queued = queued(&world, 8 * 3600);
    world.jobs.push(queued);
    world.pass(10);
    assert_eq!(world.broker.target().count(), 1, "{:?}", world.decided());
}

#[test]
fn a_deadline_that_the_machines_that_can_be_had_miss_is_late() {
    let few = |first, second, spot| {
        let mut calm = terms();
        calm.deadline = Micros(400 * 60 * S);
        calm.choice = fixed(Policy::OnDemand);
        let mut world = World::new(calm, spot);
        world.on_demand = Some(3);
        world.jobs = vec![job(1), job(2)];
        world.jobs[0].deadline = Some(Micros(first * S));
        world.jobs[1].deadline = Some(Micros(second * S));
        world.pass(200);
        world
    };
    // The first needs more than four machines, alone.
    let world = few(1_200, 4_000, 0);
    let decided = world.decided();
    assert_eq!(decided.pressing, Some(JobId(2)), "{decided:?}");
    assert_eq!(decided.late, [JobId(1)]);
    assert!(decided.target.count() >= 2, "{decided:?}");
    let told = |what: &str| what.contains("j1") && what.contains("3 machines");
    let alarm = |effect: &Effect| matches!(effect, Effect::Say { alarm: true, what } if told(what));
    assert_eq!(world.done.iter().filter(|effect| alarm(effect)).count(), 1);
    // Alone it is in time on three, with its share it is not: all three help it, and nothing is given up.
    let decided = few(2_000, 9_000, 0).decided().clone();
    assert_eq!(decided.pressing, Some(JobId(1)), "{decided:?}");
    assert_eq!(decided.target.count(), 3, "{decided:?}");
    // What is there on spot besides is its hope.
    let decided = few(1_200, 4_000, 3).decided().clone();
    assert_eq!(decided.pressing, Some(JobId(1)), "{decided:?}");
    assert_eq!(decided.target.count(), 6, "{decided:?}");
}

/// Whether job 1 was late at each look, while six machines work at it for so many seconds a turn at these rates, and how often that
/// was told.
fn looked_at(deadline: u64, turns: &[(u64, u64)]) -> (Vec<bool>, usize) {
    let mut calm = terms();
    (calm.fewest, calm.deadline) = (6, Micros(400 * 60 * S));
    calm.choice = fixed(Policy::OnDemand);
    let mut world = World::new(calm, 0);
    world.jobs[0].deadline = Some(Micros(deadline * S));
    world.pass(150);
    let mut late = Vec::new();
    for (turn, (rate, seconds)) in turns.iter().enumerate() {
        // Who comes has the others looked at again.
        let mut other = job(100 + turn as u64);
        other.total_steps = 0;
        world.jobs.push(other);
        world.rate = *rate;
        world.pass(*seconds);
        late.push(world.decided().late.contains(&JobId(1)));
    }
    let alarm = |effect: &&Effect| matches!(effect, Effect::Say { alarm: true, .. });
    (late, world.done.iter().filter(alarm).count())
}

#[test]
fn a_deadline_is_met_in_the_middle_of_a_slot_as_at_its_begin() {
    // It takes 834 s.
    assert_eq!(looked_at(848, &[(10, 19); 24]), (vec![false; 24], 0));
}

#[test]
fn a_late_job_is_told_once_and_stays_late_while_its_rate_sways() {
    let (late, told) = looked_at(800, &[(10, 5), (13, 60), (7, 60), (13, 60), (7, 60)]);
    assert_eq!((late, told), (vec![true; 5], 1));
}

#[test]
fn a_deadline_that_is_over_or_far_away_is_weighed_by_the_time_that_is_left() {
    let mut long = terms();
    long.deadline = Micros(45_000 * 60 * S);
    long.choice = fixed(Policy::OnDemand);
    let mut world = World::new(long.clone(), 0);
    // A slot has begun with a rate: what is over is over in the first one too.
    (world.jobs[0].deadline, world.jobs[0].total_steps) = (Some(Micros(S)), 200);
    world.jobs.push(job(2));
    world.pass(30);
    assert_eq!(world.decided().slot, 0);
    world.jobs.push(job(3));
    world.pass(2);
    let decided = world.decided();
    assert_eq!((decided.slot, decided.pressing), (0, None), "{decided:?}");
    assert_eq!(decided.late, [JobId(1)]);
    // More slots than a plan has; the first is not asked for any more.
    world.jobs[0].ended = true;
    let mut far = job(4);
    far.deadline = Some(Micros(60_000 * 60 * S));
    world.jobs.push(far);
    world.restart(long, 50_500 * 60);
    world.pass(130);
    let decided = world.decided();
    assert!(decided.slot > 50_000, "{decided:?}");
    assert_eq!((decided.pressing, decided.late.len()), (Some(JobId(4)), 0));
    assert_eq!(decided.note, None, "{decided:?}");
}

/// A market without spot, a deadline after ten slots, and a first job that is not done by then.
fn overdue() -> World {
    let mut short = terms();
    short.deadline = Micros(600 * S);
    short.choice = fixed(Policy::OnDemand);
    let mut world = World::new(short, 0);
    world.jobs = vec![job(1)];
    world.jobs[0].total_steps = 1_000_000;
    world
}

#[test]
fn work_whose_deadline_is_over_goes_on_with_the_fewest_machines_whoever_comes() {
    let mut world = overdue();
    // Jobs that come later have no deadline either, and each has much to do.
    for id in 2..40 {
        world.pass(60);
        world.jobs.push(job(id));
    }
    let decided = world.decided();
    assert_eq!(world.broker.target().count(), 1, "{decided:?}");
    assert!(
        matches!(decided.reason, Some(Reason::GivesUp)),
        "{decided:?}"
    );
}

#[test]
fn a_cluster_that_is_never_idle_begins_anew_once_the_jobs_of_its_begin_are_done() {
    for paused in [false, true] {
        let mut world = overdue();
        world.pass(900);
        world.jobs.push(job(2));
        world.jobs[1].total_steps = 1_000;
        world.pass(600);
        let first = |world: &World| world.broker.stretch.as_ref().map(|own| own.first);
        let before = first(&world);
        // Done, or paused and forgotten.
        (world.jobs[0].ended, world.jobs[0].paused) = (!paused, paused);
        world.pass(120);
        assert!(first(&world) > before, "{before:?}");
        let decided = world.decided();
        assert!(
            !matches!(decided.reason, Some(Reason::GivesUp)),
            "{decided:?}"
        );
    }
}
