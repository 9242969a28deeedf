//! Stages that an operator moves: what is refused, and with which reason; and what others are told meanwhile.

use shared::ids::PlanEpoch;
use shared::wire::notice::{Held, Notice};
use shared::wire::order::Order;
use shared::wire::request::{Refusal, RefusalCode, Reply, Request};

use super::desk::{self, Desk, name};
use super::losses::at_work;
use crate::life::placement::Stages;

fn migrate(desk: &mut Desk, from: &str, to: &str) -> Result<(), Refusal> {
    let (from, to) = (name(from), Some(name(to)));
    match desk.ask(Request::Migrate { from, to }) {
        Reply::Done => Ok(()),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_that_could_not_hold_a_stage_is_no_aim_until_it_is_tried_again() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    migrate(&mut desk, "a", "b").unwrap();
    let failed = Notice::Prepared {
        epoch: desk.machine.book.moving.unwrap(),
        outcome: Err("out of memory".into()),
    };
    desk.tell("b", failed);
    let refusal = migrate(&mut desk, "a", "b").unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Conflict);
    assert!(
        refusal
            .message
            .starts_with("b could not hold a stage, and is tried again in "),
        "{refusal}"
    );
    desk.pass(31_000);
    migrate(&mut desk, "a", "b").unwrap();
}

#[test]
fn a_node_without_a_stage_has_none_to_move_and_one_that_never_came_is_not_found() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    let refusal = migrate(&mut desk, "b", "a").unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Conflict);
    assert!(refusal.message.contains("`spotmux nodes` shows who does"));
    let refusal = migrate(&mut desk, "c", "a").unwrap_err();
    assert_eq!(refusal.code, RefusalCode::NotFound);
}

#[test]
fn a_node_whose_device_hangs_is_no_aim_and_that_is_the_reason() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    desk.hang("b");
    desk.pass(62_000);
    let refusal = migrate(&mut desk, "a", "b").unwrap_err();
    assert!(
        refusal
            .message
            .contains("the device of b does not come back"),
        "{refusal}"
    );
}

#[test]
fn no_stage_moves_while_the_cluster_ends() {
    let (mut desk, _) = at_work(1, &["a", "b"]);
    desk.ask(Request::Shutdown);
    let refusal = migrate(&mut desk, "a", "b").unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(desk.machine.moving.is_none());
}

#[test]
fn a_lead_goes_on_that_missed_it_while_another_replica_is_drained() {
    let mut desk = Desk::new(Stages::Fixed(1), 2, 2);
    for node in ["a", "b"] {
        desk.come(node, 1, None);
    }
    desk.settle(&["a", "b"]);
    desk.come("c", 1, None);
    desk.pass(2_000);
    // A move that drains a is called off, and the word is lost with its connection.
    migrate(&mut desk, "a", "c").unwrap();
    desk.prepared("c");
    desk.leave("c");
    desk.pass(4_000);
    assert!(desk.machine.moving.is_none());
    desk.leave("a");
    desk.come("c", 1, None);
    migrate(&mut desk, "b", "c").unwrap();
    desk.prepared("c");
    let held = desk::held(&[]);
    desk.come("a", 1, Some(held.clone()));
    let (epoch, goes_on) = (
        PlanEpoch(1),
        Order::Undrain {
            epoch: PlanEpoch(1),
        },
    );
    assert!(desk.orders("a").contains(&goes_on));
    // The one that is drained is told that again, and not to go on.
    desk.leave("b");
    desk.come("b", 1, Some(Held { replica: 1, ..held }));
    let orders = desk.orders("b");
    let drain = |order: &Order| matches!(order, Order::Drain { epoch: e, .. } if *e == epoch);
    assert!(
        orders.iter().any(drain) && !orders.contains(&goes_on),
        "{orders:?}"
    );
}
