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

#[test]
fn the_question_to_the_planner_is_that_of_the_cluster_as_it_stands() {
    let mut desk = desk(13);
    let first = submit(&mut desk, "one");
    let second = submit(&mut desk, "two");
    let Reply::Job(unread) = desk.ask(Request::Submit(submission("three"))) else {
        panic!("a job is accepted");
    };
    let Reply::Plan(view) = desk.ask(Request::Plan) else {
        panic!("a question is answered by one");
    };
    assert_eq!(view.unread, [unread.id]);
    let snapshot: crate::plan::snapshot::Snapshot =
        serde_json::from_str(&view.question).expect("a problem");
    let jobs: Vec<JobId> = snapshot.tasks.keys().copied().collect();
    assert_eq!(jobs, [first, second]);
    assert_eq!(snapshot.nodes.len(), 1);
    assert_eq!(snapshot.options.stages, Some(1));
    // The planner's answer: one trains and one waits, as it is.
    let (plan, why) = crate::plan::solve::solve(&snapshot, None).expect("a plan");
    assert_eq!(plan.replicas[&0].jobs, [first], "{}", why.text());
    assert!(plan.waiting.contains_key(&second));
    // A drained node is none that may have work.
    desk.come("b", 1, None);
    desk.ask(Request::Drain {
        node: name("b"),
        undo: false,
    });
    let Reply::Plan(view) = desk.ask(Request::Plan) else {
        panic!("a question is answered by one");
    };
    assert!(!view.question.contains("\"b\""), "{}", view.question);
}

#[test]
fn a_job_that_trains_tells_its_step_beside_one_alone() {
    let mut desk = desk(64);
    let job = submit(&mut desk, "one");
    let tempo = |desk: &mut Desk| match desk.ask(Request::Job(by_name("one"))) {
        Reply::Job(view) => view.tempo,
        other => panic!("{other:?}"),
    };
    assert_eq!(tempo(&mut desk), None);
    desk.job("a", job, JobNotice::Admitted { step: 0, total: 9 });
    for step in 1..=4 {
        desk.pass(500);
        desk.job("a", job, desk::step(step));
    }
    let found = tempo(&mut desk).expect("it took steps");
    assert!(found.step >= Micros::of_millis(500), "{found:?}");
    assert_eq!(found.steps, 3);
    assert!(found.alone.is_some_and(|alone| alone > Micros(0)) && !found.measured);
}
