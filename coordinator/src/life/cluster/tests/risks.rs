//! Machines that may be taken. CL-17, RK-1

use shared::wire::notice::Notice;
use shared::wire::order::Order;
use shared::wire::request::{Reply, Request};

use super::desk::{self, Desk, name};
use super::losses::{at_work, seated, view};

fn said(desk: &mut Desk, node: &str, cause: Option<&str>) {
    let cause = cause.map(ToOwned::to_owned);
    desk.tell(node, Notice::AtRisk { cause });
}

fn told(desk: &mut Desk, node: &str, cause: Option<&str>) -> Reply {
    let (node, cause) = (name(node), cause.map(ToOwned::to_owned));
    desk.ask(Request::Risk { node, cause })
}

/// Rates that a first stage was told since the last look.
fn rates(desk: &mut Desk, lead: &str) -> Vec<u64> {
    let orders = desk.orders(lead).into_iter();
    let rates = orders.filter_map(|order| match order {
        Order::Hasten { every_steps, .. } => Some(every_steps),
        _ => None,
    });
    rates.collect()
}

fn kinds(desk: &Desk) -> Vec<String> {
    let views = desk.journal.iter().map(crate::record::Record::view);
    let kinds = views.map(|view| view.kind);
    kinds
        .filter(|kind| kind.contains("risk") || kind.starts_with("migration"))
        .collect()
}

#[test]
fn cl_16_a_risk_of_any_stage_hastens_states_until_it_is_over_and_moves_nothing() {
    let (mut desk, job) = at_work(2, &["a", "b", "z"]);
    let moves = kinds(&desk);
    rates(&mut desk, "a");
    said(&mut desk, "b", Some("a rebalance is recommended"));
    assert_eq!(rates(&mut desk, "a"), [1]);
    said(&mut desk, "b", Some("in other words"));
    // One that holds nothing hastens nothing.
    said(&mut desk, "z", Some("too"));
    desk.pass(20_000);
    assert_eq!(rates(&mut desk, "a"), [] as [u64; 0], "RK-1: once");
    assert_eq!(seated(&desk), ["a", "b"]);
    let Reply::Nodes(nodes) = desk.ask(Request::Nodes) else {
        panic!("nodes are answered by nodes");
    };
    assert_eq!(nodes[1].risk.as_deref(), Some("in other words"));
    said(&mut desk, "b", None);
    assert_eq!(rates(&mut desk, "a"), [0]);
    let expected = ["node_at_risk", "node_at_risk", "node_risk_over"];
    let told = kinds(&desk);
    assert_eq!(told[moves.len()..], expected, "nothing moves");
    assert_eq!(view(&mut desk, job).moves, 0);
}

#[test]
fn cl_16_each_teller_takes_back_its_own_word_only() {
    let (mut desk, _) = at_work(1, &["a"]);
    rates(&mut desk, "a");
    assert_eq!(told(&mut desk, "a", Some("the pool runs dry")), Reply::Done);
    said(&mut desk, "a", Some("maintenance"));
    assert_eq!(rates(&mut desk, "a"), [1]);
    said(&mut desk, "a", None);
    assert_eq!(rates(&mut desk, "a"), [] as [u64; 0]);
    told(&mut desk, "a", None);
    assert_eq!(rates(&mut desk, "a"), [0]);
    let refused = told(&mut desk, "nobody", Some("x"));
    assert!(matches!(refused, Reply::Refused(_)), "{refused:?}");
}

#[test]
fn rk_1_what_may_not_have_come_is_told_again_and_a_new_leadership_begins_anew() {
    let (mut desk, job) = at_work(1, &["a"]);
    rates(&mut desk, "a");
    said(&mut desk, "a", Some("maintenance"));
    assert_eq!(rates(&mut desk, "a"), [1]);
    let held = desk::held(&[(job, 1)]);
    desk.leave("a");
    desk.come("a", 1, Some(held.clone()));
    assert_eq!(rates(&mut desk, "a"), [1]);
    desk.leave("a");
    told(&mut desk, "a", None);
    desk.come("a", 1, Some(held.clone()));
    said(&mut desk, "a", None);
    assert_eq!(rates(&mut desk, "a"), [1, 0]);
    said(&mut desk, "a", Some("maintenance"));
    desk.restart();
    desk.come("a", 1, Some(held));
    // The node took it back by itself as it heard of the new leadership.
    assert_eq!(rates(&mut desk, "a"), [] as [u64; 0]);
    said(&mut desk, "a", Some("maintenance"));
    assert_eq!(rates(&mut desk, "a"), [1]);
}

#[test]
fn cl_16_a_setting_of_none_leaves_it_to_the_jobs() {
    let (mut desk, _) = at_work(1, &["a"]);
    desk.machine.settings.limits.risk_checkpoint_steps = 0;
    rates(&mut desk, "a");
    said(&mut desk, "a", Some("maintenance"));
    assert_eq!(rates(&mut desk, "a"), [] as [u64; 0]);
}
