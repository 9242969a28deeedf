//! How jobs train together: asked, answered, told, and told again; passes made smaller where memory is short.

use shared::ids::JobId;
use shared::plan::arrangement::Arrangement;
use shared::units::Bytes;

use super::waiting::{desk, submit};
use super::*;
use crate::life::strain;

/// What a node was told last, if anything since the last look.
fn told(desk: &mut Desk, node: &str) -> Option<Arrangement> {
    let orders = desk.orders(node).into_iter();
    let mut arrangements = orders.filter_map(|order| match order {
        Order::Arrange { epoch, arrangement } => {
            assert_eq!(epoch, PlanEpoch(1));
            Some(arrangement)
        }
        _ => None,
    });
    arrangements.next_back()
}

fn jobs(arrangement: &Arrangement) -> Vec<JobId> {
    let tasks = arrangement.hybrid_tasks();
    let mut jobs: Vec<JobId> = tasks.flat_map(|task| task.jobs.clone()).collect();
    jobs.sort_unstable();
    jobs
}

/// The open question, answered now.
fn answered(desk: &mut Desk) -> Answer {
    let [question] = &std::mem::take(&mut desk.questions)[..] else {
        panic!("one question is open");
    };
    question.answer()
}

/// What the first stage holds of two jobs that have taken no step.
fn held(jobs: [JobId; 2]) -> Held {
    Held {
        epoch: PlanEpoch(1),
        replica: 0,
        stage: 0,
        linked: true,
        jobs: jobs.map(|job| (job, 0)).to_vec(),
        paused: Vec::new(),
    }
}

/// Two jobs on one node, and what its first stage was told of them.
fn two() -> (Desk, [JobId; 2], Arrangement) {
    let mut desk = desk(64);
    let both = [submit(&mut desk, "one"), submit(&mut desk, "two")];
    desk.input(Input::Tick);
    let answer = answered(&mut desk);
    assert_eq!(told(&mut desk, "a"), None, "nothing waits for it");
    desk.input(Input::Arranged(answer));
    let arrangement = told(&mut desk, "a").expect("an arrangement");
    (desk, both, arrangement)
}

#[test]
fn as_1_jobs_that_come_are_arranged_once() {
    let (mut desk, both, arrangement) = two();
    assert_eq!(jobs(&arrangement), both);
    assert_eq!(arrangement.fault(), None);
    assert!(arrangement.pass_rows > Some(0) && arrangement.chunk_rows > Some(0));
    desk.pass(2_000);
    assert!(desk.questions.is_empty(), "nothing changed");
    // One that comes while the question is open is asked about with the next one.
    let third = submit(&mut desk, "three");
    desk.input(Input::Tick);
    let fourth = submit(&mut desk, "four");
    desk.pass(1_000);
    let answer = answered(&mut desk);
    desk.input(Input::Arranged(answer.clone()));
    assert_eq!(told(&mut desk, "a"), None, "the answer is about other jobs");
    let [one, two] = both;
    let next = answered(&mut desk);
    desk.input(Input::Arranged(next));
    let arrangement = told(&mut desk, "a").expect("an arrangement");
    assert_eq!(jobs(&arrangement), [one, two, third, fourth]);
    let ignored = desk.machine.ignored();
    desk.input(Input::Arranged(answer));
    assert_eq!(desk.machine.ignored(), ignored + 1, "a late answer");
}

#[test]
fn as_2_a_first_stage_that_comes_back_is_told_again() {
    let (mut desk, both, arrangement) = two();
    desk.leave("a");
    let held = held(both);
    desk.come("a", 1, Some(held.clone()));
    assert_eq!(told(&mut desk, "a"), Some(arrangement.clone()));
    // Another coordinator asks for itself.
    desk.restart();
    desk.come("a", 1, Some(held));
    desk.input(Input::Tick);
    let answer = answered(&mut desk);
    desk.input(Input::Arranged(answer));
    assert_eq!(told(&mut desk, "a"), Some(arrangement));
}

#[test]
fn as_3_an_answer_that_never_comes_is_asked_for_again() {
    let mut desk = desk(64);
    submit(&mut desk, "one");
    desk.pass(50_000);
    assert_eq!(desk.questions.len(), 1);
    desk.pass(12_000);
    assert_eq!(desk.questions.len(), 2);
    let late = desk.questions.remove(0).answer();
    desk.input(Input::Arranged(late));
    assert_eq!(told(&mut desk, "a"), None);
    // The one that is open is not the late one's to close.
    let answer = answered(&mut desk);
    desk.input(Input::Arranged(answer));
    assert!(told(&mut desk, "a").is_some());
}

#[test]
fn as_1_a_planner_that_is_slow_is_asked_less_and_less_often() {
    let mut desk = desk(64);
    submit(&mut desk, "one");
    // 0, 1, 3, 7, 15, 31 and 63 minutes.
    desk.pass(3_700_000);
    assert_eq!(desk.questions.len(), 6);
    let answer = desk.questions.pop().map(|question| question.answer());
    desk.questions.clear();
    desk.input(Input::Arranged(answer.expect("a question")));
    // Once it answered, patience is as at first.
    submit(&mut desk, "two");
    desk.pass(70_000);
    assert_eq!(desk.questions.len(), 2);
}

#[test]
fn memory_beyond_what_a_node_offers_makes_passes_smaller_and_is_an_event() {
    let (mut desk, both, arrangement) = two();
    let beat = |desk: &mut Desk, mib: u64| {
        let notice = Notice::Heartbeat {
            device_age: Micros(0),
            memory_used: Bytes(mib << 20),
            tokens: 1,
        };
        desk.tell("a", notice);
    };
    for _ in 0..10 {
        beat(&mut desk, 66);
    }
    assert_eq!(told(&mut desk, "a"), None, "the node offers 64 MiB");
    for _ in 0..strain::BEATS {
        beat(&mut desk, 80);
    }
    let eased = told(&mut desk, "a").expect("smaller passes");
    assert_eq!(eased, strain::eased(&arrangement, 1, 512));
    assert_eq!(jobs(&eased), both);
    assert!(eased.pass_rows < arrangement.pass_rows || eased.pass_rows == Some(64));
    let regrouped = |desk: &Desk| {
        let changes = desk.journal.iter().map(|record| &record.change);
        changes
            .filter(|change| matches!(change, Change::Regrouped { replica: 0, .. }))
            .count()
    };
    assert_eq!(regrouped(&desk), 1);
    // It stays where it is: that is no worse. It stays so for jobs that come, too.
    for _ in 0..10 {
        beat(&mut desk, 80);
    }
    assert_eq!(regrouped(&desk), 1);
    submit(&mut desk, "three");
    desk.input(Input::Tick);
    let answer = answered(&mut desk);
    desk.input(Input::Arranged(answer));
    let next = told(&mut desk, "a").expect("an arrangement");
    let (mut other, ..) = two();
    submit(&mut other, "three");
    other.input(Input::Tick);
    let answer = answered(&mut other);
    other.input(Input::Arranged(answer));
    let calm = told(&mut other, "a").expect("an arrangement");
    assert_eq!(next, strain::eased(&calm, 1, 512));
    // What is told before an answer is there is as small.
    desk.leave("a");
    let held = held(both);
    desk.come("a", 1, Some(held));
    assert_eq!(told(&mut desk, "a"), Some(next));
    // It grows again and again: there is an end to it, and nothing is ended.
    for mib in (90..400).step_by(10) {
        for _ in 0..strain::BEATS {
            beat(&mut desk, mib);
        }
    }
    assert_eq!(regrouped(&desk), strain::MOST as usize);
    assert_eq!(told(&mut desk, "a").and_then(|a| a.pass_rows), Some(64));
}
