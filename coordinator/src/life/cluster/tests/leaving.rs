//! Nodes that say that they go. CL-8

use shared::ids::PlanEpoch;
use shared::life::JobState;
use shared::units::Micros;
use shared::wire::notice::Notice;
use shared::wire::order::Order;
use shared::wire::request::{RefusalCode, Reply, Request};
use shared::wire::view::NodeHealth;

use super::super::{Effect, Input, Outcome};
use super::desk::{Desk, leaves, name};
use super::losses::{at_work, goes_on, obey, seated, view};
use crate::record::Change;

const FIRST: PlanEpoch = PlanEpoch(1);

fn forget_orders(desk: &mut Desk, nodes: &[&str]) {
    for node in nodes {
        desk.orders(node);
    }
}

/// Whether a is told to end its steps, under the first plan.
fn is_drained(desk: &mut Desk) -> bool {
    let orders = desk.orders("a");
    let drain = |order: &Order| matches!(order, Order::Drain { epoch: FIRST, .. });
    orders.iter().any(drain)
}

/// Names of the kinds of records about nodes and moves, in their order.
fn told(desk: &Desk) -> Vec<String> {
    let views = desk.journal.iter().map(crate::record::Record::view);
    let kinds = views.map(|view| view.kind);
    kinds
        .filter(|kind| kind.starts_with("node_l") || kind.starts_with("replica"))
        .collect()
}

#[test]
fn cl_8_the_stage_of_a_node_that_leaves_moves_and_then_it_is_let_go() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    forget_orders(&mut desk, &["a", "b"]);
    leaves(&mut desk, "a", 30);
    assert!(matches!(desk.orders("b")[..], [Order::Prepare { .. }]));
    assert_eq!(desk.orders("a"), [], "it works until the other is ready");
    desk.prepared("b");
    assert!(is_drained(&mut desk));
    desk.drained("a", Ok(()));
    assert_eq!(
        desk.orders("a"),
        [Order::Release { epoch: FIRST }, Order::Stop]
    );
    // The word may have been lost with the connection: it is said again.
    desk.leave("a");
    desk.come("a", 1, None);
    leaves(&mut desk, "a", 20);
    assert!(desk.orders("a").contains(&Order::Stop));
    desk.leave("a");
    obey(&mut desk, &["b"], ["", ""]);
    goes_on(&mut desk, job, "b");
    desk.pass(10_000);
    assert_eq!(told(&desk), ["node_leaving", "node_left"]);
    let health = |desk: &Desk, node: &str| {
        let views = desk.machine.node_views();
        let view = views.iter().find(|view| view.name == name(node));
        view.map(|view| view.health)
    };
    assert_eq!(health(&desk, "a"), Some(NodeHealth::Left));
    // It is a node like any other when it is back, and one that is not heard any more is lost.
    desk.come("a", 2, None);
    assert_eq!(health(&desk, "a"), Some(NodeHealth::Alive));
    desk.leave("a");
    desk.pass(4_000);
    assert_eq!(health(&desk, "a"), Some(NodeHealth::Lost));
}

#[test]
fn cl_8_a_process_that_follows_one_that_was_let_go_is_let_in_at_once() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    leaves(&mut desk, "b", 30);
    assert!(desk.orders("b").contains(&Order::Stop));
    // The end of its connection was not seen; the next process is there.
    desk.come("b", 2, None);
    assert_eq!(told(&desk), ["node_leaving", "node_left"]);
    leaves(&mut desk, "b", 30);
    desk.fall_silent("b");
    desk.pass(10_000);
    assert_eq!(
        told(&desk),
        ["node_leaving", "node_left", "node_leaving", "node_left"],
        "or never comes"
    );
    assert_eq!(seated(&desk), ["a"]);
}

#[test]
fn cl_8_without_another_node_its_jobs_are_made_durable_and_wait() {
    let (mut desk, job) = at_work(1, &["a"]);
    forget_orders(&mut desk, &["a"]);
    leaves(&mut desk, "a", 30);
    assert!(is_drained(&mut desk));
    assert_eq!(desk.state(job), JobState::Running);
    desk.drained("a", Ok(()));
    assert_eq!(
        desk.orders("a"),
        [Order::Release { epoch: FIRST }, Order::Stop]
    );
    let waits = view(&mut desk, job);
    assert_eq!((waits.state, waits.durable_step), (JobState::Queued, 1));
    assert!(waits.reason.unwrap().message.contains("it waits for nodes"));
    desk.leave("a");
    desk.come("z", 1, None);
    desk.pass(2_000);
    for _ in 0..2 {
        obey(&mut desk, &["z"], ["", ""]);
    }
    goes_on(&mut desk, job, "z");
}

#[test]
fn cl_8_in_the_last_third_of_a_notice_jobs_are_made_durable_whatever_is_not_ready() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    forget_orders(&mut desk, &["a", "b"]);
    leaves(&mut desk, "a", 30);
    desk.pass(19_000);
    assert_eq!(desk.orders("a"), [], "the other may yet be ready");
    desk.pass(2_000);
    assert!(is_drained(&mut desk));
    desk.drained("a", Ok(()));
    assert!(desk.orders("a").contains(&Order::Stop));
    desk.leave("a");
    desk.pass(3_000);
    for _ in 0..2 {
        obey(&mut desk, &["b"], ["", ""]);
    }
    assert_eq!(seated(&desk), ["b"]);
    goes_on(&mut desk, job, "b");
}

#[test]
fn cl_8_a_node_that_leaves_gets_no_seat_and_costs_those_at_work_nothing() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    let (from, to) = (name("a"), Some(name("b")));
    let migrate = Request::Migrate { from, to };
    assert_eq!(desk.ask(migrate.clone()), Reply::Done);
    forget_orders(&mut desk, &["b"]);
    leaves(&mut desk, "b", 30);
    assert!(desk.machine.moving.is_none());
    assert!(desk.orders("b").contains(&Order::Stop));
    let Reply::Refused(refusal) = desk.ask(migrate) else {
        panic!("a node that leaves is no aim");
    };
    assert_eq!(refusal.code, RefusalCode::Conflict);
    assert_eq!(seated(&desk), ["a"]);
    assert_eq!(view(&mut desk, job).recoveries, 0);
}

#[test]
fn cl_8_where_all_leave_nobody_waits_for_another() {
    let (mut desk, job) = at_work(2, &["a", "b", "c"]);
    forget_orders(&mut desk, &["a", "b", "c"]);
    for node in ["c", "b", "a"] {
        leaves(&mut desk, node, 30);
    }
    assert!(desk.orders("c").contains(&Order::Stop));
    desk.drained("a", Ok(()));
    for node in ["a", "b"] {
        assert!(desk.orders(node).contains(&Order::Stop), "{node}");
    }
    assert_eq!(desk.state(job), JobState::Queued);
    let began =
        |record: &&crate::record::Record| matches!(&record.change, Change::MoveCalledOff { .. });
    assert_eq!(desk.journal.iter().filter(began).count(), 0);
}

#[test]
fn a_node_that_went_before_its_stage_could_move_is_lost_at_once() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    leaves(&mut desk, "a", 1);
    desk.orders("b");
    desk.pass(1_000);
    desk.leave("a");
    assert_eq!(desk.state(job), JobState::Recovering);
    assert!(told(&desk).contains(&"node_lost".to_owned()));
    desk.pass(3_000);
    for _ in 0..2 {
        obey(&mut desk, &["b"], ["", ""]);
    }
    goes_on(&mut desk, job, "b");
}

#[test]
fn cl_14_nobody_is_lost_when_the_cluster_ends_in_order() {
    let (mut desk, job) = at_work(2, &["a", "b", "c"]);
    desk.ask(Request::Shutdown);
    desk.drained("a", Ok(()));
    // One ends before its neighbour, which complains of it.
    desk.end("b");
    let broken = Notice::Broken {
        epoch: FIRST,
        neighbour: Some(name("b")),
        reason: "its connection ended".into(),
    };
    desk.tell("a", broken);
    desk.end("a");
    // One that is stopped does not leave: of it nothing is known.
    desk.fall_silent("c");
    desk.pass(10_000);
    assert_eq!(told(&desk), ["node_left", "node_left", "node_lost"]);
    // The next leadership finds nothing broken, and no job recovers from anything.
    desk.restart();
    for node in ["a", "b"] {
        desk.come(node, 2, None);
    }
    desk.pass(1_000);
    for _ in 0..2 {
        obey(&mut desk, &["a", "b"], ["", ""]);
    }
    assert_eq!(seated(&desk), ["a", "b"]);
    goes_on(&mut desk, job, "a");
    assert_eq!(view(&mut desk, job).recoveries, 0);
    assert_eq!(told(&desk).len(), 3);
}

#[test]
fn cl_14_a_connection_that_ends_without_a_word_is_no_departure() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    desk.ask(Request::Shutdown);
    desk.drained("a", Ok(()));
    assert!(desk.orders("a").contains(&Order::Stop));
    // The order is lost with the connection: it may yet come back, and the end waits for it.
    desk.leave("a");
    let ended = desk.end("b");
    let finished = |outcome: &Outcome| outcome.effects.contains(&Effect::Finished);
    assert!(!finished(&ended));
    assert_eq!(told(&desk), ["node_left"], "b");
    desk.pass(1_000);
    let joined = |desk: &Desk| {
        let changes = desk.journal.iter().map(|record| &record.change);
        changes
            .filter(|change| matches!(change, Change::NodeJoined { .. }))
            .count()
    };
    let before = joined(&desk);
    desk.come("a", 1, None);
    assert!(desk.orders("a").contains(&Order::Stop), "it is told again");
    assert_eq!(joined(&desk), before, "it never left");
    assert!(finished(&desk.end("a")));
    assert_eq!(told(&desk), ["node_left", "node_left"]);
}

#[test]
fn cl_14_who_was_told_to_stop_and_does_not_come_back_has_left() {
    let (mut desk, _) = at_work(1, &["a"]);
    desk.ask(Request::Shutdown);
    desk.drained("a", Ok(()));
    desk.leave("a");
    desk.pass(2_500);
    assert!(told(&desk).is_empty(), "it may yet come back");
    desk.pass(1_000);
    assert_eq!(told(&desk), ["node_left"]);
    let ticked = desk.input(Input::Tick);
    assert!(ticked.effects.contains(&Effect::Finished));
}

#[test]
fn cl_14_one_that_others_gave_up_is_told_again_to_stop_when_it_is_back() {
    // The node does not know that it leaves: somebody else said so.
    let (mut desk, _) = at_work(1, &["a", "b"]);
    let (node, within) = (name("b"), Micros(60_000_000));
    assert_eq!(desk.ask(Request::Reclaim { node, within }), Reply::Done);
    assert!(desk.orders("b").contains(&Order::Stop));
    desk.leave("b");
    desk.come("b", 1, None);
    assert!(desk.orders("b").contains(&Order::Stop));
    desk.end("b");
    assert_eq!(told(&desk), ["node_leaving", "node_left"]);
}

#[test]
fn cl_8_a_market_that_knows_of_an_end_moves_the_stage_within_it() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    forget_orders(&mut desk, &["a", "b"]);
    let ask = |node: &str, seconds: u64| Request::Reclaim {
        node: name(node),
        within: Micros(seconds * 1_000_000),
    };
    assert_eq!(desk.ask(ask("a", 30)), Reply::Done);
    assert!(matches!(desk.orders("b")[..], [Order::Prepare { .. }]));
    // b does not come to it: in the last third what a knows is made durable all the same.
    desk.pass(19_000);
    assert!(!is_drained(&mut desk));
    desk.pass(2_000);
    assert!(is_drained(&mut desk));
    desk.drained("a", Ok(()));
    assert!(desk.orders("a").contains(&Order::Stop));
    let Reply::Refused(refusal) = desk.ask(ask("z", 30)) else {
        panic!("nobody of that name ever came");
    };
    assert_eq!(refusal.code, RefusalCode::NotFound);
}
