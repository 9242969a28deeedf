//! The whole machine, driven by hand.

mod answers;
mod arranging;
mod clocks;
mod desk;
mod drains;
mod endings;
mod hangs;
mod hopes;
mod hurried;
mod kept;
mod leaving;
mod losses;
mod market;
mod outages;
mod restarts;
mod risks;
mod swaps;
mod waiting;

use shared::ids::{EventNumber, JobName, PlanEpoch};
use shared::life::JobState;
use shared::wire::notice::{Held, JobNotice, Notice};
use shared::wire::order::{JobAction, Order};
use shared::wire::request::{JobRef, RefusalCode, Reply, Request};
use shared::wire::view::NodeHealth;

use self::desk::{Desk, name, submission};
use super::*;
use crate::life::placement::Stages;
use crate::record::Change;

fn by_name(job: &str) -> JobRef {
    JobRef::Name(JobName::new(job).unwrap())
}

#[test]
fn a_job_goes_from_submission_to_its_adapter() {
    let mut desk = Desk::new(Stages::Fixed(2), 1, 2);
    desk.come("a", 1, None);
    assert!(desk.orders("a").is_empty(), "one node is not enough");
    desk.come("b", 1, None);
    desk.settle(&["a", "b"]);
    let job = desk.train("one", "a");
    desk.job("a", job, desk::step(1));
    assert_eq!(desk.state(job), JobState::Running);
    desk.job(
        "a",
        job,
        JobNotice::Finished {
            step: 1,
            early: false,
        },
    );
    assert_eq!(desk.state(job), JobState::Finalizing);
    desk.job("a", job, JobNotice::Exported { files: Vec::new() });
    assert_eq!(desk.state(job), JobState::Succeeded);
}

#[test]
fn the_same_submission_again_is_the_same_job() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    let first = desk.ask(Request::Submit(submission("one")));
    let again = desk.ask(Request::Submit(submission("one")));
    assert_eq!(first, again);
    let Reply::Jobs(jobs) = desk.ask(Request::Jobs) else {
        panic!("jobs are answered by jobs");
    };
    assert_eq!(jobs.len(), 1);
}

#[test]
fn cl_2_a_notice_is_acknowledged_once_and_taken_once() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    let notice = desk.job("a", job, desk::step(1));
    let records = desk.records;
    desk.tell("a", notice);
    assert_eq!(desk.records, records, "the second time it changes nothing");
    let heard = desk.orders("a");
    assert!(
        matches!(heard[..], [Order::Heard { notice: 2 }]),
        "{heard:?}"
    );
}

#[test]
fn tr_3_a_notice_of_an_older_epoch_changes_nothing_but_is_acknowledged() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    let stale = desk.numbered("a", PlanEpoch(0), job, desk::step(1));
    desk.tell("a", stale);
    assert_eq!(desk.machine.ignored(), 1);
    assert_eq!(desk.state(job), JobState::Provisioning);
    assert!(matches!(desk.orders("a")[..], [Order::Heard { .. }]));
}

#[test]
fn a_lost_node_is_replaced_and_its_jobs_go_on() {
    let mut desk = Desk::new(Stages::Fixed(2), 1, 2);
    for node in ["a", "b", "c"] {
        desk.come(node, 1, None);
    }
    desk.settle(&["a", "b"]);
    let job = desk.train("one", "a");
    desk.job("a", job, desk::step(1));
    desk.leave("b");
    let broken = Notice::Broken {
        epoch: desk.machine.book.layout.epoch,
        neighbour: Some(name("b")),
        reason: "reset".into(),
    };
    desk.tell("a", broken);
    assert_eq!(desk.state(job), JobState::Recovering);
    desk.pass(2_000);
    assert!(matches!(
        desk.orders("c")[..],
        [Order::Prepare { stage: 1, .. }]
    ));
    desk.prepared("c");
    assert!(matches!(
        desk.orders("a")[..],
        [Order::Hold { stage: 0, .. }]
    ));
    assert!(matches!(
        desk.orders("c")[..],
        [Order::Hold { stage: 1, .. }]
    ));
    desk.holding("a");
    desk.holding("c");
    assert!(matches!(&desk.orders("a")[..], [Order::Admit { jobs, .. }] if jobs[0].job == job));
    desk.job("a", job, JobNotice::Admitted { step: 0, total: 9 });
    desk.job("a", job, desk::step(1));
    assert_eq!(desk.state(job), JobState::Running);
    assert_eq!(desk.machine.book.ledger.get(job).unwrap().recoveries, 1);
}

#[test]
fn replicas_are_linked_when_a_job_asks_to_share_its_steps_and_fall_together() {
    let mut desk = Desk::new(Stages::Fixed(1), 2, 2);
    desk.come("a", 1, None);
    desk.come("b", 1, None);
    desk.settle(&["a", "b"]);
    desk.pass(2_000);
    let job = desk.submit_wide();
    for (node, other) in [("a", 1), ("b", 0)] {
        let orders = desk.orders(node);
        let [Order::Hold { replica, .. }] = &orders[..] else {
            panic!("{orders:?}");
        };
        let siblings: Vec<u32> = replica.siblings.iter().map(|s| s.number).collect();
        assert_eq!(siblings, [other]);
    }
    desk.holding("a");
    desk.holding("b");
    let orders = desk.orders("a");
    assert!(
        matches!(&orders[..], [Order::Admit { jobs, .. }] if jobs[0].replicas == [0, 1]),
        "{orders:?}"
    );
    assert_eq!(desk.machine.view().plan.sharing[0].replicas, [0, 1]);
    desk.job("a", job, JobNotice::Admitted { step: 0, total: 9 });
    desk.job("a", job, desk::step(1));
    // A stage of the other replica is lost: both are seated anew, or one alone.
    desk.leave("b");
    desk.pass(10_000);
    assert_eq!(desk.machine.book.layout.linked(0), &[] as &[u32]);
    let orders = desk.orders("a");
    let hold = orders.iter().find_map(|order| match order {
        Order::Hold { replica, .. } => Some(replica.siblings.len()),
        _ => None,
    });
    assert_eq!(hold, Some(0), "{orders:?}");
    desk.holding("a");
    let orders = desk.orders("a");
    assert!(
        matches!(&orders[..], [Order::Admit { jobs, .. }] if jobs[0].replicas.is_empty()),
        "{orders:?}"
    );
}

#[test]
fn a_move_is_prepared_drained_and_then_in_force() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.come("b", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    desk.job("a", job, desk::step(1));
    let (from, to) = (name("a"), Some(name("b")));
    desk.pass(2_000);
    let migrate = Request::Migrate { from, to };
    assert_eq!(desk.ask(migrate.clone()), Reply::Done);
    let Reply::Refused(busy) = desk.ask(migrate) else {
        panic!("two moves at once");
    };
    assert_eq!(busy.code, RefusalCode::Busy);
    assert!(matches!(desk.orders("b")[..], [Order::Prepare { .. }]));
    desk.prepared("b");
    let drain = desk.orders("a");
    assert!(
        matches!(
            drain[..],
            [
                ..,
                Order::Drain {
                    epoch: PlanEpoch(1),
                    ..
                }
            ]
        ),
        "{drain:?}"
    );
    assert_eq!(desk.state(job), JobState::Running, "it works until then");
    desk.drained("a", Ok(()));
    assert!(matches!(
        desk.orders("a")[..],
        [Order::Release {
            epoch: PlanEpoch(1)
        }]
    ));
    desk.holding("b");
    let orders = desk.orders("b");
    assert!(
        matches!(orders[..], [Order::Hold { .. }, Order::Admit { .. }]),
        "{orders:?}"
    );
}

#[test]
fn what_a_lead_missed_while_it_was_away_is_told_when_it_is_back() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    desk.job("a", job, desk::step(1));
    desk.leave("a");
    desk.ask(Request::Pause(by_name("one")));
    desk.ask(Request::Submit(submission("two")));
    desk.prepare();
    let held = desk::held(&[(job, 1)]);
    desk.come("a", 1, Some(held));
    let orders = desk.orders("a");
    let pause = |o: &Order| {
        matches!(
            o,
            Order::Act {
                action: JobAction::Pause,
                ..
            }
        )
    };
    let admit = |o: &Order| matches!(o, Order::Admit { jobs, .. } if jobs.len() == 1);
    assert!(
        orders.iter().any(pause) && orders.iter().any(admit),
        "{orders:?}"
    );
}

#[test]
fn a_lost_resume_is_told_again_even_when_older_steps_come_late() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let job = desk.train("one", "a");
    desk.job("a", job, desk::step(1));
    desk.ask(Request::Pause(by_name("one")));
    desk.ask(Request::Resume(by_name("one")));
    desk.orders("a");
    desk.job("a", job, desk::step(2));
    assert_eq!(desk.state(job), JobState::Running);
    desk.leave("a");
    let held = Held {
        paused: vec![job],
        ..desk::held(&[(job, 2)])
    };
    desk.come("a", 1, Some(held));
    let orders = desk.orders("a");
    let resume = |o: &Order| {
        matches!(
            o,
            Order::Act {
                action: JobAction::Resume,
                ..
            }
        )
    };
    assert!(orders.iter().any(resume), "{orders:?}");
}

#[test]
fn draining_the_last_node_is_refused_with_the_reason() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    let Reply::Refused(refusal) = desk.drain("a", false) else {
        panic!("where should its work go?");
    };
    assert_eq!(refusal.code, RefusalCode::NoCapacity);
    assert!(
        refusal
            .message
            .starts_with("without a 0 of 1 replicas have a place: plan.stages = 1"),
        "{refusal}"
    );
    desk.come("b", 1, None);
    assert_eq!(desk.drain("a", false), Reply::Done);
    let Reply::Nodes(nodes) = desk.ask(Request::Nodes) else {
        panic!("nodes are answered by nodes");
    };
    assert_eq!(nodes[0].health, NodeHealth::Draining);
}

#[test]
fn events_have_no_gaps_and_followers_miss_none() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    let follow = Request::Events {
        job: None,
        after: EventNumber(0),
        follow: true,
    };
    desk.ask_only(follow);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    desk.train("one", "a");
    let numbers: Vec<u64> = desk.told.iter().map(|event| event.number.0).collect();
    assert_eq!(numbers, (1..=desk.machine.book.last.0).collect::<Vec<_>>());
}

#[test]
fn a_job_without_a_durable_state_is_not_sampled_before_it_trains() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    let submitted = desk.ask(Request::Submit(submission("one")));
    assert!(matches!(submitted, Reply::Job(_)), "{submitted:?}");
    let order = shared::wire::order::SampleOrder {
        number: 0,
        job: None,
        prompt: vec![1],
        max_tokens: 1,
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        seed: 0,
        stops: Vec::new(),
    };
    let input = Input::Sample {
        handle: Handle(9),
        job: Some(by_name("one")),
        order,
    };
    let outcome = desk.machine.step(Now::default(), input);
    let [
        Effect::Answer {
            reply: Reply::Refused(refusal),
            last: true,
            ..
        },
    ] = &outcome.effects[..]
    else {
        panic!("{:?}", outcome.effects);
    };
    assert_eq!(refusal.code, RefusalCode::Conflict);
    assert!(
        refusal.message.contains("no durable state"),
        "{}",
        refusal.message
    );
}

#[test]
fn an_empty_cluster_trains_no_tokens_rather_than_minus_none() {
    let desk = Desk::new(Stages::Fixed(1), 1, 1);
    assert!(desk.machine.view().tokens_per_second.is_sign_positive());
}
