//! Machines that are taken away, hang, or were never enough: what becomes of jobs, and who is seated next.

use shared::ids::{JobId, PlanEpoch};
use shared::life::{JobState, ReasonClass};
use shared::units::Bytes;
use shared::wire::notice::{JobNotice, Notice};
use shared::wire::order::Order;
use shared::wire::request::{JobRef, Reply, Request};
use shared::wire::view::JobView;

use super::desk::{self, Desk, name, submission};
use crate::life::placement::Stages;

const DURABLE: JobNotice = JobNotice::Durable {
    step: 1,
    bytes: Bytes(1),
};

/// A cluster at work on a job with a durable step.
pub(super) fn at_work(stages: u32, nodes: &[&str]) -> (Desk, JobId) {
    let mut desk = Desk::new(Stages::Fixed(stages), 1, stages);
    for node in nodes {
        desk.come(node, 1, None);
    }
    desk.settle(&nodes[..stages as usize]);
    let job = desk.train("one", nodes[0]);
    desk.job(nodes[0], job, desk::step(1));
    desk.job(nodes[0], job, DURABLE);
    desk.pass(2_000);
    (desk, job)
}

/// Nodes do what they are told, but the ill ones never hold a seat: the first says so, the second says nothing.
pub(super) fn obey(desk: &mut Desk, nodes: &[&str], ill: [&str; 2]) {
    for node in nodes {
        for order in desk.orders(node) {
            match order {
                Order::Prepare { epoch, .. } => {
                    let outcome = Ok(());
                    desk.tell(node, Notice::Prepared { epoch, outcome });
                }
                Order::Drain { .. } => {
                    desk.drained(node, Ok(()));
                }
                Order::Hold { epoch, .. } if *node != ill[1] => {
                    let outcome = match *node == ill[0] {
                        true => Err("it cannot".into()),
                        false => Ok(()),
                    };
                    desk.tell(node, Notice::Holding { epoch, outcome });
                }
                _ => {}
            }
        }
    }
}

pub(super) fn seated(desk: &Desk) -> Vec<String> {
    let nodes = desk.machine.book.layout.nodes();
    nodes.iter().map(ToString::to_string).collect()
}

pub(super) fn view(desk: &mut Desk, job: JobId) -> JobView {
    let Reply::Job(view) = desk.ask(Request::Job(JobRef::Id(job))) else {
        panic!("a job is answered by a job");
    };
    *view
}

/// The job is taken up at its durable step by this lead, as the same job and without blame.
pub(super) fn goes_on(desk: &mut Desk, job: JobId, lead: &str) {
    assert_eq!(desk.machine.book.layout.lead(0), Some(&name(lead)));
    desk.job(lead, job, JobNotice::Admitted { step: 1, total: 9 });
    desk.job(lead, job, JobNotice::Recovered { step: 1 });
    desk.job(lead, job, desk::step(2));
    let job = desk.machine.book.ledger.get(job).unwrap();
    assert_eq!((job.state, job.step), (JobState::Running, 2));
    assert_eq!((job.recoveries + job.moves, job.refusals), (1, 0));
}

/// A stage says that its replica stands still, and blames nobody.
pub(super) fn stalls(desk: &mut Desk, teller: &str) {
    let stalled = Notice::Broken {
        epoch: desk.machine.book.layout.epoch,
        neighbour: None,
        reason: "stage 0 stalled: it waits for the gradient of micro-batch 3".into(),
    };
    desk.tell(teller, stalled);
}

#[test]
fn cl_6_a_node_that_is_heard_but_never_holds_makes_room_for_a_spare() {
    // Its neighbour complains before the bound, or nobody does.
    for complains in [true, false] {
        let (mut desk, job) = at_work(2, &["a", "b", "c"]);
        stalls(&mut desk, "a");
        desk.pass(2_000);
        assert_eq!(seated(&desk), ["a", "b"], "what stood is tried again");
        let complainer = if complains { "a" } else { "" };
        obey(&mut desk, &["a", "b", "c"], [complainer, "b"]);
        desk.pass(if complains { 2_000 } else { 70_000 });
        for _ in 0..2 {
            obey(&mut desk, &["a", "b", "c"], ["", "b"]);
        }
        assert_eq!(seated(&desk), ["a", "c"], "complains: {complains}");
        goes_on(&mut desk, job, "a");
    }
}

#[test]
fn cl_6_a_node_that_complains_wherever_it_is_seated_is_left_out_in_its_turn() {
    let nodes = ["a", "b", "c"];
    let (mut desk, job) = at_work(2, &nodes);
    stalls(&mut desk, "b");
    for _ in 0..30 {
        desk.pass(3_000);
        obey(&mut desk, &nodes, ["a", ""]);
        obey(&mut desk, &nodes, ["a", ""]);
        if desk.machine.is_at_work(0) {
            break;
        }
    }
    assert_eq!(seated(&desk), ["b", "c"]);
    goes_on(&mut desk, job, "b");
}

#[test]
fn cl_6_without_a_spare_the_same_nodes_are_tried_again() {
    let (mut desk, job) = at_work(2, &["a", "b"]);
    stalls(&mut desk, "a");
    desk.pass(2_000);
    obey(&mut desk, &["a", "b"], ["a", ""]);
    desk.pass(2_000);
    assert_eq!(seated(&desk), ["a", "b"]);
    for _ in 0..2 {
        obey(&mut desk, &["a", "b"], ["", ""]);
    }
    assert!(desk.machine.is_at_work(0));
    goes_on(&mut desk, job, "a");
}

#[test]
fn without_any_node_a_job_queues_with_its_id_and_checkpoint_and_says_what_it_waits_for() {
    let (mut desk, job) = at_work(1, &["a"]);
    desk.leave("a");
    desk.pass(20_000);
    let waits = view(&mut desk, job);
    assert_eq!((waits.state, waits.durable_step), (JobState::Queued, 1));
    let reason = waits.reason.unwrap();
    assert_eq!(reason.class, ReasonClass::NoCapacity);
    assert!(
        reason.message.starts_with("it waits for nodes: ")
            && reason.message.contains("0 can have work"),
        "{reason:?}"
    );
    desk.come("z", 1, None);
    desk.pass(2_000);
    obey(&mut desk, &["z"], ["", ""]);
    obey(&mut desk, &["z"], ["", ""]);
    let placed = view(&mut desk, job);
    assert_eq!(
        (placed.state, placed.reason),
        (JobState::Provisioning, None)
    );
    goes_on(&mut desk, job, "z");
}

#[test]
fn before_the_first_plan_a_job_says_how_many_nodes_are_here() {
    let mut desk = Desk::new(Stages::Fixed(2), 1, 2);
    desk.come("a", 1, None);
    let Reply::Job(job) = desk.ask(Request::Submit(submission("one"))) else {
        panic!("a job is accepted");
    };
    assert_eq!(job.state, JobState::Queued);
    let told = job.reason.unwrap().message;
    assert!(told.contains("1 of 2 are here"), "{told}");
}

#[test]
fn a_notice_that_is_shorter_than_the_move_costs_a_recovery_and_no_failure() {
    // The node goes while the other opens its layers, or while it ends its own round.
    for opened in [false, true] {
        let (mut desk, job) = at_work(1, &["a", "b"]);
        assert_eq!(desk.drain("a", false), Reply::Done);
        assert!(desk.machine.moving.is_some(), "the warning is heeded");
        if opened {
            desk.prepared("b");
        }
        desk.orders("b");
        desk.leave("a");
        desk.pass(5_000);
        obey(&mut desk, &["b"], ["", ""]);
        obey(&mut desk, &["b"], ["", ""]);
        assert_eq!(seated(&desk), ["b"], "opened: {opened}");
        goes_on(&mut desk, job, "b");
    }
}

#[test]
fn a_node_that_goes_while_it_prepares_costs_those_at_work_nothing() {
    let (mut desk, job) = at_work(1, &["a", "b"]);
    let (from, to) = (name("a"), Some(name("b")));
    assert_eq!(desk.ask(Request::Migrate { from, to }), Reply::Done);
    desk.leave("b");
    desk.pass(10_000);
    assert!(desk.machine.moving.is_none());
    assert_eq!(seated(&desk), ["a"]);
    assert_eq!(view(&mut desk, job).recoveries, 0);
    assert_eq!(desk.state(job), JobState::Running);
}

#[test]
fn two_nodes_that_go_at_once_are_both_replaced_by_one_move() {
    let (mut desk, job) = at_work(2, &["a", "b", "c", "d"]);
    desk.leave("a");
    desk.leave("b");
    desk.pass(5_000);
    obey(&mut desk, &["c", "d"], ["", ""]);
    obey(&mut desk, &["c", "d"], ["", ""]);
    assert_eq!(seated(&desk), ["c", "d"]);
    assert_eq!(desk.machine.book.layout.epoch, PlanEpoch(2));
    goes_on(&mut desk, job, "c");
}

#[test]
fn a_node_that_a_restarted_coordinator_never_sees_is_lost_within_the_bound() {
    let (mut desk, job) = at_work(1, &["a"]);
    desk.restart();
    desk.come("b", 1, None);
    desk.pass(11_000);
    assert_eq!(desk.state(job), JobState::Running, "it may yet come");
    desk.pass(4_000);
    obey(&mut desk, &["b"], ["", ""]);
    obey(&mut desk, &["b"], ["", ""]);
    assert_eq!(seated(&desk), ["b"]);
    goes_on(&mut desk, job, "b");
}
