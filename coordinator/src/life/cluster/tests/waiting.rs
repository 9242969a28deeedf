//! Jobs that admission keeps waiting, lets begin, or refuses.

use std::sync::Arc;

use shared::wire::request::Submission;

use super::*;
use crate::life::admission::{Admission, Levels};
use crate::plan::profile::Weights;
use crate::record::{Inputs, Measure};
use shared::ids::JobId;
use shared::units::Bytes;

/// A cluster of one node that offers so many MiB.
pub(super) fn desk(mib: u64) -> Desk {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.machine.settings.admission = Some(Arc::new(Admission {
        profiles: Vec::new(),
        blocks: Weights::F32,
        tables: Weights::F32,
        max_added_latency: Micros(0),
        patience: Micros::of_millis(3_600_000),
        tenants: BTreeMap::new(),
        tokens_per_pass: 512,
        levels: Levels::default(),
    }));
    desk.memory = Bytes(mib << 20);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    desk
}

/// Submits a job whose adapter takes some seven MiB, and tells of its rows.
pub(super) fn submit(desk: &mut Desk, name: &str) -> JobId {
    let spec = format!(
        r#"{{"name":"{name}","adapter":{{"method":"lora","rank":64}},"data":{{"train":"d.jsonl"}},"train":{{"steps":9}}}}"#
    );
    let files = submission(name).files;
    let Reply::Job(view) = desk.ask(Request::Submit(Submission { spec, files })) else {
        panic!("a job is accepted");
    };
    let inputs = Inputs {
        measure: Some(Box::new(Measure::of([(32, 30); 4]))),
        ..Inputs::default()
    };
    desk.input(Input::Prepared {
        job: view.id,
        outcome: Ok(inputs),
    });
    view.id
}

fn reason(desk: &mut Desk, job: &str) -> Option<String> {
    let Reply::Job(view) = desk.ask(Request::Job(by_name(job))) else {
        panic!("a job is answered by a job");
    };
    view.reason.map(|reason| reason.message)
}

#[test]
fn a_job_waits_for_memory_with_its_reason_and_begins_when_there_is_some() {
    let mut desk = desk(13);
    let first = submit(&mut desk, "one");
    assert_eq!(desk.state(first), JobState::Provisioning);
    let second = submit(&mut desk, "two");
    assert_eq!(desk.state(second), JobState::Queued);
    let said = reason(&mut desk, "two").expect("it says why");
    assert!(said.starts_with("it waits for memory, about "), "{said}");
    desk.job("a", first, JobNotice::Admitted { step: 0, total: 9 });
    assert_eq!(reason(&mut desk, "one"), None);
    desk.ask(Request::Cancel(by_name("one")));
    desk.job("a", first, JobNotice::Cancelled { step: 0 });
    desk.pass(200);
    assert_eq!(desk.state(second), JobState::Provisioning);
    assert_eq!(reason(&mut desk, "two"), None);
}

#[test]
fn a_job_that_can_never_fit_is_refused_with_what_would() {
    let mut desk = desk(5);
    let job = submit(&mut desk, "one");
    assert_eq!(desk.state(job), JobState::Failed);
    let said = reason(&mut desk, "one").expect("it says why");
    assert!(
        said.contains("can never train") && said.contains("rank up to"),
        "{said}"
    );
}

#[test]
fn without_a_measure_of_its_rows_a_job_is_placed_as_before() {
    let mut desk = desk(13);
    desk.train("one", "a");
}

#[test]
fn the_same_question_is_asked_once() {
    let mut desk = desk(13);
    submit(&mut desk, "one");
    submit(&mut desk, "two");
    let records = desk.records;
    for _ in 0..3 {
        desk.input(Input::Tick);
    }
    assert_eq!(
        desk.records, records,
        "a job that waits writes nothing down"
    );
}
