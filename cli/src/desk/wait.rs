//! Waiting for the cluster to come to something: by its events, not by the clock, and over restarts of the coordinator.

use shared::ids::EventNumber;
use shared::wire::request::{JobRef, Reply, Request};
use shared::wire::view::{EventView, JobView};

use super::Desk;
use crate::control::{Flow, is_lost, unfitting};
use crate::exit::{Exit, Failure};
use crate::shown::events;

/// Connections in a row on which nothing comes before a coordinator is given up.
const TRIES: u32 = 20;

/// Looks until `done` says so: now, and after every batch of events. Events are shown as they come.
///
/// # Errors
/// What `done` says; [`Exit::Interrupted`] when the user wants no more of it.
pub(crate) fn until(
    desk: &Desk<'_>,
    after: EventNumber,
    mut done: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    until_told(desk, after, |_| done())
}

/// As [`until`], where what happened counts: `done` is given each batch of events once, and none when it is asked first.
///
/// # Errors
/// As [`until`].
pub(crate) fn until_told(
    desk: &Desk<'_>,
    after: EventNumber,
    mut done: impl FnMut(&[EventView]) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    match done(&[]) {
        Ok(true) => return Ok(()),
        Err(failure) if !is_lost(&failure) => return Err(failure),
        Ok(false) | Err(_) => {}
    }
    let end = follow(desk, None, after, &mut |batch| {
        for event in batch.iter().filter(|event| tells(event)) {
            desk.output.note(events::line(event));
        }
        if desk.interrupt.asked() {
            let message = "interrupted; the cluster goes on";
            return Err(Failure::new(Exit::Interrupted, message));
        }
        match done(batch) {
            Ok(true) => Ok(Flow::Enough),
            Err(failure) if !is_lost(&failure) => Err(failure),
            // A coordinator that is ending answers no more: the events say how it ended.
            Ok(false) | Err(_) => Ok(Flow::More),
        }
    })?;
    match end {
        End::Enough => Ok(()),
        End::Down => Err(Failure::new(Exit::Unreachable, DOWN)
            .hint("jobs go on from their durable steps when it is up again: wait then once more")),
    }
}

/// The cluster ended while something was waited for.
pub(crate) const DOWN: &str = "the cluster went down, as it was told to";

/// Why nothing more is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is enough.
    Enough,
    /// The cluster went down.
    Down,
}

/// Hands on what happens after an event, each batch as it comes, until it is enough. A coordinator that is started
/// again meanwhile is asked to go on after the last event that was handed on; one whose cluster went down says so.
///
/// # Errors
/// What `take` says; [`Exit::Unreachable`] when the coordinator does not come back.
pub(crate) fn follow(
    desk: &Desk<'_>,
    job: Option<&JobRef>,
    after: EventNumber,
    take: &mut dyn FnMut(&[EventView]) -> Result<Flow, Failure>,
) -> Result<End, Failure> {
    let (mut last, mut vain) = (after, 0);
    loop {
        let request = Request::Events {
            job: job.cloned(),
            after: last,
            follow: true,
        };
        let mut end = None;
        let followed = desk.control.stream(&request, &mut |reply| {
            let batch = match reply {
                Reply::Events(batch) => batch,
                Reply::Done => {
                    end = Some(End::Down);
                    return Ok(Flow::Enough);
                }
                other => return Err(unfitting(&other)),
            };
            vain = 0;
            // Whatever comes of it, it is not told again.
            last = batch.last().map_or(last, |event| last.max(event.number));
            let flow = take(&batch)?;
            end = (flow == Flow::Enough).then_some(End::Enough);
            Ok(flow)
        });
        let lost = match (followed, end) {
            (Ok(()), Some(end)) => return Ok(end),
            (Ok(()), None) => {
                let message = "the coordinator ended the stream of events";
                Failure::new(Exit::Unreachable, message)
            }
            (Err(failure), _) if is_lost(&failure) => failure,
            (Err(failure), _) => return Err(failure),
        };
        vain += 1;
        if vain > TRIES {
            return Err(lost);
        }
        desk.control.again()?;
    }
}

/// Does what may be done twice, and does it again when the coordinator was started again meanwhile.
///
/// # Errors
/// What `work` says; [`Exit::Unreachable`] when the coordinator does not come back.
pub(crate) fn over_restarts<T>(
    desk: &Desk<'_>,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut vain = 0;
    loop {
        match work() {
            Err(failure) if failure.exit == Exit::Unreachable && vain < TRIES => {
                vain += 1;
                desk.control.again()?;
            }
            outcome => return outcome,
        }
    }
}

/// Steps are too many to be told one by one.
fn tells(event: &EventView) -> bool {
    event.kind != "step"
}

/// The newest event, so that only what comes is told.
///
/// # Errors
/// As a request.
pub(crate) fn newest(desk: &Desk<'_>) -> Result<EventNumber, Failure> {
    Ok(desk.status()?.newest_event)
}

/// Hands on all events there are after a number, of all jobs or of one: those that there were when it was asked. A stream that is
/// cut, as of a reader slower than the coordinator waits for, goes on behind what was handed on.
///
/// # Errors
/// As a request, and what `take` says.
pub(crate) fn so_far(
    desk: &Desk<'_>,
    job: Option<&JobRef>,
    after: EventNumber,
    take: &mut dyn FnMut(&EventView) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut last, mut vain) = (after, 0);
    loop {
        let before = last;
        let request = Request::Events {
            job: job.cloned(),
            after: before,
            follow: false,
        };
        let told = desk.control.stream(&request, &mut |reply| {
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
        });
        match told {
            Err(failure) if is_lost(&failure) => {
                vain = if last > before { 0 } else { vain + 1 };
                if vain > TRIES {
                    return Err(failure);
                }
                desk.control.again()?;
            }
            told => return told,
        }
    }
}

/// The code of jobs that have ended.
pub(crate) fn exit_of<'a>(jobs: impl IntoIterator<Item = &'a JobView>) -> Exit {
    use shared::life::JobState;
    let all = jobs.into_iter().all(|job| job.state == JobState::Succeeded);
    if all { Exit::Done } else { Exit::JobEnded }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::wire::request::RefusalCode;
    use shared::wire::view::Level;

    use super::*;
    use crate::control::scripted::{Scripted, refused};
    use crate::desk::tests::at;
    use crate::shown::samples;

    #[test]
    fn events_are_followed_over_a_restart_and_each_is_told_once() {
        let control = Scripted::new(|request, before| {
            let Request::Events { after, follow, .. } = request else {
                panic!("{request:?}")
            };
            assert!(*follow);
            let event = |number| samples::event(number, Level::Info, "step", "");
            match before {
                0 => {
                    assert_eq!(*after, EventNumber(3));
                    let mut replies = vec![Reply::Events(vec![event(4), event(5)])];
                    replies.extend(refused(RefusalCode::Busy, "the coordinator is ending"));
                    replies
                }
                // A stream that just ends is one that was cut.
                1 => vec![Reply::Events(Vec::new())],
                _ => {
                    assert_eq!(*after, EventNumber(5));
                    vec![Reply::Events(vec![event(6)])]
                }
            }
        });
        let mut told = Vec::new();
        let followed = at(&control, None, |desk| {
            follow(desk, None, EventNumber(3), &mut |batch| {
                told.extend(batch.iter().map(|event| event.number.0));
                let enough = told.last() == Some(&6);
                Ok(if enough { Flow::Enough } else { Flow::More })
            })
        });
        assert_eq!(followed.unwrap(), End::Enough);
        assert_eq!(told, [4, 5, 6]);
        assert_eq!(control.again.get(), 2);
    }

    #[test]
    fn the_end_of_the_cluster_is_the_end_of_what_is_followed_and_no_end_of_what_is_waited_for() {
        let control = Scripted::new(|_, _| {
            let event = samples::event(4, Level::Info, "node_left", "");
            vec![Reply::Events(vec![event]), Reply::Done]
        });
        let mut told = 0;
        let followed = at(&control, None, |desk| {
            follow(desk, None, EventNumber(3), &mut |batch| {
                told += batch.len();
                Ok(Flow::More)
            })
        });
        assert_eq!((followed.unwrap(), told), (End::Down, 1));
        let waited = at(&control, None, |desk| {
            until(desk, EventNumber(3), || Ok(false))
        });
        let failure = waited.unwrap_err();
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.message().contains(DOWN), "{}", failure.message());
        assert_eq!(control.again.get(), 0);
    }

    /// One stream tells all there was: events that come meanwhile are not waited for.
    #[test]
    fn what_there_was_is_told_once_also_over_a_stream_that_was_cut() {
        let control = Scripted::new(|request, before| {
            let Request::Events { after, follow, .. } = request else {
                panic!("{request:?}")
            };
            assert!(!*follow);
            let event = |number| samples::event(number, Level::Info, "step", "");
            match before {
                0 => {
                    let mut replies = vec![Reply::Events(vec![event(4)])];
                    replies.extend(refused(RefusalCode::Busy, "it reads too slowly"));
                    replies
                }
                _ => {
                    assert_eq!(*after, EventNumber(4));
                    vec![Reply::Events(vec![event(5)]), Reply::Done]
                }
            }
        });
        let mut told = Vec::new();
        at(&control, None, |desk| {
            so_far(desk, None, EventNumber(3), &mut |event| {
                told.push(event.number.0);
                Ok(())
            })
        })
        .unwrap();
        assert_eq!((told, control.asked.borrow().len()), (vec![4, 5], 2));
    }

    #[test]
    fn a_coordinator_that_says_nothing_any_more_is_given_up() {
        let control = Scripted::new(|_, _| refused(RefusalCode::Busy, "it is ending"));
        let followed = at(&control, None, |desk| {
            follow(desk, None, EventNumber(0), &mut |_| Ok(Flow::More))
        });
        assert_eq!(followed.unwrap_err().exit, Exit::Busy);
        assert_eq!(control.again.get(), TRIES);
        let gone = Scripted::lost();
        let followed = at(&gone, None, |desk| {
            follow(desk, None, EventNumber(0), &mut |_| Ok(Flow::More))
        });
        assert_eq!(followed.unwrap_err().exit, Exit::Unreachable);
    }
}
