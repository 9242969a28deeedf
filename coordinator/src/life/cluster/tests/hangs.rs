//! Devices that do not come back, and first stages that do not heed a drain. CL-9, CL-11

use shared::ids::PlanEpoch;
use shared::life::JobState;
use shared::wire::order::Order;
use shared::wire::request::{Reply, Request};
use shared::wire::view::NodeHealth;

use super::desk::{Desk, name};
use super::losses::{at_work, goes_on, obey, seated};

fn messages(desk: &Desk, kind: &str) -> Vec<String> {
    let views = desk.journal.iter().map(crate::record::Record::view);
    views
        .filter(|view| view.kind == kind)
        .map(|view| view.message)
        .collect()
}

fn health(desk: &Desk, node: &str) -> NodeHealth {
    let views = desk.machine.node_views();
    let view = views.iter().find(|view| view.name == name(node));
    view.unwrap().health
}

#[test]
fn cl_9_the_stage_of_a_device_that_hangs_is_given_to_another_node() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    desk.hang("a");
    desk.pass(58_000);
    assert_eq!(desk.state(job), JobState::Running, "it is borne");
    desk.pass(2_000);
    assert_eq!(desk.state(job), JobState::Recovering);
    assert_eq!(health(&desk, "a"), NodeHealth::Lost);
    let lost = messages(&desk, "node_lost");
    assert!(
        lost.len() == 1
            && lost[0].contains("a is lost: its device has been at one piece of work for 60."),
        "{lost:?}"
    );
    desk.pass(1_000);
    for _ in 0..2 {
        obey(&mut desk, &["b"], ["", ""]);
    }
    assert_eq!(seated(&desk), ["b"]);
    goes_on(&mut desk, job, "b");
    let orders = desk.orders("a");
    assert!(
        orders.contains(&Order::Release {
            epoch: PlanEpoch(1)
        }),
        "its connection stands: {orders:?}"
    );
    // The device comes back: the node is a spare.
    desk.hung.clear();
    desk.pass(1_000);
    assert_eq!(health(&desk, "a"), NodeHealth::Alive);
    let (from, to) = (name("b"), Some(name("a")));
    assert_eq!(desk.ask(Request::Migrate { from, to }), Reply::Done);
}

#[test]
fn cl_9_a_spare_whose_device_hangs_gets_no_seat() {
    let (mut desk, job) = at_work(1, &["a", "b", "c"]);
    desk.hang("b");
    desk.pass(62_000);
    desk.leave("a");
    desk.pass(5_000);
    for _ in 0..2 {
        obey(&mut desk, &["b", "c"], ["", ""]);
    }
    assert_eq!(seated(&desk), ["c"]);
    goes_on(&mut desk, job, "c");
}

#[test]
fn cl_11_a_drain_that_is_not_heeded_is_tried_twice_and_then_the_replica_is_broken() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    assert_eq!(desk.drain("a", false), Reply::Done);
    let mut drains = Vec::new();
    for _ in 0..30 {
        obey(&mut desk, &["b"], ["", ""]);
        let orders = desk.orders("a").into_iter();
        drains.extend(orders.filter_map(|order| match order {
            Order::Drain { soon, .. } => Some(soon),
            _ => None,
        }));
        if seated(&desk) == ["b"] {
            break;
        }
        desk.pass(10_000);
    }
    // The last try is in haste: what it does not make durable is lost.
    assert_eq!(drains, [false, true]);
    let broken = messages(&desk, "replica_broken");
    assert!(
        broken.len() == 1
            && broken[0].contains("a did not end its steps within 60.0 s, 2 times in a row"),
        "{broken:?}"
    );
    obey(&mut desk, &["b"], ["", ""]);
    goes_on(&mut desk, job, "b");
}
