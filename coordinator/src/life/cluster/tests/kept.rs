//! What is kept of jobs that ended and nodes that are gone. KP-1, KP-2

use shared::ids::{JobId, JobName};
use shared::life::{JobState, Reason, ReasonClass};
use shared::wire::request::{JobRef, RefusalCode, Reply, Request};

use super::super::{Book, Input};
use super::desk::{Desk, name, submission};
use super::losses::{at_work, seated};
use crate::life::placement::Stages;

fn submit(desk: &mut Desk, job: &str) -> JobId {
    match desk.ask(Request::Submit(submission(job))) {
        Reply::Job(job) => job.id,
        other => panic!("{other:?}"),
    }
}

/// A job that cannot be trained on.
fn fail(desk: &mut Desk, job: &str) -> JobId {
    let job = submit(desk, job);
    let outcome = Err(Reason {
        class: ReasonClass::UserError,
        message: "no rows".into(),
    });
    desk.input(Input::Prepared { job, outcome });
    job
}

fn known(desk: &mut Desk) -> Vec<JobId> {
    let Reply::Jobs(jobs) = desk.ask(Request::Jobs) else {
        panic!("jobs are answered by jobs");
    };
    jobs.iter().map(|job| job.id).collect()
}

/// The journal, replayed and written, comes to the same.
fn is_replayed(desk: &Desk) {
    let mut book = Book::default();
    for record in &desk.journal {
        book.apply(record).unwrap();
    }
    assert_eq!(&book, desk.machine.book());
    let text = serde_json::to_string(&book).unwrap();
    assert_eq!(serde_json::from_str::<Book>(&text).unwrap(), book);
}

#[test]
fn kp_1_the_newest_that_ended_are_kept_and_a_job_that_has_not_ended_always_is() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.machine.settings.limits.ended_jobs_kept = 2;
    let live = submit(&mut desk, "live");
    let [one, two, three] = ["one", "two", "three"].map(|job| fail(&mut desk, job));
    desk.pass(100);
    assert_eq!(known(&mut desk), [live, two, three]);
    let asked = JobRef::Name(JobName::new("one").unwrap());
    let Reply::Refused(refusal) = desk.ask(Request::Job(asked)) else {
        panic!("it is known no more");
    };
    assert_eq!(refusal.code, RefusalCode::NotFound);
    assert!(refusal.message.contains("limits.ended_jobs_kept"));
    // The same again is the job that is kept; of one that is not, it is another.
    assert_eq!(submit(&mut desk, "three"), three);
    let again = submit(&mut desk, "one");
    assert!(again > three && again != one);
    assert_eq!(desk.state(live), JobState::Queued);
    is_replayed(&desk);
}

#[test]
fn kp_2_no_id_is_given_twice_though_all_were_let_go_of() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.machine.settings.limits.ended_jobs_kept = 0;
    let first = fail(&mut desk, "one");
    desk.pass(100);
    assert!(known(&mut desk).is_empty());
    desk.restart();
    assert_eq!(submit(&mut desk, "one"), first.next());
    is_replayed(&desk);
}

#[test]
fn a_name_means_the_newest_that_is_kept_of_those_that_had_it() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.machine.settings.limits.ended_jobs_kept = 1;
    let cancel = |desk: &mut Desk, job: JobId| {
        desk.ask(Request::Cancel(JobRef::Id(job)));
    };
    let older = submit(&mut desk, "one");
    // The wall clock jumps back: by it, the second ends before the first.
    desk.ahead = shared::units::Micros(10_000_000);
    cancel(&mut desk, older);
    desk.ahead = shared::units::Micros(0);
    let newer = submit(&mut desk, "one");
    assert_ne!(older, newer);
    cancel(&mut desk, newer);
    desk.pass(100);
    assert_eq!(known(&mut desk), [older]);
    let named = desk.ask(Request::Job(JobRef::Name(JobName::new("one").unwrap())));
    assert!(
        matches!(&named, Reply::Job(job) if job.id == older),
        "{named:?}"
    );
    is_replayed(&desk);
}

#[test]
fn kp_1_the_newest_that_are_gone_are_kept_and_no_node_that_may_come_back_is_let_go_of() {
    let (mut desk, job) = at_work(1, &["a"]);
    desk.machine.settings.limits.gone_nodes_kept = 1;
    for node in ["x", "y", "z"] {
        desk.come(node, 1, None);
        desk.leave(node);
        desk.pass(500);
    }
    let nodes = |desk: &Desk| -> Vec<String> {
        let views = desk.machine.node_views();
        views.iter().map(|view| view.name.to_string()).collect()
    };
    assert_eq!(nodes(&desk), ["a", "x", "y", "z"], "they may come back");
    desk.pass(4_000);
    assert_eq!(nodes(&desk), ["a", "z"]);
    // The node of the plan is kept though it is gone.
    assert!(desk.machine.book.heard.contains_key(&name("a")));
    desk.leave("a");
    desk.pass(2_000);
    desk.come("x", 2, None);
    assert_eq!(nodes(&desk), ["a", "x", "z"]);
    desk.pass(1_500);
    assert_eq!(desk.state(job), JobState::Recovering);
    assert_eq!(seated(&desk), ["a"], "until there is another plan");
    for _ in 0..2 {
        super::losses::obey(&mut desk, &["x"], ["", ""]);
        desk.pass(1_500);
    }
    assert_eq!(seated(&desk), ["x"]);
    assert_eq!(nodes(&desk), ["a", "x"]);
    // A new leadership lets go of those that it never hears, too.
    desk.machine.settings.limits.gone_nodes_kept = 0;
    desk.restart();
    desk.come("x", 2, None);
    desk.pass(10_000);
    assert!(desk.machine.book.heard.contains_key(&name("a")));
    desk.pass(4_000);
    assert!(!desk.machine.book.heard.contains_key(&name("a")));
    is_replayed(&desk);
}

#[test]
fn kp_1_a_node_that_was_drained_and_is_gone_for_good_is_let_go_of_unless_it_is_listed() {
    for restarts in [false, true] {
        let (mut desk, _) = at_work(1, &["a", "x", "y"]);
        desk.machine.settings.limits.gone_nodes_kept = 0;
        desk.machine.settings.layout.listed.insert(name("y"));
        for node in ["x", "y"] {
            assert_eq!(desk.drain(node, false), Reply::Done);
            desk.leave(node);
        }
        assert_eq!(desk.machine.book.draining.len(), 2);
        if restarts {
            desk.restart();
            desk.come("a", 1, Some(super::desk::held(&[])));
        }
        desk.pass(20_000);
        let draining = &desk.machine.book.draining;
        assert!(!draining.contains(&name("x")), "restarts: {restarts}");
        assert!(draining.contains(&name("y")), "it comes back");
        is_replayed(&desk);
    }
}

#[test]
fn a_snapshot_of_before_is_read() {
    let mut text = serde_json::to_value(Book::default()).unwrap();
    text.as_object_mut().unwrap().remove("going").unwrap();
    let ledger = text["ledger"].as_object_mut().unwrap();
    ledger.remove("last").unwrap();
    let book: Book = serde_json::from_value(text).unwrap();
    assert_eq!(book, Book::default());
}
