//! The end of the cluster in order: who is waited for, and who is told. CL-7, CL-14

use shared::ids::PlanEpoch;
use shared::wire::notice::Held;
use shared::wire::order::Order;
use shared::wire::request::{Reply, Request};

use super::super::Effect;
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
    let (epoch, toward) = (PlanEpoch(1), PlanEpoch(0));
    *order == Order::Drain { epoch, toward }
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
    let finished = |outcome: &super::super::Outcome| outcome.effects.contains(&Effect::Finished);
    desk.end("a");
    let ticked = desk.input(super::super::Input::Tick);
    assert!(!finished(&ticked), "b may yet come back");
    desk.come("b", 1, held(1));
    assert!(desk.orders("b").contains(&Order::Stop));
    assert!(finished(&desk.end("b")));
}

#[test]
fn cl_7_an_end_in_order_makes_jobs_durable_before_any_node_stops() {
    let (mut desk, _) = at_work(2, &["a", "b", "c"]);
    for node in ["a", "b", "c"] {
        desk.orders(node);
    }
    assert_eq!(desk.ask(Request::Shutdown), Reply::Done);
    let (epoch, toward) = (PlanEpoch(1), PlanEpoch(0));
    assert_eq!(desk.orders("a"), [Order::Drain { epoch, toward }]);
    desk.pass(1_000);
    assert_eq!(desk.orders("b"), [], "the lead needs it to save");
    desk.drained("a", Ok(()));
    for node in ["a", "b", "c"] {
        assert_eq!(desk.orders(node), [Order::Stop], "{node}");
    }
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
