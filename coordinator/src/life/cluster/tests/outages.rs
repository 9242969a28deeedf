//! A store that does not answer for a while: drains that are not durable, and jobs that no replica can take. CL-10

use shared::ids::{JobId, PlanEpoch};
use shared::life::{JobState, Reason, ReasonClass};
use shared::wire::notice::{JobNotice, Notice};
use shared::wire::order::Order;
use shared::wire::request::{JobRef, Reply, Request};

use super::desk::{self, Desk, submission};
use super::losses::{at_work, goes_on, obey, seated, view};
use crate::life::placement::Stages;
use crate::record::Change;

const FIRST: PlanEpoch = PlanEpoch(1);

fn full() -> Result<(), String> {
    Err("j1: the disk is full".into())
}

#[test]
fn tr_1_a_drain_that_is_not_durable_calls_the_move_off_and_it_is_tried_again_later() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    assert_eq!(desk.drain("a", false), Reply::Done);
    obey(&mut desk, &["b"], ["", ""]);
    for wait in [1_000, 2_000, 4_000] {
        let orders = desk.orders("a");
        assert!(
            matches!(orders[..], [Order::Drain { epoch: FIRST, .. }]),
            "{orders:?}"
        );
        desk.drained("a", full());
        assert_eq!(desk.orders("a"), [Order::Undrain { epoch: FIRST }]);
        assert_eq!(seated(&desk), ["a"]);
        assert_eq!(desk.state(job), JobState::Running, "it trains meanwhile");
        desk.pass(wait - 200);
        assert!(desk.machine.moving.is_none(), "not before {wait} ms");
        desk.pass(300);
        obey(&mut desk, &["b"], ["", ""]);
    }
    let told = desk
        .journal
        .iter()
        .filter_map(|record| match &record.change {
            Change::MoveCalledOff { reason, .. } => Some(reason.clone()),
            _ => None,
        });
    let told: Vec<String> = told.collect();
    assert_eq!(told.len(), 3);
    assert_eq!(
        told[0],
        "a could not make all states durable: j1: the disk is full"
    );
    // The answer to an earlier drain is late: the first stage has trained on since.
    let late = Notice::Drained {
        epoch: FIRST,
        toward: PlanEpoch(2),
        outcome: Ok(()),
    };
    desk.tell("a", late);
    assert_eq!(seated(&desk), ["a"], "TR-3");
    desk.drained("a", Ok(()));
    obey(&mut desk, &["b"], ["", ""]);
    assert_eq!(seated(&desk), ["b"]);
    goes_on(&mut desk, job, "b");
}

#[test]
fn cl_7_nodes_are_told_to_stop_when_what_could_not_be_stored_is() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    desk.ask(Request::Shutdown);
    desk.drained("a", full());
    desk.pass(2_000);
    assert!(!desk.orders("b").contains(&Order::Stop));
    let told = |record: &&crate::record::Record| matches!(record.change, Change::NotDurable { .. });
    assert_eq!(desk.journal.iter().filter(told).count(), 1);
    desk.drained("a", Ok(()));
    assert!(desk.orders("b").contains(&Order::Stop));
}

fn refused(desk: &mut Desk, job: JobId) {
    let class = ReasonClass::System;
    let message = "the store does not answer".into();
    desk.job("a", job, JobNotice::Refused(Reason { class, message }));
}

fn is_admitted(desk: &mut Desk) -> bool {
    let orders = desk.orders("a");
    orders
        .iter()
        .any(|order| matches!(order, Order::Admit { .. }))
}

/// A cluster that was given a job which its replica could not take.
fn without_store() -> (Desk, JobId) {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let Reply::Job(job) = desk.ask(Request::Submit(submission("one"))) else {
        panic!("a job is accepted");
    };
    desk.prepare();
    assert!(is_admitted(&mut desk));
    refused(&mut desk, job.id);
    (desk, job.id)
}

#[test]
fn cl_10_a_job_waits_for_the_store_twice_as_long_each_time() {
    let (mut desk, job) = without_store();
    for wait in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
        assert!(!is_admitted(&mut desk), "not at once");
        let waits = view(&mut desk, job);
        assert_eq!(waits.state, JobState::Queued);
        assert!(waits.reason.unwrap().message.contains("the store"));
        desk.pass(wait / 10 * 9);
        assert!(!is_admitted(&mut desk), "not before {wait} ms");
        desk.pass(wait / 5);
        assert!(is_admitted(&mut desk), "after {wait} ms");
        refused(&mut desk, job);
    }
    // The store answers again: all is forgotten.
    desk.pass(31_000);
    assert!(is_admitted(&mut desk));
    desk.job("a", job, JobNotice::Admitted { step: 0, total: 9 });
    desk.job("a", job, desk::step(1));
    assert_eq!(desk.state(job), JobState::Running);
}

#[test]
fn cl_10_after_the_patience_a_job_fails_and_says_how_often_it_was_tried() {
    let (mut desk, job) = without_store();
    let mut passed = 0;
    while desk.state(job) != JobState::Failed {
        assert!(passed < 301_000, "it is too patient");
        desk.pass(100);
        passed += 101;
        if is_admitted(&mut desk) {
            refused(&mut desk, job);
        }
    }
    assert!(passed >= 295_000, "{passed} ms are less than its patience");
    let reason = view(&mut desk, job).reason.unwrap().message;
    assert!(
        reason.starts_with("the store does not answer; it was tried 1"),
        "{reason}"
    );
    let one = JobRef::Id(job);
    assert!(matches!(desk.ask(Request::Cancel(one)), Reply::Refused(_)));
}

#[test]
fn a_job_that_fewer_replicas_share_than_it_asks_for_says_so_and_why() {
    let mut desk = Desk::new(Stages::AllNodes, 2, 3);
    for node in ["a", "b", "c"] {
        desk.come(node, 1, None);
    }
    desk.settle(&["a", "b", "c"]);
    let mut wide = submission("wide");
    wide.spec = wide.spec.replacen('{', r#"{"replicas":2,"#, 1);
    let Reply::Job(job) = desk.ask(Request::Submit(wide)) else {
        panic!("a job is accepted");
    };
    desk.prepare();
    assert!(is_admitted(&mut desk));
    let start =
        "trains on 1 of 2 replicas: cuts differ, replica 0 is 0..3 3..6 and replica 1 is 0..6";
    let reason = view(&mut desk, job.id).reason.unwrap();
    assert!(reason.message.starts_with(start), "{reason:?}");
    let told = desk
        .journal
        .iter()
        .filter_map(|record| match &record.change {
            Change::SharedByFewer { job, reason } => Some((*job, reason.clone())),
            _ => None,
        });
    assert_eq!(told.collect::<Vec<_>>(), [(job.id, reason.message)]);
}
