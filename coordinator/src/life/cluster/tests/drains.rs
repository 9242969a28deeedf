//! Nodes that an operator wants empty: what is refused, what is forced, and what is told. CL-13

use shared::life::JobState;
use shared::wire::order::Order;
use shared::wire::request::{Refusal, RefusalCode, Reply, Request};

use super::desk::{Desk, name};
use super::losses::{at_work, goes_on, obey, seated, view};
use crate::life::placement::Stages;

fn drain(desk: &mut Desk, node: &str, force: bool) -> Result<(), Refusal> {
    match desk.drain(node, force) {
        Reply::Done => Ok(()),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn undo(desk: &mut Desk, node: &str) {
    let (node, undo, force) = (name(node), true, false);
    assert_eq!(desk.ask(Request::Drain { node, undo, force }), Reply::Done);
}

#[test]
fn cl_13_the_aim_of_a_move_under_way_is_not_drained_without_force() {
    let (mut desk, job) = at_work(2, &["a", "b", "c"]);
    drain(&mut desk, "a", false).unwrap();
    assert!(desk.machine.moving.is_some(), "a's stage goes to c");
    for other in ["b", "c"] {
        let refusal = drain(&mut desk, other, false).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::NoCapacity);
        for told in [
            &format!("without {other} 0 of 1 replicas have a place: plan.stages = 2"),
            "may have work then",
            "a shall be empty since it was drained, `spotmux drain a --undo` gives it back",
            "--force",
        ] {
            assert!(refusal.message.contains(told), "{told}: {refusal}");
        }
    }
    obey(&mut desk, &["c", "a"], ["", ""]);
    obey(&mut desk, &["b", "c"], ["", ""]);
    assert_eq!(seated(&desk), ["b", "c"]);
    assert_eq!(desk.machine.book.draining.len(), 1);
    goes_on(&mut desk, job, "c");
}

#[test]
fn cl_13_a_node_of_the_plan_is_known_before_it_has_come_back() {
    let (mut desk, job) = at_work(2, &["a", "b", "c"]);
    desk.restart();
    desk.come("a", 2, None);
    desk.come("c", 2, None);
    drain(&mut desk, "b", false).unwrap();
    assert!(desk.machine.book.draining.contains(&name("b")));
    let aim = Some(name("b"));
    let refused = desk.ask(Request::Migrate {
        from: name("a"),
        to: aim,
    });
    let Reply::Refused(refusal) = refused else {
        panic!("{refused:?}")
    };
    assert_ne!(refusal.code, RefusalCode::NotFound, "{refusal}");
    let refusal = drain(&mut desk, "nobody", false).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::NotFound);
    assert_eq!(desk.state(job), JobState::Recovering);
}

#[test]
fn a_drain_says_whether_a_machine_may_go_before_its_steps_end() {
    let soon = |desk: &mut Desk| -> Vec<bool> {
        let orders = desk.orders("a").into_iter();
        let drains = orders.filter_map(|order| match order {
            Order::Drain { soon, .. } => Some(soon),
            _ => None,
        });
        drains.collect()
    };
    // The first stage is asked to move, or all end; then the machine of the second is taken.
    for closes in [false, true] {
        let (mut desk, _) = at_work(2, &["a", "b", "c"]);
        if closes {
            desk.ask(Request::Shutdown);
        } else {
            let (from, to) = (name("a"), Some(name("c")));
            assert_eq!(desk.ask(Request::Migrate { from, to }), Reply::Done);
            desk.prepared("c");
        }
        assert_eq!(soon(&mut desk), [false], "closes: {closes}");
        super::desk::leaves(&mut desk, "b", 30);
        if closes {
            assert_eq!(soon(&mut desk), [true]);
            continue;
        }
        // That move seats b: it is called off, and the next is in haste.
        desk.pass(25_000);
        assert_eq!(soon(&mut desk), [true]);
    }
    // One that does not seat the machine that goes is pressed.
    let (mut desk, _) = at_work(1, &["a", "b"]);
    drain(&mut desk, "a", false).unwrap();
    desk.prepared("b");
    assert_eq!(soon(&mut desk), [false]);
    super::desk::leaves(&mut desk, "a", 30);
    assert_eq!(soon(&mut desk), [true]);
}

#[test]
fn a_move_that_finds_no_node_names_those_that_are_kept_out_and_why() {
    let (mut desk, _) = at_work(1, &["a", "b", "c"]);
    drain(&mut desk, "b", false).unwrap();
    super::desk::leaves(&mut desk, "c", 30);
    let (from, to) = (name("a"), None);
    let Reply::Refused(refusal) = desk.ask(Request::Migrate { from, to }) else {
        panic!("no node may have it");
    };
    assert_eq!(refusal.code, RefusalCode::NoCapacity);
    for told in ["stage of a", "`spotmux drain b --undo`", "c leaves"] {
        assert!(refusal.message.contains(told), "{told}: {refusal}");
    }
}

#[test]
fn cl_13_a_move_goes_to_no_node_that_is_drained_meanwhile() {
    let (mut desk, job) = at_work(1, &["a", "b", "c"]);
    drain(&mut desk, "a", false).unwrap();
    assert!(matches!(desk.orders("b")[..], [.., Order::Prepare { .. }]));
    drain(&mut desk, "b", false).unwrap();
    desk.pass(2_000);
    obey(&mut desk, &["c", "a"], ["", ""]);
    obey(&mut desk, &["c"], ["", ""]);
    assert_eq!(seated(&desk), ["c"], "once, and not by way of b");
    goes_on(&mut desk, job, "c");
}

#[test]
fn cl_13_with_force_jobs_are_made_durable_and_wait_and_the_reason_names_the_remedy() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    drain(&mut desk, "b", false).unwrap();
    drain(&mut desk, "a", false).unwrap_err();
    drain(&mut desk, "a", true).unwrap();
    desk.pass(1_000);
    let orders = desk.orders("a");
    assert!(
        orders
            .iter()
            .any(|order| matches!(order, Order::Drain { .. })),
        "{orders:?}"
    );
    desk.drained("a", Ok(()));
    assert_eq!(seated(&desk), [""; 0]);
    let waits = view(&mut desk, job);
    assert_eq!((waits.state, waits.durable_step), (JobState::Queued, 1));
    let why = waits.reason.unwrap().message;
    let lack = desk.machine.view().lack.unwrap();
    for told in ["`spotmux drain a --undo`", "`spotmux drain b --undo`"] {
        assert!(why.contains(told) && lack.contains(told), "{why}\n{lack}");
    }
    // A drain outlives the coordinator, and what it lacks is told from the start.
    desk.restart();
    desk.come("a", 2, None);
    desk.come("b", 2, None);
    desk.pass(1_000);
    let lack = desk.machine.view().lack.unwrap();
    assert!(lack.contains("`spotmux drain a --undo`"), "{lack}");
    undo(&mut desk, "b");
    desk.pass(1_000);
    for _ in 0..2 {
        obey(&mut desk, &["b"], ["", ""]);
    }
    goes_on(&mut desk, job, "b");
    assert_eq!(desk.machine.view().lack, None);
}

#[test]
fn cl_13_the_last_place_of_one_of_two_replicas_is_not_taken_without_force() {
    let mut desk = Desk::new(Stages::Fixed(1), 2, 2);
    desk.come("a", 1, None);
    desk.come("b", 1, None);
    desk.settle(&["a", "b"]);
    desk.pass(2_000);
    let refusal = drain(&mut desk, "b", false).unwrap_err();
    assert!(
        refusal
            .message
            .contains("without b 1 of 2 replicas have a place")
            && refusal.message.contains("only a may have work then"),
        "{refusal}"
    );
    // A third is a spare, and makes one of the others so: any one may go.
    desk.come("c", 1, None);
    drain(&mut desk, "c", false).unwrap();
    undo(&mut desk, "c");
    drain(&mut desk, "b", false).unwrap();
    undo(&mut desk, "b");
    drain(&mut desk, "b", true).unwrap();
}

#[test]
fn cl_13_with_fewer_replicas_than_wanted_it_is_told_why() {
    let mut desk = Desk::new(Stages::Fixed(1), 2, 1);
    desk.come("a", 1, None);
    desk.settle(&["a"]);
    desk.pass(2_000);
    let lack = desk.machine.view().lack.unwrap();
    assert!(
        lack.starts_with("one more replica than the 1 of plan.replicas = 2 needs 1 nodes"),
        "{lack}"
    );
    desk.come("b", 1, None);
    desk.pass(2_000);
    for _ in 0..2 {
        obey(&mut desk, &["b"], ["", ""]);
    }
    assert_eq!(desk.machine.view().lack, None);
}
