//! `spotmux cancel`, `pause`, `resume`.

use serde_json::Value;
use shared::ids::EventNumber;
use shared::life::JobState;
use shared::wire::request::Request;
use shared::wire::view::{EventView, JobView};

use super::look;
use crate::args::{CancelArgs, PauseArgs, ResumeArgs};
use crate::desk::{Desk, known, named, wait};
use crate::exit::{Exit, Failure};

/// Ends a job.
pub(crate) fn cancel(args: &CancelArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let name = named(&args.job);
    desk.agreed(
        args.consent,
        &format!("Cancel job {name}? It cannot be resumed."),
    )?;
    let mut job = desk.job(&Request::Cancel(args.job.clone()))?;
    if args.wait {
        job = look::ended(desk, job)?;
    }
    look::show(desk, &job)?;
    Ok(Exit::Done)
}

/// Halts a job.
pub(crate) fn pause(args: &PauseArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let pause = Request::Pause(args.job.clone());
    if !args.wait {
        look::show(desk, &desk.job(&pause)?)?;
        return Ok(Exit::Done);
    }
    // Before the request, so that its halt is among what comes.
    let after = wait::newest(desk)?;
    let before = desk.job(&Request::Job(args.job.clone()))?.state;
    let asked = desk.job(&pause)?;
    // One that was paused before has told of its halt, and does not tell again.
    let job = match before {
        JobState::Paused => asked,
        _ => halted(desk, asked, before, after)?,
    };
    look::show(desk, &job)?;
    Ok(of(job.state == JobState::Paused))
}

/// Waits until a job trains no more: it is paused from the request on, and its step under way goes on.
fn halted(
    desk: &Desk<'_>,
    asked: JobView,
    before: JobState,
    after: EventNumber,
) -> Result<JobView, Failure> {
    let (mut job, mut rests) = (asked, false);
    wait::until_told(desk, after, |batch| {
        rests |= batch.iter().any(|event| is_halt(event, &job, before));
        job = known::now(desk, &job, after)?;
        Ok(rests || job.state != JobState::Paused || job.replica.is_none())
    })?;
    Ok(job)
}

/// Whether a paused job takes no step after an event. It is told of its halt, or its replica ends under it: where that comes
/// again, the job is there as a paused one, and says no more than that it is there. So does one that was on its way there;
/// where its order was older than the pause, it halts after its first step at the latest.
fn is_halt(event: &EventView, job: &JobView, before: JobState) -> bool {
    let own = event.job == Some(job.id);
    let data = || serde_json::from_str::<Value>(&event.data).unwrap_or_default();
    match event.kind.as_str() {
        "paused" => own,
        "job_admitted" => own && before != JobState::Running,
        "replica_broken" => job.replica.is_some() && data()["replica"] == Value::from(job.replica),
        "plan_in_force" => job.replica.is_some_and(|replica| {
            let data = data();
            data["replicas"][replica.to_string()]["since"] == data["epoch"]
        }),
        _ => false,
    }
}

/// Goes on with a job.
pub(crate) fn resume(args: &ResumeArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let mut job = desk.job(&Request::Resume(args.job.clone()))?;
    if args.wait {
        // Paused again by somebody, it need not run before it is resumed by somebody.
        let goes_on = |state| matches!(state, JobState::Running | JobState::Paused);
        job = look::reached(desk, job, goes_on)?;
        if job.state == JobState::Paused {
            let name = &job.name;
            desk.output
                .note(format!("job {name} was paused again before it ran"));
        }
    }
    look::show(desk, &job)?;
    let well = matches!(job.state, JobState::Running | JobState::Succeeded);
    Ok(of(well || !args.wait))
}

/// A job that ended otherwise than was waited for.
fn of(well: bool) -> Exit {
    if well { Exit::Done } else { Exit::JobEnded }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::ids::JobId;
    use shared::wire::request::{JobRef, Reply};
    use shared::wire::view::Level;

    use super::*;
    use crate::args::{ClusterArgs, Consent};
    use crate::control::scripted::Scripted;
    use crate::desk::tests::at;
    use crate::shown::samples;

    fn answering(state: JobState) -> Scripted {
        Scripted::new(move |_, _| vec![Reply::Job(Box::new(samples::job(3, "a", state)))])
    }

    fn cancelling(yes: bool) -> CancelArgs {
        CancelArgs {
            job: JobRef::Id(JobId(3)),
            wait: false,
            consent: Consent { yes },
            cluster: ClusterArgs::default(),
        }
    }

    #[test]
    fn a_job_is_cancelled_only_when_that_is_meant() {
        let control = answering(JobState::Cancelling);
        let refused = at(&control, Some(false), |desk| {
            cancel(&cancelling(false), desk)
        });
        assert_eq!(refused.unwrap_err().exit, Exit::Interrupted);
        assert!(control.asked.borrow().is_empty());
        for (says, yes) in [(Some(true), false), (None, true)] {
            let done = at(&control, says, |desk| cancel(&cancelling(yes), desk));
            assert_eq!(done.unwrap(), Exit::Done);
        }
        let asked = control.asked.borrow();
        assert_eq!(*asked, vec![Request::Cancel(JobRef::Id(JobId(3))); 2]);
    }

    #[test]
    fn a_job_that_is_paused_again_is_not_waited_for() {
        let control = Scripted::new(|request, _| {
            let state = match request {
                Request::Resume(_) => JobState::Queued,
                _ => JobState::Paused,
            };
            match request {
                Request::Events { .. } => vec![Reply::Done],
                Request::Status => vec![Reply::Cluster(samples::cluster())],
                _ => vec![Reply::Job(Box::new(samples::job(3, "a", state)))],
            }
        });
        let args = ResumeArgs {
            job: JobRef::Id(JobId(3)),
            wait: true,
            cluster: ClusterArgs::default(),
        };
        let done = at(&control, None, |desk| resume(&args, desk));
        assert_eq!(done.unwrap(), Exit::JobEnded);
    }

    fn pausing() -> PauseArgs {
        PauseArgs {
            job: JobRef::Id(JobId(3)),
            wait: true,
            cluster: ClusterArgs::default(),
        }
    }

    /// An event of job j3, or of no job; `data` as the coordinator writes it.
    fn told(number: u64, kind: &str, own: bool, data: &str) -> EventView {
        let mut event = samples::event(number, Level::Info, kind, "");
        event.job = own.then_some(JobId(3));
        event.data = data.into();
        event
    }

    /// How often a job that was in a state is looked at until its pause is waited for no more; each event is a batch.
    fn looks_at(before: JobState, replica: Option<u32>, told: Vec<EventView>) -> usize {
        let control = Scripted::new(move |request, _| match request {
            Request::Status => vec![Reply::Cluster(samples::cluster())],
            Request::Events { after, .. } => {
                assert_eq!(*after, EventNumber(7));
                let batches = told.iter().map(|event| Reply::Events(vec![event.clone()]));
                batches.collect()
            }
            Request::Pause(_) | Request::Job(_) => vec![Reply::Job(Box::new(JobView {
                replica,
                ..samples::job(3, "a", JobState::Paused)
            }))],
            other => panic!("{other:?}"),
        });
        let looks = at(&control, None, |desk| {
            let asked = desk.job(&Request::Pause(JobRef::Id(JobId(3))))?;
            halted(desk, asked, before, EventNumber(7))
        });
        assert_eq!(looks.unwrap().state, JobState::Paused);
        let asked = control.asked.borrow();
        let of_job = |request: &&Request| matches!(request, Request::Job(_));
        asked.iter().filter(of_job).count()
    }

    #[test]
    fn a_pause_is_waited_for_until_the_step_under_way_is_over() {
        let here = Some(0);
        let others = [
            told(8, "pause_requested", true, ""),
            told(9, "paused", false, ""),
            told(10, "step", true, ""),
            told(11, "replica_broken", false, r#"{"replica":1}"#),
            told(
                12,
                "plan_in_force",
                false,
                r#"{"epoch":3,"replicas":{"0":{"since":2},"1":{"since":3}}}"#,
            ),
        ];
        let ends = [
            (JobState::Running, told(13, "paused", true, "")),
            (
                JobState::Running,
                told(13, "replica_broken", false, r#"{"replica":0}"#),
            ),
            (
                JobState::Running,
                told(
                    13,
                    "plan_in_force",
                    false,
                    r#"{"epoch":3,"replicas":{"0":{"since":3}}}"#,
                ),
            ),
            (JobState::Provisioning, told(13, "job_admitted", true, "")),
        ];
        for (before, end) in ends {
            let kind = end.kind.clone();
            let after = told(14, "step", false, "");
            let events = others.iter().cloned().chain([end, after]).collect();
            // At first, and after each event up to the end.
            assert_eq!(looks_at(before, here, events), 7, "{kind}");
        }
        // It was there before, and its halt is yet to come.
        let late = vec![
            told(8, "job_admitted", true, ""),
            told(9, "paused", true, ""),
        ];
        assert_eq!(looks_at(JobState::Running, here, late), 3);
        // On no replica it trains nowhere.
        assert_eq!(looks_at(JobState::Queued, None, Vec::new()), 1);
    }

    #[test]
    fn a_job_that_was_paused_before_is_not_waited_for() {
        let control = Scripted::new(|request, _| match request {
            Request::Status => vec![Reply::Cluster(samples::cluster())],
            Request::Pause(_) | Request::Job(_) => {
                let job = samples::job(3, "a", JobState::Paused);
                vec![Reply::Job(Box::new(job))]
            }
            other => panic!("{other:?}"),
        });
        let done = at(&control, None, |desk| pause(&pausing(), desk));
        assert_eq!(done.unwrap(), Exit::Done);
    }

    #[test]
    fn a_pause_with_wait_hears_the_halt_that_came_before_its_answer() {
        let control = Scripted::new(|request, before| match request {
            Request::Status => vec![Reply::Cluster(samples::cluster())],
            Request::Events { after, .. } => {
                assert_eq!(*after, EventNumber(7));
                vec![Reply::Events(vec![told(8, "paused", true, "")])]
            }
            Request::Pause(_) | Request::Job(_) => {
                let state = match before {
                    0..=1 => JobState::Running,
                    _ => JobState::Paused,
                };
                vec![Reply::Job(Box::new(samples::job(3, "a", state)))]
            }
            other => panic!("{other:?}"),
        });
        let done = at(&control, None, |desk| pause(&pausing(), desk));
        assert_eq!(done.unwrap(), Exit::Done);
        let asked = control.asked.borrow();
        let follows = |request: &Request| matches!(request, Request::Events { follow: true, .. });
        assert!(asked.iter().any(follows), "{asked:?}");
    }

    #[test]
    fn pausing_does_not_ask() {
        let control = answering(JobState::Running);
        let args = PauseArgs {
            job: JobRef::Id(JobId(3)),
            wait: false,
            cluster: ClusterArgs::default(),
        };
        assert_eq!(
            at(&control, None, |desk| pause(&args, desk)).unwrap(),
            Exit::Done
        );
    }
}
