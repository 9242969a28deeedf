//! Waiting for the cluster to come to something: by its events, not by the clock.

use shared::ids::EventNumber;
use shared::wire::request::{JobRef, Reply, Request};
use shared::wire::view::{EventView, JobView};

use super::Desk;
use crate::control::{Flow, unfitting};
use crate::exit::{Exit, Failure};
use crate::shown::events;

/// Looks until `done` says so: now, and after every batch of events or sign of life. Events are shown as they come.
///
/// # Errors
/// What `done` says; [`Exit::Interrupted`] when the user wants no more of it.
pub(crate) fn until(
    desk: &Desk<'_>,
    after: EventNumber,
    mut done: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    if done()? {
        return Ok(());
    }
    let mut reached = false;
    let request = Request::Events {
        job: None,
        after,
        follow: true,
    };
    desk.control.stream(&request, &mut |reply| {
        let Reply::Events(batch) = reply else {
            return Err(unfitting(&reply));
        };
        for event in batch.iter().filter(|event| tells(event)) {
            desk.output.note(events::line(event));
        }
        if desk.interrupt.asked() {
            let message = "interrupted; the cluster goes on";
            return Err(Failure::new(Exit::Interrupted, message));
        }
        reached = done()?;
        Ok(if reached { Flow::Enough } else { Flow::More })
    })?;
    if reached {
        return Ok(());
    }
    let message = "the coordinator ended the stream of events before the end was reached";
    Err(Failure::new(Exit::Unreachable, message))
}

/// Steps are too many to be told one by one.
fn tells(event: &EventView) -> bool {
    event.kind != "step"
}

/// The last event so far, so that only what comes is told.
///
/// # Errors
/// As a request.
pub(crate) fn newest(desk: &Desk<'_>) -> Result<EventNumber, Failure> {
    so_far(desk, None, EventNumber::default(), &mut |_| Ok(()))
}

/// Hands on all events there are after a number, of all jobs or of one; gives the number of the last one. Answers are
/// bounded, so it asks until there is no more.
///
/// # Errors
/// As a request, and what `take` says.
pub(crate) fn so_far(
    desk: &Desk<'_>,
    job: Option<&JobRef>,
    after: EventNumber,
    take: &mut dyn FnMut(&EventView) -> Result<(), Failure>,
) -> Result<EventNumber, Failure> {
    let mut last = after;
    loop {
        let before = last;
        let request = Request::Events {
            job: job.cloned(),
            after: before,
            follow: false,
        };
        desk.control.stream(&request, &mut |reply| {
            let batch = match reply {
                Reply::Events(batch) => batch,
                Reply::Done => return Ok(Flow::Enough),
                other => return Err(unfitting(&other)),
            };
            for event in &batch {
                take(event)?;
                last = last.max(event.number);
            }
            Ok(Flow::More)
        })?;
        if last == before {
            return Ok(last);
        }
    }
}

/// The code of jobs that have ended.
pub(crate) fn exit_of<'a>(jobs: impl IntoIterator<Item = &'a JobView>) -> Exit {
    use shared::life::JobState;
    let all = jobs.into_iter().all(|job| job.state == JobState::Succeeded);
    if all { Exit::Done } else { Exit::JobEnded }
}
