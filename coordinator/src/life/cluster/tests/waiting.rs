//! Jobs that admission keeps waiting, lets begin, or refuses.

use std::sync::Arc;

use shared::wire::request::Submission;

use super::*;
use crate::life::admission::{Admission, Levels};
use crate::plan::profile::{Peak, Profile, Weights};
use crate::plan::snapshot::Saturation;
use crate::record::{Inputs, Measure};
use shared::ids::JobId;
use shared::samples::SampleCount;
use shared::units::Bytes;

/// A cluster of one node that offers so many MiB.
pub(super) fn desk(mib: u64) -> Desk {
    desk_of(mib, Vec::new())
}

fn desk_of(mib: u64, profiles: Vec<Profile>) -> Desk {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.machine.settings.admission = Some(Arc::new(Admission {
        profiles,
        blocks: Weights::F32,
        tables: Weights::F32,
        saturation: Saturation::NO_LOSS,
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

/// Submits a job whose adapter takes some twelve MiB, five of them on their way to the store, and tells of its rows.
pub(super) fn submit(desk: &mut Desk, name: &str) -> JobId {
    submit_of(desk, name, "t")
}

fn submit_of(desk: &mut Desk, name: &str, tenant: &str) -> JobId {
    submit_ranked(desk, name, tenant, 64)
}

/// What became of the records of every job's file.
fn counted() -> SampleCount {
    SampleCount {
        file: "d.jsonl".into(),
        rows_in: 5,
        rows_used: 4,
        dropped: [("over_long".to_owned(), 1)].into(),
        max_length: 32,
        ..SampleCount::default()
    }
}

fn submit_ranked(desk: &mut Desk, name: &str, tenant: &str, rank: u32) -> JobId {
    let spec = format!(
        r#"{{"name":"{name}","tenant":"{tenant}","adapter":{{"method":"lora","rank":{rank}}},"data":{{"train":"d.jsonl"}},"train":{{"steps":9}}}}"#
    );
    let files = submission(name).files;
    let Reply::Job(view) = desk.ask(Request::Submit(Submission { spec, files })) else {
        panic!("a job is accepted");
    };
    let inputs = Inputs {
        measure: Some(Box::new(Measure::of([(32, 30); 4]))),
        samples: vec![counted()],
        ..Inputs::default()
    };
    desk.input(Input::Prepared {
        job: view.id,
        outcome: Ok(inputs),
    });
    view.id
}

pub(super) fn reason(desk: &mut Desk, job: &str) -> Option<String> {
    let Reply::Job(view) = desk.ask(Request::Job(by_name(job))) else {
        panic!("a job is answered by a job");
    };
    view.reason.map(|reason| reason.message)
}

#[test]
fn a_job_tells_what_became_of_its_samples() {
    let mut desk = desk(20);
    submit(&mut desk, "one");
    let Reply::Job(view) = desk.ask(Request::Job(by_name("one"))) else {
        panic!("a job is answered by a job");
    };
    assert_eq!(view.samples, [counted()]);
}

#[test]
fn a_job_waits_for_memory_with_its_reason_and_begins_when_there_is_some() {
    let mut desk = desk(20);
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
        said.contains("can never train")
            && said.contains("rank up to")
            && said.contains("asked of replica 0 on a 5.0 MiB"),
        "{said}"
    );
}

#[test]
fn a_job_that_fits_no_standing_replica_waits_for_a_node_that_may_take_it() {
    // One without a seat that is large enough, one that is listed, a market.
    for way in 0..3 {
        let mut desk = desk(5);
        desk.memory = Bytes(64 << 20);
        let told = match way {
            0 => {
                desk.come("b", 1, None);
                "b offers 64.0 MiB and has no stage: `spotmux migrate a --to b` gives it the stage of a"
            }
            1 => {
                desk.machine.settings.layout.listed.insert(name("b"));
                "b is listed and not here"
            }
            _ => {
                desk.machine.settings.layout.market = true;
                "a market may bring larger machines"
            }
        };
        let job = submit(&mut desk, "one");
        assert_eq!(desk.state(job), JobState::Queued, "{told}");
        let said = reason(&mut desk, "one").expect("it says why");
        assert!(
            said.contains(told) && said.contains("asked of replica 0"),
            "{said}"
        );
        if way == 1 {
            desk.come("b", 1, None);
        }
        if way < 2 {
            let (from, to) = (name("a"), Some(name("b")));
            desk.pass(2_000);
            assert_eq!(desk.ask(Request::Migrate { from, to }), Reply::Done);
            for _ in 0..2 {
                losses::obey(&mut desk, &["b", "a"], ["", ""]);
            }
            desk.pass(1_000);
            assert_eq!(desk.state(job), JobState::Provisioning);
            assert_eq!(reason(&mut desk, "one"), None);
        }
    }
    // One whose machine is taken away is no hope, unless it is listed.
    for listed in [false, true] {
        let mut desk = desk(5);
        desk.memory = Bytes(64 << 20);
        desk.come("b", 1, None);
        if listed {
            desk.machine.settings.layout.listed.insert(name("b"));
        }
        let (node, within) = (name("b"), Micros::of_millis(60_000));
        desk.ask(Request::Reclaim { node, within });
        let job = submit(&mut desk, "one");
        let state = [JobState::Failed, JobState::Queued][usize::from(listed)];
        assert_eq!(desk.state(job), state, "listed: {listed}");
    }
    // One that is no larger is no hope.
    let mut desk = desk(5);
    desk.come("b", 1, None);
    let job = submit(&mut desk, "one");
    assert_eq!(desk.state(job), JobState::Failed);
}

fn takes_steps(desk: &mut Desk, job: JobId, tokens: u64) {
    desk.job("a", job, JobNotice::Admitted { step: 0, total: 9 });
    let step = JobNotice::Step {
        step: 1,
        loss: 1.0,
        accuracy: 0.0,
        gradient_norm: 1.0,
        learning_rate: 0.1,
        tokens,
    };
    desk.job("a", job, step);
}

#[test]
fn lg_6_what_ended_jobs_were_served_counts_against_their_tenant() {
    let mut desk = desk(20);
    let first = submit_of(&mut desk, "one", "a");
    let other = submit_of(&mut desk, "two", "a");
    let theirs = submit_of(&mut desk, "three", "b");
    takes_steps(&mut desk, first, 1_000_000);
    desk.restart();
    assert_eq!(desk.machine.book.ledger.served()["a"], 1_000_000);
    let held = desk::held(&[(first, 1)]);
    desk.come("a", 1, Some(held));
    desk.job("a", first, JobNotice::Exported { files: Vec::new() });
    desk.pass(200);
    assert_eq!(desk.state(theirs), JobState::Provisioning, "b had nothing");
    assert_eq!(desk.state(other), JobState::Queued);
}

#[test]
fn lg_6_who_comes_back_from_having_no_job_has_no_claim_on_what_it_did_not_use() {
    let mut desk = desk(20);
    let first = submit_of(&mut desk, "one", "a");
    takes_steps(&mut desk, first, 1_000_000);
    submit_of(&mut desk, "two", "b");
    assert_eq!(desk.machine.book.ledger.served()["b"], 1_000_000);
    // Again is not more.
    submit_of(&mut desk, "three", "b");
    assert_eq!(desk.machine.book.ledger.served()["b"], 1_000_000);
}

#[test]
fn a_planner_that_cannot_be_asked_is_told_once_and_jobs_begin_by_number() {
    let mut profile = Profile::peak(&Peak::A40);
    profile.device = "cpu".into();
    (profile.roofline, profile.linear) = (None, Vec::new());
    let mut desk = desk_of(5, vec![profile]);
    let job = submit(&mut desk, "one");
    assert_eq!(desk.state(job), JobState::Provisioning);
    submit(&mut desk, "two");
    let views = desk.journal.iter().map(Record::view);
    let told: Vec<String> = views
        .filter(|view| view.kind == "admission_unplanned")
        .map(|view| view.message)
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("by number alone"), "{told:?}");
}

#[test]
fn cl_12_what_is_noted_of_a_job_goes_with_it() {
    let mut desk = desk(20);
    submit(&mut desk, "one");
    let waits = submit(&mut desk, "two");
    desk.pass(1_000);
    let noted = |desk: &Desk| desk.machine.notes.jobs().contains(&waits);
    assert!(noted(&desk));
    assert!(desk.machine.notes.waits.contains_key(&waits));
    desk.ask(Request::Pause(by_name("two")));
    assert!(
        !desk.machine.notes.waits.contains_key(&waits),
        "it does not wait"
    );
    assert_eq!(reason(&mut desk, "two"), None);
    desk.ask(Request::Resume(by_name("two")));
    desk.pass(1_000);
    assert!(desk.machine.notes.waits.contains_key(&waits));
    desk.ask(Request::Cancel(by_name("two")));
    assert!(!noted(&desk));
}

#[test]
fn without_a_measure_of_its_rows_a_job_is_placed_as_before() {
    let mut desk = desk(20);
    desk.train("one", "a");
}

#[test]
fn the_same_question_is_asked_once() {
    let mut desk = desk(20);
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
    let mut desk = desk(20);
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
        force: false,
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

#[test]
fn cl_15_jobs_that_never_fit_are_asked_of_once_and_few_at_a_time() {
    let mut desk = desk(5);
    desk.machine.settings.layout.market = true;
    let unfit: Vec<JobId> = (0..20)
        .map(|n| submit(&mut desk, &format!("large-{n}")))
        .collect();
    let known = |desk: &Desk| desk.machine.notes.verdicts.jobs().count();
    desk.pass(2_000);
    assert_eq!(known(&desk), 20);
    // Another node is there: what was said is void, and is asked anew over some steps.
    let node = name("a");
    let offers = Bytes(6 << 20);
    desk.machine
        .members
        .get_mut(&node)
        .expect("it is here")
        .hello
        .memory = offers;
    let small = submit_ranked(&mut desk, "small", "t", 1);
    assert_eq!(known(&desk), 16);
    assert_eq!(desk.state(small), JobState::Queued, "it is not its turn");
    desk.pass(2_000);
    assert_eq!(desk.state(small), JobState::Provisioning);
    assert_eq!(known(&desk), 21);
    for job in unfit {
        assert_eq!(desk.state(job), JobState::Queued);
    }
}
