//! A job that is waited for, as it is now: also when it ended and was let go of meanwhile (`limits.ended_jobs_kept`). Its events
//! stay in the journal, so they tell how it ended.

use serde_json::Value;
use shared::ids::EventNumber;
use shared::life::{JobState, Reason, ReasonClass};
use shared::wire::request::{JobRef, Request};
use shared::wire::view::{EventView, JobView, Level};

use super::{Desk, wait};
use crate::exit::{Exit, Failure};

/// A job as it is now, which was known when `after` was the newest event.
///
/// # Errors
/// As a request; [`Exit::NotFound`] when it is known no more, and how it ended is not among the events after that one.
pub(crate) fn now(desk: &Desk<'_>, job: &JobView, after: EventNumber) -> Result<JobView, Failure> {
    let lacks = match desk.job(&Request::Job(JobRef::Id(job.id))) {
        Err(failure) if failure.exit == Exit::NotFound => failure,
        answered => return answered,
    };
    let mut ended = job.clone();
    wait::so_far(desk, None, after, &mut |event| {
        if event.job == Some(job.id) {
            take(&mut ended, event);
        }
        Ok(())
    })?;
    if !matches!(ended.state, JobState::Cancelling) && !ended.state.is_final() {
        return Err(Failure {
            error: lacks.error.context(format!(
                "job {} ({}) has ended, and how is not known any more",
                job.name, job.id
            )),
            ..lacks
        }
        .hint("it was let go of for newer ones: raise limits.ended_jobs_kept")
        .hint("spotmux events tells how, as far back as the journal goes"));
    }
    // One that is known no more has ended: where no node had it, the request was the end.
    if ended.state == JobState::Cancelling {
        ended.state = JobState::Cancelled;
    }
    desk.output.note(format!(
        "job {} ({}) was let go of for newer ones that ended (limits.ended_jobs_kept): its events tell how it ended",
        job.name, job.id
    ));
    Ok(ended)
}

/// Takes what an event says of its job's end.
fn take(job: &mut JobView, event: &EventView) {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    let state = match event.kind.as_str() {
        "job_succeeded" => JobState::Succeeded,
        "job_cancelled" => JobState::Cancelled,
        "cancel_requested" => JobState::Cancelling,
        "job_failed" | "job_refused" if event.level == Level::Error => JobState::Failed,
        "step" => {
            job.step = data["step"].as_u64().unwrap_or(job.step);
            return;
        }
        // One that goes on had not ended.
        "recovered" | "job_placed" => JobState::Running,
        _ => return,
    };
    // A request that came late changes no end.
    if job.state.is_final() && state == JobState::Cancelling {
        return;
    }
    job.state = state;
    job.ended = state.is_final().then_some(event.at);
    job.reason = (state == JobState::Failed).then(|| Reason {
        class: serde_json::from_value(data["class"].clone()).unwrap_or(ReasonClass::Numeric),
        message: event.message.clone(),
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::wire::request::{RefusalCode, Reply};

    use super::*;
    use crate::control::scripted::{Scripted, refused};
    use crate::desk::tests::at;
    use crate::shown::samples;

    fn ended(kinds: &'static [(&'static str, Level)]) -> Result<JobView, Failure> {
        let control = Scripted::new(move |request, _| match request {
            Request::Job(_) => refused(RefusalCode::NotFound, "no job j3 is known here"),
            Request::Events {
                after,
                follow: false,
                ..
            } if after.0 == 7 => {
                let events = (8..).zip(kinds);
                let events = events.map(|(number, (kind, level))| {
                    samples::event(number, *level, kind, "so it was")
                });
                // Another job's end is none of its business.
                let mut other = samples::event(99, Level::Info, "job_succeeded", "");
                other.job = None;
                vec![Reply::Events(events.chain([other]).collect()), Reply::Done]
            }
            Request::Events { .. } => vec![Reply::Done],
            other => panic!("{other:?}"),
        });
        let job = samples::job(3, "a", JobState::Running);
        at(&control, None, |desk| now(desk, &job, EventNumber(7)))
    }

    #[test]
    fn a_job_that_was_let_go_of_ended_as_its_events_say() {
        const INFO: Level = Level::Info;
        let state = |kinds| ended(kinds).unwrap().state;
        let well = state(&[("step", INFO), ("job_succeeded", INFO)]);
        assert_eq!(well, JobState::Succeeded);
        assert_eq!(state(&[("cancel_requested", INFO)]), JobState::Cancelled);
        let late = state(&[("cancel_requested", INFO), ("job_succeeded", INFO)]);
        assert_eq!(late, JobState::Succeeded);
        let failed = ended(&[("step", INFO), ("job_failed", Level::Error)]).unwrap();
        assert_eq!((failed.state, failed.step), (JobState::Failed, 4));
        assert_eq!(failed.reason.unwrap().message, "so it was");
    }

    #[test]
    fn an_end_that_is_not_told_is_said_to_be_unknown() {
        for kinds in [
            &[][..],
            &[("job_refused", Level::Error), ("job_placed", Level::Info)],
        ] {
            let failure = ended(kinds).unwrap_err();
            assert_eq!(failure.exit, Exit::NotFound);
            let message = failure.message();
            assert!(message.contains("how is not known any more"), "{message}");
        }
    }
}
