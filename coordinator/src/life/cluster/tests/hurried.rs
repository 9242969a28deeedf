//! Short notices come before everything else: other moves, replicas that settle, nodes that are away. CL-8

use shared::ids::PlanEpoch;
use shared::wire::notice::{JobNotice, Notice};
use shared::wire::order::Order;
use shared::wire::request::{Reply, Request};

use super::desk::{self, Desk, leaves, name};
use super::losses::{at_work, obey, seated};
use crate::life::placement::Stages;
use crate::record::Change;

const FIRST: PlanEpoch = PlanEpoch(1);

/// Two replicas of one stage, on a and b, a job on a, and two nodes to spare.
fn two() -> Desk {
    let mut desk = Desk::new(Stages::Fixed(1), 2, 2);
    desk.come("a", 1, None);
    desk.come("b", 1, None);
    desk.settle(&["a", "b"]);
    desk.train("one", "a");
    for node in ["c", "d"] {
        desk.come(node, 1, None);
    }
    desk.pass(2_000);
    for node in ["a", "b", "c", "d"] {
        desk.orders(node);
    }
    desk
}

fn migrate(desk: &mut Desk, from: &str, to: &str) {
    let (from, to) = (name(from), Some(name(to)));
    assert_eq!(desk.ask(Request::Migrate { from, to }), Reply::Done);
}

/// How often a was told to end its steps under the first plan since the last look.
fn drains(desk: &mut Desk) -> usize {
    let orders = desk.orders("a");
    let drain = |order: &&Order| matches!(order, Order::Drain { epoch: FIRST, .. });
    orders.iter().filter(drain).count()
}

/// a is drained, let go of, and its replica is seated where there is room.
fn ends_in_order(desk: &mut Desk) {
    desk.drained("a", Ok(()));
    assert!(desk.orders("a").contains(&Order::Stop));
    desk.end("a");
    desk.pass(2_000);
    for _ in 0..3 {
        obey(desk, &["b", "c", "d"], ["", ""]);
        desk.pass(1_500);
    }
    assert_eq!(seated(desk).len(), 2, "{:?}", seated(desk));
    assert!(!seated(desk).contains(&"a".to_owned()));
    let lost = |record: &crate::record::Record| {
        matches!(
            record.change,
            Change::NodeLost { .. } | Change::Broken { .. }
        )
    };
    assert!(!desk.journal.iter().any(lost), "nothing broke");
}

#[test]
fn cl_8_a_notice_calls_off_what_another_replica_prepares() {
    let mut desk = two();
    migrate(&mut desk, "b", "c");
    assert!(matches!(desk.orders("c")[..], [Order::Prepare { .. }]));
    leaves(&mut desk, "a", 30);
    desk.pass(19_000);
    assert_eq!(drains(&mut desk), 0, "there is time");
    desk.pass(2_000);
    assert_eq!(drains(&mut desk), 1);
    ends_in_order(&mut desk);
}

#[test]
fn cl_8_a_notice_does_not_wait_for_the_drain_of_another_replica() {
    let mut desk = two();
    migrate(&mut desk, "b", "c");
    desk.prepared("c");
    let drain = |order: &Order| matches!(order, Order::Drain { .. });
    assert!(desk.orders("b").iter().any(drain));
    leaves(&mut desk, "a", 30);
    desk.pass(21_000);
    assert_eq!(drains(&mut desk), 1);
    let goes_on = Order::Undrain { epoch: FIRST };
    assert!(desk.orders("b").contains(&goes_on));
    ends_in_order(&mut desk);
}

#[test]
fn cl_8_a_drain_under_way_of_the_replica_itself_is_left_alone() {
    let mut desk = two();
    leaves(&mut desk, "a", 30);
    desk.prepared("c");
    assert_eq!(drains(&mut desk), 1);
    desk.pass(25_000);
    assert_eq!(drains(&mut desk), 0, "it was told once");
    ends_in_order(&mut desk);
}

#[test]
fn cl_8_a_notice_does_not_wait_until_another_replica_has_settled() {
    let mut desk = two();
    migrate(&mut desk, "b", "c");
    desk.prepared("c");
    desk.drained("b", Ok(()));
    assert!(!desk.machine.is_at_work(1), "c holds nothing yet");
    leaves(&mut desk, "a", 30);
    desk.pass(21_000);
    assert_eq!(drains(&mut desk), 1);
    assert!(
        desk.orders("c")
            .iter()
            .all(|order| !matches!(order, Order::Drain { .. }))
    );
    desk.drained("a", Ok(()));
    assert_eq!(seated(&desk), ["c"]);
    desk.tell(
        "c",
        Notice::Holding {
            epoch: PlanEpoch(2),
            outcome: Ok(()),
        },
    );
    assert!(desk.machine.is_at_work(1), "the other settles as before");
}

#[test]
fn cl_8_all_replicas_that_share_the_steps_of_one_that_goes_store_in_haste() {
    let mut desk = Desk::new(Stages::Fixed(1), 2, 2);
    desk.come("a", 1, None);
    desk.come("b", 1, None);
    desk.settle(&["a", "b"]);
    desk.pass(2_000);
    let job = desk.submit_wide();
    desk.holding("a");
    desk.holding("b");
    desk.job("a", job, JobNotice::Admitted { step: 0, total: 9 });
    desk.job("a", job, desk::step(1));
    desk.come("c", 1, None);
    desk.pass(2_000);
    for node in ["a", "b", "c"] {
        desk.orders(node);
    }
    let soon = |desk: &mut Desk, node: &str| {
        let orders = desk.orders(node);
        let mut soon = orders.iter().filter_map(|order| match order {
            Order::Drain { soon, .. } => Some(*soon),
            _ => None,
        });
        soon.next_back()
    };
    // The one that goes is not the one that leads the job.
    leaves(&mut desk, "b", 30);
    desk.prepared("c");
    assert_eq!(soon(&mut desk, "a"), Some(true));
    assert_eq!(soon(&mut desk, "b"), Some(true));
}

#[test]
fn cl_8_a_notice_does_not_wait_for_a_node_that_is_away() {
    let mut desk = two();
    desk.leave("b");
    leaves(&mut desk, "a", 1);
    desk.pass(800);
    assert_eq!(drains(&mut desk), 1);
}

#[test]
fn cl_8_a_store_that_answers_again_within_the_notice_is_not_missed() {
    let mut desk = two();
    leaves(&mut desk, "a", 30);
    desk.prepared("c");
    let full = || Err("j1: the disk is full".to_owned());
    let mut tried = 0;
    for tenth in 0..290 {
        desk.pass(100);
        for order in desk.orders("c") {
            if matches!(order, Order::Prepare { .. }) {
                desk.prepared("c");
            }
        }
        for _ in 0..drains(&mut desk) {
            tried += usize::from(tenth > 200);
            desk.drained("a", full());
        }
    }
    // CL-5: once a second in the last nine.
    assert!((7..=10).contains(&tried), "{tried}");
}

#[test]
fn cl_8_a_notice_is_heeded_while_a_restarted_coordinator_waits_for_others() {
    let (mut desk, job) = at_work(2, &["a", "b"]);
    desk.restart();
    let held = desk::held(&[(job, 1)]);
    desk.come("a", 1, Some(held));
    leaves(&mut desk, "a", 6);
    desk.pass(3_000);
    assert_eq!(drains(&mut desk), 0);
    desk.pass(2_000);
    assert_eq!(drains(&mut desk), 1);
    desk.drained("a", Ok(()));
    assert!(desk.orders("a").contains(&Order::Stop));
    // Who comes back later finds no seat, and nothing waits for it.
    desk.come("b", 1, None);
    assert!(desk.machine.settling.is_empty());
}
