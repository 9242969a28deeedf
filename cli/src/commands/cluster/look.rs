//! `spotmux status`, `nodes`, `jobs`, `job`, `events`: looking changes nothing.

use serde_json::{Value, json};
use shared::life::JobState;
use shared::wire::request::{Reply, Request};
use shared::wire::view::{EventView, JobView, NodeView};

use crate::args::{EventsArgs, JobArgs, JobsArgs};
use crate::control::{Flow, unfitting};
use crate::desk::wait::{DOWN, End};
use crate::desk::{Desk, known, wait};
use crate::exit::{Exit, Failure};
use crate::shown::{cluster, events, jobs};

/// Shows the cluster at a glance.
pub(crate) fn status(desk: &Desk<'_>) -> Result<Exit, Failure> {
    let status = desk.status()?;
    desk.output
        .result(&cluster::told(&status), &cluster::glance(&status))?;
    // Who is lost needs nothing: its work goes elsewhere, and a drain would keep it from work when it is back.
    let next = ["spotmux jobs".to_owned(), "spotmux events -f".to_owned()];
    desk.output.next(&next);
    Ok(Exit::Done)
}

/// Lists nodes.
pub(crate) fn nodes(desk: &Desk<'_>) -> Result<Exit, Failure> {
    let nodes = all_nodes(desk)?;
    let told: Vec<Value> = nodes.iter().map(cluster::told_node).collect();
    desk.output
        .result(&json!({ "nodes": told }), &cluster::nodes(&nodes))?;
    Ok(Exit::Done)
}

/// All nodes.
pub(crate) fn all_nodes(desk: &Desk<'_>) -> Result<Vec<NodeView>, Failure> {
    match desk.control.request(&Request::Nodes)? {
        Reply::Nodes(nodes) => Ok(nodes),
        other => Err(unfitting(&other)),
    }
}

/// All jobs.
pub(crate) fn all_jobs(desk: &Desk<'_>) -> Result<Vec<JobView>, Failure> {
    match desk.control.request(&Request::Jobs)? {
        Reply::Jobs(jobs) => Ok(jobs),
        other => Err(unfitting(&other)),
    }
}

/// Lists jobs.
pub(crate) fn jobs(args: &JobsArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let mut found = all_jobs(desk)?;
    let all = found.len();
    if !args.all {
        found.retain(|job| !job.state.is_final());
    }
    let told: Vec<Value> = found.iter().map(jobs::told).collect();
    desk.output
        .result(&json!({ "jobs": told }), &jobs::table(&found, desk.now))?;
    let ended = all - found.len();
    if ended > 0 {
        desk.output
            .note(format!("{ended} more have ended: spotmux jobs --all"));
    }
    Ok(Exit::Done)
}

/// Shows a job.
pub(crate) fn job(args: &JobArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let mut job = desk.job(&Request::Job(args.job.clone()))?;
    let mut exit = Exit::Done;
    if args.wait {
        job = ended(desk, job)?;
        exit = wait::exit_of([&job]);
    }
    show(desk, &job)?;
    Ok(exit)
}

/// Waits until a job has ended.
///
/// # Errors
/// As [`wait::until`].
pub(crate) fn ended(desk: &Desk<'_>, job: JobView) -> Result<JobView, Failure> {
    reached(desk, job, JobState::is_final)
}

/// Waits until the state of a job is one that is wanted, or final.
///
/// # Errors
/// As [`wait::until`].
pub(crate) fn reached(
    desk: &Desk<'_>,
    job: JobView,
    wanted: impl Fn(JobState) -> bool,
) -> Result<JobView, Failure> {
    let after = wait::newest(desk)?;
    let mut job = job;
    wait::until(desk, after, || {
        job = known::now(desk, &job, after)?;
        Ok(wanted(job.state) || job.state.is_final())
    })?;
    Ok(job)
}

/// Shows a job, and what can be done with it.
pub(crate) fn show(desk: &Desk<'_>, job: &JobView) -> Result<(), Failure> {
    desk.output
        .result(&jobs::told(job), &jobs::facts(job, desk.now))?;
    let id = job.id;
    desk.output.next(&match job.state {
        JobState::Succeeded => of_succeeded(job),
        // Its adapter was not written; what is durable of it still answers.
        JobState::Cancelled if job.durable_step > 0 => vec![of_durable(job)],
        JobState::Cancelled => Vec::new(),
        JobState::Failed => vec![format!("spotmux events --job {id}")],
        JobState::Paused => vec![
            format!("spotmux resume {id}"),
            format!("spotmux cancel {id}"),
        ],
        _ => vec![
            format!("spotmux events -f --job {id}"),
            format!("spotmux job {id} --wait"),
        ],
    });
    Ok(())
}

/// What can be done with a job that succeeded.
pub(crate) fn of_succeeded(job: &JobView) -> Vec<String> {
    vec![
        format!("spotmux fetch {} {}", job.id, job.name),
        of_durable(job),
    ]
}

fn of_durable(job: &JobView) -> String {
    format!("spotmux sample --job {} 'Your prompt'", job.id)
}

/// Tells what happened.
pub(crate) fn events(args: &EventsArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let show = |event: &EventView| -> Result<(), Failure> {
        Ok(desk
            .output
            .result(&events::told(event), &events::line(event))?)
    };
    if !args.follow {
        wait::so_far(desk, args.job.as_ref(), args.after, &mut |event| {
            show(event)
        })?;
        return Ok(Exit::Done);
    }
    let mut exit = Exit::Done;
    let end = wait::follow(desk, args.job.as_ref(), args.after, &mut |batch| {
        batch.iter().try_for_each(show)?;
        if desk.interrupt.asked() {
            exit = Exit::Interrupted;
            return Ok(Flow::Enough);
        }
        Ok(Flow::More)
    })?;
    if end == End::Down {
        desk.output.note(DOWN);
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::ids::{EventNumber, JobId};
    use shared::wire::request::{JobRef, RefusalCode};
    use shared::wire::view::Level;

    use super::*;
    use crate::args::ClusterArgs;
    use crate::control::scripted::{Scripted, refused};
    use crate::desk::tests::at;
    use crate::shown::samples;

    #[test]
    fn a_wait_ends_with_the_job_and_its_end_is_the_code() {
        for (state, code) in [
            (JobState::Succeeded, Exit::Done),
            (JobState::Failed, Exit::JobEnded),
        ] {
            let control = Scripted::new(move |request, before| match request {
                Request::Job(_) => {
                    let now = if before < 6 { JobState::Running } else { state };
                    vec![Reply::Job(Box::new(samples::job(3, "a", now)))]
                }
                Request::Status => vec![Reply::Cluster(samples::cluster())],
                Request::Events { after, follow, .. } => {
                    assert!(*follow && *after == EventNumber(7));
                    let event = |number| samples::event(number, Level::Info, "checkpoint", "saved");
                    (8..12)
                        .map(|number| Reply::Events(vec![event(number)]))
                        .collect()
                }
                other => panic!("{other:?}"),
            });
            let args = JobArgs {
                job: JobRef::Id(JobId(3)),
                wait: true,
                cluster: ClusterArgs::default(),
            };
            let exit = at(&control, None, |desk| job(&args, desk)).unwrap();
            assert_eq!(exit, code);
        }
    }

    #[test]
    fn a_refusal_has_the_code_of_its_kind() {
        let kinds = [
            (RefusalCode::NotFound, 4),
            (RefusalCode::Invalid, 3),
            (RefusalCode::Conflict, 8),
            (RefusalCode::Forbidden, 9),
            (RefusalCode::Busy, 10),
            (RefusalCode::NoCapacity, 11),
            (RefusalCode::Internal, 12),
        ];
        for (kind, code) in kinds {
            let control = Scripted::new(move |_, _| refused(kind, "no job j3"));
            let failure = at(&control, None, status).unwrap_err();
            assert_eq!(
                (failure.exit.code(), failure.message().as_str()),
                (code, "no job j3")
            );
        }
    }

    #[test]
    fn another_reply_is_no_answer() {
        let control = Scripted::new(|_, _| vec![Reply::Done]);
        for look in [status, nodes] {
            let failure = at(&control, None, look).unwrap_err();
            assert_eq!(failure.exit, Exit::Coordinator);
        }
    }

    #[test]
    fn events_are_told_until_they_end() {
        let control = Scripted::new(|request, _| {
            assert!(matches!(request, Request::Events { .. }), "{request:?}");
            let event = samples::event(8, Level::Info, "checkpoint", "saved");
            vec![Reply::Events(vec![event]), Reply::Done]
        });
        let args = EventsArgs {
            follow: false,
            job: Some(JobRef::Id(JobId(3))),
            after: EventNumber(7),
            cluster: ClusterArgs::default(),
        };
        assert_eq!(
            at(&control, None, |desk| events(&args, desk)).unwrap(),
            Exit::Done
        );
        let asked = control.asked.borrow();
        let after: Vec<u64> = asked
            .iter()
            .filter_map(|request| match request {
                Request::Events {
                    after,
                    follow: false,
                    ..
                } => Some(after.0),
                _ => None,
            })
            .collect();
        assert_eq!(after, [7]);
    }
}
