//! Jobs that fit none of the replicas that stand, and the nodes that they wait for. CL-16

use shared::ids::JobId;
use shared::life::JobState;
use shared::units::{Bytes, Micros};
use shared::wire::notice::{Departure, LeaveCause, Notice};
use shared::wire::request::{Reply, Request};

use super::desk::{self, Desk, name};
use super::losses;
use super::waiting::{desk, reason, submit};

/// What a job that only b could take is told to wait for.
fn waits_for_b(desk: &mut Desk, after: fn(&mut Desk)) -> String {
    desk.memory = Bytes(64 << 20);
    desk.come("b", 1, None);
    after(desk);
    let job = submit(desk, "one");
    assert_eq!(desk.state(job), JobState::Queued);
    let said = reason(desk, "one").expect("it says why");
    assert!(said.contains("asked of replica 0 on a 5.0 MiB"), "{said}");
    said
}

#[test]
fn cl_16_a_job_waits_for_a_node_that_an_operator_can_give_it_and_is_told_how() {
    type Way = (&'static str, fn(&mut Desk));
    let ways: [Way; 5] = [
        (
            "b offers 64.0 MiB and was drained: `spotmux drain b --undo` gives it back, and then \
             `spotmux migrate a --to b` gives it the stage of a",
            |desk| assert_eq!(desk.drain("b", false), Reply::Done),
        ),
        ("b offered 64.0 MiB and is not here: start it;", |desk| {
            desk.leave("b");
            desk.pass(4_000);
        }),
        (
            "b offered 64.0 MiB and is not here: start it; `spotmux drain b --undo` gives it back, since it was drained",
            |desk| {
                desk.drain("b", false);
                desk.leave("b");
            },
        ),
        (
            "b offers 64.0 MiB, and its device does not come back from its work: start it again",
            |desk| {
                desk.hang("b");
                desk.pass(70_000);
            },
        ),
        (
            "b offers 64.0 MiB and leaves: start it again when it has ended",
            |desk| {
                let departure = Departure {
                    within: Micros::of_millis(60_000),
                    cause: LeaveCause::Asked,
                };
                desk.tell("b", Notice::Leaving(departure));
            },
        ),
    ];
    for (told, after) in ways {
        let said = waits_for_b(&mut desk(5), after);
        assert!(said.contains(told), "{told}\n{said}");
    }
}

#[test]
fn cl_16_a_job_that_waits_for_a_drained_node_trains_once_it_is_given_back_and_has_the_stage() {
    let mut desk = desk(5);
    waits_for_b(&mut desk, |desk| {
        desk.drain("b", false);
    });
    // For as long as it takes.
    desk.pass(600_000);
    assert_eq!(desk.state(JobId(1)), JobState::Queued);
    let (node, undo, force) = (name("b"), true, false);
    assert_eq!(desk.ask(Request::Drain { node, undo, force }), Reply::Done);
    desk.pass(2_000);
    let said = reason(&mut desk, "one").expect("it says why");
    assert!(
        said.contains("has no stage: `spotmux migrate a --to b`"),
        "{said}"
    );
    let (from, to) = (name("a"), Some(name("b")));
    assert_eq!(desk.ask(Request::Migrate { from, to }), Reply::Done);
    for _ in 0..2 {
        losses::obey(&mut desk, &["b", "a"], ["", ""]);
    }
    desk.pass(1_000);
    assert_eq!(desk.state(JobId(1)), JobState::Provisioning);
}

#[test]
fn cl_16_after_a_restart_a_job_waits_for_nodes_that_may_not_have_come_back_yet() {
    for drained in [false, true] {
        let mut desk = desk(5);
        desk.memory = Bytes(64 << 20);
        desk.come("b", 1, None);
        if drained {
            desk.drain("b", false);
        }
        desk.restart();
        desk.memory = Bytes(5 << 20);
        let held = desk::held(&[]);
        desk.come("a", 1, Some(held));
        let job = submit(&mut desk, "one");
        assert_eq!(desk.state(job), JobState::Queued, "b may yet come");
        let said = reason(&mut desk, "one").expect("it says why");
        let told = match drained {
            true => "b was drained and is not here: start it; `spotmux drain b --undo`",
            false => "nodes may take 12.0 s to come back",
        };
        assert!(said.contains(told), "{said}");
        desk.pass(13_000);
        let state = [JobState::Failed, JobState::Queued][usize::from(drained)];
        assert_eq!(desk.state(job), state, "drained: {drained}");
    }
}
