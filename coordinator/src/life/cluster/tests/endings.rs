//! The end of the cluster in order: who is waited for, and who is told. CL-7, CL-14

use shared::ids::{EventNumber, PlanEpoch};
use shared::wire::notice::Held;
use shared::wire::order::Order;
use shared::wire::request::{JobRef, Reply, Request};

use super::super::{Effect, Input, Outcome};
use super::desk::{Desk, name};
use super::losses::{at_work, stalls};
use crate::life::placement::Stages;

/// A stage that holds what it should.
fn held(stage: u32) -> Option<Held> {
    Some(Held {
        epoch: PlanEpoch(1),
        replica: 0,
        stage,
        linked: true,
        jobs: Vec::new(),
        paused: Vec::new(),
    })
}

fn forget_orders(desk: &mut Desk) {
    for node in ["a", "b"] {
        desk.orders(node);
    }
}

fn is_drained(order: &Order) -> bool {
    let (epoch, toward, soon) = (PlanEpoch(1), PlanEpoch(0), false);
    *order
        == Order::Drain {
            epoch,
            toward,
            soon,
        }
}

#[test]
fn cl_7_a_lead_that_is_away_for_a_moment_still_saves() {
    let (mut desk, job) = at_work(2, &["a", "b"]);
    desk.ask(Request::Shutdown);
    forget_orders(&mut desk);
    desk.leave("a");
    desk.pass(1_000);
    assert_eq!(desk.orders("b"), [], "it may yet come back");
    let held = held(0).map(|held| Held {
        jobs: vec![(job, 1)],
        ..held
    });
    desk.come("a", 1, held);
    let orders = desk.orders("a");
    assert!(orders.iter().any(is_drained), "{orders:?}");
    desk.drained("a", Ok(()));
    for node in ["a", "b"] {
        assert!(desk.orders(node).contains(&Order::Stop), "{node}");
    }
}

#[test]
fn cl_7_a_second_connection_does_not_call_the_end_off() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    // A plan was begun since this one.
    let (from, to) = (name("a"), Some(name("b")));
    assert_eq!(desk.ask(Request::Migrate { from, to }), Reply::Done);
    desk.ask(Request::Shutdown);
    forget_orders(&mut desk);
    let held = held(0).map(|held| Held {
        jobs: vec![(job, 1)],
        ..held
    });
    desk.come("a", 1, held);
    let orders = desk.orders("a");
    let goes_on = |order: &Order| matches!(order, Order::Undrain { .. });
    assert!(!orders.iter().any(goes_on), "{orders:?}");
    assert!(orders.iter().any(is_drained), "{orders:?}");
}

#[test]
fn cl_7_a_node_that_was_away_is_told_to_stop_when_it_is_back() {
    let (mut desk, _) = at_work(2, &["a", "b"]);
    desk.ask(Request::Shutdown);
    desk.leave("b");
    desk.drained("a", Ok(()));
    assert!(desk.orders("a").contains(&Order::Stop));
    let finished = |outcome: &Outcome| outcome.effects.contains(&Effect::Finished);
    desk.end("a");
    let ticked = desk.input(Input::Tick);
    assert!(!finished(&ticked), "b may yet come back");
    desk.come("b", 1, held(1));
    assert!(desk.orders("b").contains(&Order::Stop));
    assert!(finished(&desk.end("b")));
}

#[test]
fn hi_2_who_follows_is_told_when_the_cluster_has_ended_and_only_then() {
    let (mut desk, job) = at_work(1, &["a"]);
    let events = Request::Events {
        job: Some(JobRef::Id(job)),
        after: EventNumber::default(),
        follow: true,
    };
    let ended = |outcome: &Outcome| {
        let last = |effect: &&Effect| {
            matches!(
                effect,
                Effect::Answer {
                    reply: Reply::Done,
                    last: true,
                    ..
                }
            )
        };
        outcome.effects.iter().filter(last).count()
    };
    assert_eq!(ended(&desk.ask_only(events)), 0);
    // The answer to this one is its own.
    assert_eq!(ended(&desk.ask_only(Request::Shutdown)), 1);
    desk.drained("a", Ok(()));
    let outcome = desk.end("a");
    assert_eq!(ended(&outcome), 1);
    assert_eq!(outcome.effects.last(), Some(&Effect::Finished));
    assert_eq!(desk.machine.followers(), 0);
}

#[test]
fn cl_7_an_end_in_order_makes_jobs_durable_before_any_node_stops() {
    let (mut desk, _) = at_work(2, &["a", "b", "c"]);
    for node in ["a", "b", "c"] {
        desk.orders(node);
    }
    assert_eq!(desk.ask(Request::Shutdown), Reply::Done);
    let orders = desk.orders("a");
    assert!(
        matches!(&orders[..], [order] if is_drained(order)),
        "{orders:?}"
    );
    desk.pass(1_000);
    assert_eq!(desk.orders("b"), [], "the lead needs it to save");
    desk.drained("a", Ok(()));
    for node in ["a", "b", "c"] {
        assert_eq!(desk.orders(node), [Order::Stop], "{node}");
    }
}

/// The same stage with a job.
fn training(stage: u32, job: shared::ids::JobId) -> Option<Held> {
    held(stage).map(|held| Held {
        jobs: vec![(job, 1)],
        ..held
    })
}

fn is_over(desk: &mut Desk) -> bool {
    let ticked = desk.input(Input::Tick);
    ticked.effects.contains(&Effect::Finished)
}

/// Kinds of events about what was not saved, and who is lost.
fn told(desk: &Desk) -> Vec<String> {
    let views = desk.journal.iter().map(crate::record::Record::view);
    let kinds = views.map(|view| view.kind);
    kinds
        .filter(|kind| ["not_saved", "node_lost"].contains(&kind.as_str()))
        .collect()
}

#[test]
fn cl_7_an_end_after_a_restart_saves_what_is_back_and_tells_all_to_stop() {
    let (mut desk, job) = at_work(2, &["a", "b"]);
    desk.restart();
    desk.come("a", 1, training(0, job));
    forget_orders(&mut desk);
    desk.ask(Request::Shutdown);
    let orders = desk.orders("a");
    assert!(orders.iter().any(is_drained), "{orders:?}");
    assert!(!orders.contains(&Order::Stop));
    desk.drained("a", Ok(()));
    assert!(desk.orders("a").contains(&Order::Stop));
    desk.end("a");
    assert!(!is_over(&mut desk), "b may yet come");
    desk.come("b", 1, held(1));
    assert!(desk.orders("b").contains(&Order::Stop));
    desk.end("b");
    assert!(is_over(&mut desk));
    assert_eq!(told(&desk), [""; 0]);
}

#[test]
fn cl_7_an_end_after_a_restart_waits_for_who_is_not_back_yet() {
    let (mut desk, job) = at_work(2, &["a", "b"]);
    desk.restart();
    desk.ask(Request::Shutdown);
    desk.pass(3_000);
    assert!(!is_over(&mut desk));
    desk.come("b", 1, held(1));
    assert!(
        !desk.orders("b").contains(&Order::Stop),
        "a needs it to save"
    );
    desk.come("a", 1, training(0, job));
    let orders = desk.orders("a");
    assert!(orders.iter().any(is_drained), "{orders:?}");
    desk.drained("a", Ok(()));
    for node in ["a", "b"] {
        assert!(desk.orders(node).contains(&Order::Stop), "{node}");
        desk.end(node);
    }
    assert!(is_over(&mut desk));
    assert_eq!(told(&desk), [""; 0]);
}

#[test]
fn cl_7_what_never_came_back_to_save_is_told() {
    let (mut desk, _) = at_work(2, &["a", "b"]);
    desk.restart();
    desk.ask(Request::Shutdown);
    desk.pass(11_000);
    assert!(!is_over(&mut desk));
    desk.pass(2_000);
    assert!(is_over(&mut desk));
    assert_eq!(told(&desk), ["not_saved"]);
    // And so it is of one that is not waited for.
    let (mut desk, _) = at_work(1, &["a"]);
    for _ in 0..2 {
        desk.ask(Request::Shutdown);
    }
    assert_eq!(told(&desk), ["not_saved"]);
}

#[test]
fn cl_7_nodes_that_do_not_stop_are_lost_at_a_bound() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    desk.ask(Request::Shutdown);
    desk.drained("a", Ok(()));
    desk.end("a");
    desk.pass(58_000);
    // Another word of its operator gives it no more time.
    desk.ask(Request::Shutdown);
    assert!(!is_over(&mut desk), "b is heard");
    desk.pass(3_000);
    assert!(is_over(&mut desk));
    assert_eq!(told(&desk), ["node_lost"]);
}

#[test]
fn cl_7_an_end_waits_for_nobody_who_cannot_save() {
    let stopped = |desk: &mut Desk| desk.orders("b").contains(&Order::Stop);
    type Way = (&'static str, fn(&mut Desk));
    let ways: [Way; 4] = [
        ("it went", |desk| {
            desk.leave("a");
            desk.pass(4_000);
        }),
        ("its replica broke", |desk| stalls(desk, "a")),
        ("it takes too long", |desk| desk.pass(61_000)),
        ("asked again", |desk| {
            desk.ask(Request::Shutdown);
        }),
    ];
    for (way, go) in ways {
        let (mut desk, _) = at_work(1, &["a", "b"]);
        desk.ask(Request::Shutdown);
        assert!(!stopped(&mut desk), "{way}");
        go(&mut desk);
        assert!(stopped(&mut desk), "{way}");
    }
    // Without a plan there is nothing to save.
    let mut desk = Desk::new(Stages::Fixed(2), 1, 2);
    desk.come("b", 1, None);
    desk.ask(Request::Shutdown);
    assert!(stopped(&mut desk));
}
