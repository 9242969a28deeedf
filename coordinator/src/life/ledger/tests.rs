//! One job through its states, and many through any.

mod shown;
mod traces;

use proptest::prelude::*;
use shared::ids::NodeName;
use shared::life::{Reason, ReasonClass};
use shared::units::Bytes;
use shared::wire::notice::JobNotice;
use shared::wire::request::{FileRef, Submission};

use super::*;
use crate::life::layout::{Layout, Standing};
use crate::record::Source;
use crate::settings::testing::shape;

fn submission(name: &str, rank: u32) -> Submission {
    let spec = format!(
        r#"{{"name":"{name}","adapter":{{"method":"lora","rank":{rank}}},"data":{{"train":"d.jsonl"}}}}"#
    );
    let file = FileRef {
        path: "d.jsonl".into(),
        sha256: "00".into(),
        bytes: Bytes(1),
    };
    let files = vec![file];
    Submission { spec, files }
}

fn submit(ledger: &mut Ledger, name: &str) -> JobId {
    match ledger.submit(&submission(name, 2), "7", &shape(), 100) {
        Ok(Submitted::New(job, accepted)) => {
            ledger.apply(Micros(1), &Change::Submitted { job, accepted });
            job
        }
        other => panic!("{other:?}"),
    }
}

fn heard(job: JobId, notice: JobNotice) -> Change {
    let node = NodeName::new("a").unwrap();
    let from = Source {
        node,
        incarnation: 1,
        number: 1,
    };
    Change::Heard { from, job, notice }
}

fn step(step: u64) -> JobNotice {
    JobNotice::Step {
        step,
        loss: 1.0,
        accuracy: 0.0,
        gradient_norm: 1.0,
        learning_rate: 0.1,
        tokens: step,
    }
}

/// A plan that seats replica 0 anew.
fn mended() -> Change {
    let mut layout = Layout::default();
    layout.replicas.insert(0, Standing::default());
    Change::InForce { layout }
}

fn running() -> (Ledger, JobId) {
    let mut ledger = Ledger::default();
    let job = submit(&mut ledger, "a");
    let inputs = Inputs::default();
    let admitted = JobNotice::Admitted { step: 0, total: 9 };
    for change in [
        Change::Prepared { job, inputs },
        Change::Placed { job, replica: 0 },
        heard(job, admitted),
        heard(job, step(1)),
        heard(job, step(2)),
        heard(
            job,
            JobNotice::Durable {
                step: 2,
                bytes: Bytes(1),
            },
        ),
    ] {
        ledger.apply(Micros(2), &change);
    }
    assert_eq!(ledger.get(job).unwrap().state, JobState::Running);
    (ledger, job)
}

fn state(ledger: &Ledger, job: JobId) -> JobState {
    ledger.get(job).unwrap().state
}

#[test]
fn lg_3_the_same_submission_is_the_same_job_and_another_is_a_conflict() {
    let mut ledger = Ledger::default();
    let job = submit(&mut ledger, "a");
    let ask = |rank| ledger.submit(&submission("a", rank), "8", &shape(), 1);
    assert_eq!(ask(2), Ok(Submitted::Known(job)));
    let refused = ask(3).unwrap_err();
    assert_eq!(refused.code, RefusalCode::Conflict);
    assert!(
        refused.message.contains("job a is here already as j1"),
        "{refused}"
    );
    let full = ledger
        .submit(&submission("b", 2), "9", &shape(), 1)
        .unwrap_err();
    assert_eq!(full.code, RefusalCode::Busy);
}

#[test]
fn everything_wrong_with_a_submission_is_said_at_once() {
    let bad = Submission {
        files: Vec::new(),
        ..submission("a", 0)
    };
    let refused = Ledger::default()
        .submit(&bad, "1", &shape(), 9)
        .unwrap_err();
    assert_eq!(refused.code, RefusalCode::Invalid);
    assert!(refused.message.contains("adapter.rank"), "{refused}");
    assert!(
        refused.message.contains("d.jsonl was not uploaded"),
        "{refused}"
    );
    let twice = Submission {
        spec: r#"{"name":"a","name":"b"}"#.into(),
        files: Vec::new(),
    };
    let refused = Ledger::default()
        .submit(&twice, "1", &shape(), 9)
        .unwrap_err();
    assert!(
        refused.message.contains("twice") || refused.message.contains("duplicate"),
        "{refused}"
    );
}

#[test]
fn a_submission_is_no_longer_than_an_order_may_be() {
    let ledger = Ledger::default();
    let refused = |submission: &Submission| {
        let answer = ledger.submit(submission, "7", &shape(), 9);
        answer.map(|_| ()).unwrap_err().message
    };
    let own = submission("a", 2);
    let spaces = " ".repeat(shared::job::MAX_SPEC);
    let long = refused(&Submission {
        spec: format!("{}{spaces}", own.spec),
        ..own.clone()
    });
    assert!(long.contains("use at most 131072"), "{long}");
    let many = refused(&Submission {
        files: vec![own.files[0].clone(); 5],
        ..own.clone()
    });
    assert!(many.contains("name at most 4"), "{many}");
    let mut far = own.clone();
    far.files.push(FileRef {
        path: "p".repeat(10_000),
        ..own.files[0].clone()
    });
    let far = refused(&far);
    assert!(far.contains("10000 bytes"), "{far}");
}

#[test]
fn lg_5_a_loss_is_counted_and_is_no_failure() {
    let (mut ledger, job) = running();
    for round in 1..=5 {
        let reason = "lost".into();
        ledger.apply(Micros(3), &Change::Broken { replica: 0, reason });
        assert_eq!(state(&ledger, job), JobState::Recovering);
        ledger.apply(Micros(3), &mended());
        ledger.apply(
            Micros(4),
            &heard(job, JobNotice::Admitted { step: 2, total: 9 }),
        );
        assert_eq!(ledger.get(job).unwrap().step, 2);
        assert_eq!(state(&ledger, job), JobState::Provisioning);
        ledger.apply(Micros(5), &heard(job, step(3)));
        assert_eq!(state(&ledger, job), JobState::Running);
        assert_eq!(ledger.get(job).unwrap().recoveries, round);
    }
}

#[test]
fn late_words_of_a_replica_that_broke_are_progress_but_no_life() {
    let mut ledger = Ledger::default();
    let job = submit(&mut ledger, "a");
    let (inputs, reason) = (Inputs::default(), "lost".into());
    for change in [
        Change::Prepared { job, inputs },
        Change::Placed { job, replica: 0 },
        Change::Broken { replica: 0, reason },
        heard(job, JobNotice::Admitted { step: 0, total: 9 }),
        heard(job, step(1)),
    ] {
        ledger.apply(Micros(2), &change);
    }
    let told = ledger.get(job).unwrap();
    assert_eq!(
        (told.state, told.step, told.recoveries),
        (JobState::Recovering, 1, 0)
    );
}

#[test]
fn lg_2_a_job_that_lost_a_durable_step_fails_aloud() {
    let (mut ledger, job) = running();
    let reason = "lost".into();
    ledger.apply(Micros(3), &Change::Broken { replica: 0, reason });
    ledger.apply(Micros(3), &mended());
    ledger.apply(
        Micros(4),
        &heard(job, JobNotice::Admitted { step: 1, total: 9 }),
    );
    let job = ledger.get(job).unwrap();
    assert_eq!(job.state, JobState::Failed);
    let reason = job.reason.as_ref().unwrap();
    assert_eq!(reason.class, ReasonClass::System);
    assert!(
        reason
            .message
            .contains("step 1 although step 2 was durable"),
        "{reason:?}"
    );
}

#[test]
fn a_replica_that_ends_sends_its_jobs_back_to_the_queue() {
    let (mut ledger, job) = running();
    let mut layout = Layout::default();
    layout.epoch.0 = 2;
    layout.replicas.insert(1, Standing::default());
    ledger.apply(Micros(3), &Change::InForce { layout });
    assert_eq!(state(&ledger, job), JobState::Queued);
    let view = ledger.view(ledger.get(job).unwrap());
    assert_eq!(
        (view.queue_position, view.replica, view.durable_step),
        (Some(0), None, 2)
    );
}

#[test]
fn what_a_state_does_not_allow_is_a_conflict_that_names_it() {
    let (mut ledger, job) = running();
    let cancel = ledger.cancel(ledger.get(job).unwrap()).unwrap().unwrap();
    ledger.apply(Micros(3), &cancel);
    assert_eq!(ledger.cancel(ledger.get(job).unwrap()), Ok(None));
    ledger.apply(Micros(4), &heard(job, JobNotice::Cancelled { step: 2 }));
    assert_eq!(state(&ledger, job), JobState::Cancelled);
    assert_eq!(ledger.cancel(ledger.get(job).unwrap()), Ok(None));
    let refused = ledger.pause(ledger.get(job).unwrap()).unwrap_err();
    assert_eq!(
        refused.message,
        "job a (j1) is cancelled: it cannot be paused"
    );
}

#[test]
fn no_room_here_is_room_elsewhere_and_nowhere_is_the_end() {
    let (mut ledger, job) = running();
    let other = submit(&mut ledger, "b");
    let inputs = Inputs::default();
    ledger.apply(Micros(3), &Change::Prepared { job: other, inputs });
    ledger.apply(
        Micros(3),
        &Change::Placed {
            job: other,
            replica: 0,
        },
    );
    let reason = Reason {
        class: ReasonClass::NoCapacity,
        message: "full".into(),
    };
    ledger.apply(Micros(4), &heard(other, JobNotice::Refused(reason.clone())));
    assert_eq!(state(&ledger, other), JobState::Queued);
    assert!(ledger.get(other).unwrap().shunned.contains(&0));
    ledger.apply(
        Micros(5),
        &heard(job, JobNotice::Exported { files: Vec::new() }),
    );
    assert!(
        ledger.get(other).unwrap().shunned.is_empty(),
        "it may try again"
    );
    ledger.apply(
        Micros(6),
        &Change::Placed {
            job: other,
            replica: 0,
        },
    );
    ledger.apply(Micros(7), &heard(other, JobNotice::Refused(reason)));
    assert_eq!(state(&ledger, other), JobState::Failed);
}

#[test]
fn refusals_count_in_a_row_however_long_a_job_trains() {
    let (mut ledger, job) = running();
    let reason = Reason {
        class: ReasonClass::System,
        message: "the store does not answer".into(),
    };
    let refused = heard(job, JobNotice::Refused(reason));
    let placed = Change::Placed { job, replica: 0 };
    let admitted = heard(job, JobNotice::Admitted { step: 2, total: 9 });
    // A store that fails now and then, at one recovery in two.
    for _ in 0..5 {
        for change in [&refused, &placed, &admitted, &mended()] {
            ledger.apply(Micros(3), change);
        }
        assert_eq!(state(&ledger, job), JobState::Recovering);
    }
    assert_eq!(ledger.get(job).unwrap().refusals, 0);
    // One that never works: the cluster says when that is too long.
    for refusals in 1..5 {
        ledger.apply(Micros(4), &refused);
        assert_eq!(state(&ledger, job), JobState::Queued);
        assert_eq!(ledger.get(job).unwrap().refusals, refusals);
        ledger.apply(Micros(4), &placed);
    }
}

fn any_change() -> impl Strategy<Value = Change> {
    let job = (1..4_u64).prop_map(JobId);
    let notice = prop_oneof![
        (0..9_u64).prop_map(|step| JobNotice::Admitted { step, total: 9 }),
        (0..9_u64).prop_map(|step| JobNotice::Recovered { step }),
        (1..9_u64).prop_map(step),
        (1..9_u64).prop_map(|step| JobNotice::Durable {
            step,
            bytes: Bytes(1)
        }),
        (1..9_u64).prop_map(|step| JobNotice::Paused { step }),
        Just(JobNotice::Resumed),
        (1..9_u64).prop_map(|step| JobNotice::Finished { step, early: false }),
        Just(JobNotice::Exported { files: Vec::new() }),
        (1..9_u64).prop_map(|step| JobNotice::Cancelled { step }),
        Just(JobNotice::Refused(Reason {
            class: ReasonClass::System,
            message: "no".into()
        })),
    ];
    prop_oneof![
        3 => (job.clone(), notice).prop_map(|(job, notice)| heard(job, notice)),
        1 => job.clone().prop_map(|job| Change::PauseAsked { job }),
        1 => job.clone().prop_map(|job| Change::ResumeAsked { job }),
        1 => job.clone().prop_map(|job| Change::CancelAsked { job }),
        1 => (job, 0..2_u32).prop_map(|(job, replica)| Change::Placed { job, replica }),
        1 => (0..2_u32).prop_map(|replica| Change::Broken { replica, reason: String::new() }),
        1 => (1..9_u64).prop_map(|epoch| Change::InForce { layout: Layout {
            epoch: shared::ids::PlanEpoch(epoch),
            replicas: BTreeMap::new(),
        }}),
    ]
}

/// Whether the coordinator would write this change now.
fn is_legal(ledger: &Ledger, change: &Change) -> bool {
    let job = change.job().and_then(|job| ledger.get(job));
    match (change, job) {
        (Change::PauseAsked { .. }, Some(job)) => matches!(ledger.pause(job), Ok(Some(_))),
        (Change::ResumeAsked { .. }, Some(job)) => matches!(ledger.resume(job), Ok(Some(_))),
        (Change::CancelAsked { .. }, Some(job)) => matches!(ledger.cancel(job), Ok(Some(_))),
        (Change::Placed { .. }, Some(job)) => job.state == JobState::Queued,
        (Change::Heard { .. }, Some(job)) => job.replica.is_some(),
        _ => true,
    }
}

proptest! {
    #[test]
    fn lg_1_2_4_hold_whatever_happens(changes in prop::collection::vec(any_change(), 0..60)) {
        let mut ledger = Ledger::default();
        for name in ["a", "b", "c"] {
            let job = submit(&mut ledger, name);
            ledger.apply(Micros(1), &Change::Prepared { job, inputs: Inputs::default() });
        }
        for change in &changes {
            if !is_legal(&ledger, change) {
                continue;
            }
            let before = ledger.clone();
            ledger.apply(Micros(9), change);
            for (old, new) in before.jobs().zip(ledger.jobs()) {
                let same = Job { shunned: old.shunned.clone(), ..new.clone() } == *old;
                prop_assert!(!old.state.is_final() || same, "LG-1 {change:?}");
                prop_assert!(new.durable >= old.durable, "LG-2");
                prop_assert!(new.is_sound(), "LG-4 {change:?} {new:?}");
                prop_assert!(new.recoveries >= old.recoveries, "LG-5");
                let lost = matches!(change, Change::Broken { .. } | Change::InForce { .. });
                prop_assert!(!lost || new.state != JobState::Failed || old.state == JobState::Failed, "LG-5");
            }
        }
    }
}
