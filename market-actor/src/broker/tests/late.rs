//! What was done stays done, and a deadline that cannot be met does not decide for the others.

use super::super::*;
use super::world::*;
use crate::policy::Policy;

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
