//! `spotmux cancel`, `pause`, `resume`.

use shared::life::JobState;
use shared::wire::request::Request;

use super::look;
use crate::args::{CancelArgs, PauseArgs, ResumeArgs};
use crate::desk::{Desk, named};
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
    let mut job = desk.job(&Request::Pause(args.job.clone()))?;
    if args.wait {
        job = look::reached(desk, job, |state| state == JobState::Paused)?;
    }
    look::show(desk, &job)?;
    Ok(of(job.state == JobState::Paused || !args.wait))
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
