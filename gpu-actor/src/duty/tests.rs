#![allow(clippy::unwrap_used, reason = "tests")]

use shared::ids::NodeName;
use shared::plan::Seat;
use shared::plan::arrangement::{Arrangement, HybridTask};
use shared::units::Bytes;
use shared::wire::notice::{Departure, LeaveCause};

use super::leaving::NO_PLAN;
use super::unheard::MOST_WAITING;
use super::*;

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn replica(nodes: &[&str]) -> Replica {
    let seat = |(stage, name): (usize, &&str)| Seat {
        node: node(name),
        address: "127.0.0.1:1".into(),
        first_layer: stage as u32,
        end_layer: stage as u32 + 1,
        activation_budget: Bytes(1 << 20),
        recomputed_layers: 0,
    };
    Replica {
        number: 0,
        seats: nodes.iter().enumerate().map(seat).collect(),
        jobs: Vec::new(),
        siblings: Vec::new(),
    }
}

fn duty() -> Duty {
    Duty::new(Hello {
        node: node("n0"),
        incarnation: 7,
        address: "127.0.0.1:1".into(),
        backbone: "b".into(),
        products: shared::job::Products::F32,
        layers: 2,
        memory: Bytes(1 << 30),
        threads: 1,
        device: "cpu".into(),
        term: Term(0),
        held: None,
        unheard: 1,
        clock: Micros(0),
    })
}

#[test]
fn an_arrangement_is_for_who_leads_the_plan_and_one_that_cannot_be_is_refused() {
    let arrange = |epoch: u64, jobs: &[u64]| {
        let task = HybridTask {
            jobs: jobs.iter().copied().map(JobId).collect(),
            parts: 2,
        };
        let arrangement = Arrangement {
            buckets: vec![vec![task]],
            ..Arrangement::default()
        };
        let epoch = PlanEpoch(epoch);
        (arrangement.clone(), Order::Arrange { epoch, arrangement })
    };
    let mut duty = duty();
    duty.step(Event::Connected);
    duty.step(order(1, hold(3)));
    let (arrangement, ordered) = arrange(3, &[1, 2]);
    assert_eq!(duty.step(order(1, ordered)), [Effect::Arrange(arrangement)]);
    for (epoch, jobs) in [(2, &[1, 2][..]), (4, &[1, 2]), (3, &[1, 1])] {
        let effects = duty.step(order(1, arrange(epoch, jobs).1));
        assert!(
            matches!(effects[..], [Effect::Tell(Notice::Refused { .. })]),
            "{effects:?}"
        );
    }
}

fn order(term: u64, order: Order) -> Event {
    let term = Term(term);
    Event::Ordered(Ordered { term, order })
}

fn hold(epoch: u64) -> Order {
    Order::Hold {
        epoch: PlanEpoch(epoch),
        replica: replica(&["n0", "n1"]),
        stage: 0,
    }
}

const TOWARD: PlanEpoch = PlanEpoch(9);
/// What is ordered.
const DRAIN: Effect = Effect::Drain {
    toward: TOWARD,
    soon: false,
};
/// What is done without an order.
const FEND: Effect = Effect::Drain {
    toward: NO_PLAN,
    soon: true,
};

fn drain(epoch: PlanEpoch) -> Order {
    Order::Drain {
        epoch,
        toward: TOWARD,
        soon: false,
    }
}

fn prepare(epoch: u64) -> Order {
    Order::Prepare {
        epoch: PlanEpoch(epoch),
        replica: replica(&["n0", "n1"]),
        stage: 0,
    }
}

fn step(job: u64, step: u64) -> Event {
    let notice = JobNotice::Step {
        step,
        loss: 1.0,
        accuracy: 0.0,
        gradient_norm: 1.0,
        learning_rate: 1e-3,
        tokens: 10 * step,
    };
    Event::Job(PlanEpoch(1), JobId(job), Micros(step), notice)
}

/// A node that holds the first stage of plan 1.
fn leading() -> Duty {
    let mut duty = duty();
    duty.step(Event::Connected);
    let effects = duty.step(order(1, hold(1)));
    assert!(matches!(effects[..], [Effect::Take(_)]), "{effects:?}");
    duty.step(Event::Linked(PlanEpoch(1), Ok(())));
    duty
}

fn refused(effects: &[Effect]) -> &str {
    match effects {
        [Effect::Tell(Notice::Refused { reason, .. })] => reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn du1_an_order_of_an_older_term_only_gets_an_answer() {
    let mut duty = leading();
    duty.step(order(3, prepare(2)));
    let before = duty.clone();
    let effects = duty.step(order(2, hold(2)));
    assert!(refused(&effects).contains("t2"));
    assert_eq!(format!("{duty:?}"), format!("{before:?}"));
    assert_eq!(duty.term(), Term(3));
}

#[test]
fn du2_an_order_for_another_plan_only_gets_an_answer() {
    let mut duty = leading();
    for epoch in [0, 2] {
        let epoch = PlanEpoch(epoch);
        let reason = duty.step(order(1, drain(epoch)));
        assert!(refused(&reason).contains("stage 0 of plan e1"));
    }
    assert!(refused(&duty.step(order(1, hold(0)))).contains("not newer"));
    assert!(refused(&duty.step(order(1, prepare(1)))).contains("not newer"));
    let drained = order(1, drain(PlanEpoch(1)));
    assert_eq!(duty.step(drained), [DRAIN]);
}

#[test]
fn the_same_hold_again_is_answered_again() {
    let mut duty = leading();
    let effects = duty.step(order(2, hold(1)));
    assert!(
        matches!(
            effects[..],
            [Effect::Tell(Notice::Holding {
                outcome: Ok(()),
                ..
            })]
        ),
        "{effects:?}"
    );
    duty.step(Event::Broken(PlanEpoch(1), Some(node("n1")), "gone".into()));
    let effects = duty.step(order(2, hold(1)));
    assert!(
        matches!(
            effects[..],
            [Effect::Tell(Notice::Holding {
                outcome: Err(_),
                ..
            })]
        ),
        "{effects:?}"
    );
}

#[test]
fn du3_numbered_notices_are_told_again_until_they_are_heard() {
    let mut duty = leading();
    duty.step(step(1, 1));
    duty.step(Event::Disconnected);
    assert!(duty.step(step(1, 2)).is_empty());
    let numbers = |effects: &[Effect]| -> Vec<u64> {
        let number = |effect: &Effect| match effect {
            Effect::Tell(Notice::Job { number, .. }) => Some(*number),
            _ => None,
        };
        effects.iter().filter_map(number).collect()
    };
    let effects = duty.step(Event::Connected);
    let Effect::Tell(Notice::Hello(hello)) = &effects[0] else {
        panic!("no hello first: {effects:?}");
    };
    let held = hello.held.as_ref().unwrap();
    assert_eq!((held.epoch, held.linked), (PlanEpoch(1), true));
    assert_eq!(held.jobs, [(JobId(1), 2)]);
    assert_eq!(numbers(&effects), [1, 2]);
    duty.step(order(1, Order::Heard { notice: 1 }));
    assert_eq!(numbers(&duty.step(Event::Connected)), [2]);
}

#[test]
fn du4_what_the_device_did_for_a_plan_before_is_not_told() {
    let mut duty = leading();
    duty.step(order(1, hold(2)));
    assert!(duty.step(step(1, 1)).is_empty());
    assert!(
        duty.step(Event::Drained([PlanEpoch(1), TOWARD], Ok(())))
            .is_empty()
    );
    assert!(duty.step(Event::Linked(PlanEpoch(1), Ok(()))).is_empty());
}

#[test]
fn layers_are_opened_once_and_kept_for_their_plan() {
    let mut duty = leading();
    let effects = duty.step(order(1, prepare(2)));
    assert!(matches!(effects[..], [Effect::Open(_)]), "{effects:?}");
    assert!(
        duty.step(order(1, prepare(2))).is_empty(),
        "it is under way"
    );
    let effects = duty.step(Event::Opened(PlanEpoch(2), Ok(())));
    assert!(matches!(
        effects[..],
        [Effect::Tell(Notice::Prepared {
            outcome: Ok(()),
            ..
        })]
    ));
    assert_eq!(duty.step(order(1, prepare(2))), effects);
    let release = |epoch| {
        order(
            1,
            Order::Release {
                epoch: PlanEpoch(epoch),
            },
        )
    };
    assert!(
        duty.step(release(1)).is_empty(),
        "layers are open for plan 2"
    );
    assert_eq!(duty.epoch(), None);
    assert_eq!(duty.step(release(2)), [Effect::LetGo]);
}

#[test]
fn without_a_coordinator_only_the_newest_steps_are_kept() {
    let mut duty = leading();
    duty.step(Event::Disconnected);
    for number in 1..=MOST_WAITING as u64 {
        duty.step(step(number % 2, number));
    }
    let epoch = PlanEpoch(1);
    let durable = JobNotice::Durable {
        step: 9,
        bytes: Bytes(1),
    };
    duty.step(Event::Job(epoch, JobId(1), Micros(0), durable));
    assert_eq!(
        duty.unheard.count(),
        3,
        "two newest steps and what is durable"
    );
}

#[test]
fn a_seat_that_cannot_be_is_refused_and_nothing_is_opened_or_taken() {
    let mut duty = duty();
    duty.step(Event::Connected);
    let epoch = PlanEpoch(1);
    let mut odd = replica(&["n0", "n1"]);
    odd.seats[0].recomputed_layers = 2;
    for (stage, said) in [(0, "recomputes 2 layers and holds 1"), (2, "2 stages")] {
        let (replica, again) = (odd.clone(), odd.clone());
        let told = duty.step(order(
            1,
            Order::Prepare {
                epoch,
                replica,
                stage,
            },
        ));
        let [
            Effect::Tell(Notice::Prepared {
                outcome: Err(why), ..
            }),
        ] = &told[..]
        else {
            panic!("{told:?}");
        };
        assert!(why.contains(said), "{why}");
        let told = duty.step(order(
            1,
            Order::Hold {
                epoch,
                replica: again,
                stage,
            },
        ));
        let [
            Effect::Tell(Notice::Holding {
                outcome: Err(why), ..
            }),
        ] = &told[..]
        else {
            panic!("{told:?}");
        };
        assert!(why.contains(said), "{why}");
    }
    assert_eq!(duty.epoch(), None);
}

fn leaving(seconds: u64) -> Event {
    Event::Leaving(Departure {
        within: Micros(seconds * 1_000_000),
        cause: LeaveCause::Asked,
    })
}

#[test]
fn du5_a_node_that_leaves_says_so_and_stays_until_it_is_let_go() {
    let mut duty = leading();
    let effects = duty.step(leaving(30));
    assert!(
        matches!(effects[..], [Effect::Tell(Notice::Leaving(_))]),
        "{effects:?}"
    );
    let epoch = PlanEpoch(1);
    assert_eq!(duty.step(order(1, drain(epoch))), [DRAIN]);
    let told = |outcome: &Result<(), String>| {
        let outcome = outcome.clone();
        [Effect::Tell(Notice::Drained {
            epoch,
            toward: TOWARD,
            outcome,
        })]
    };
    for outcome in [Err("the disk is full".to_owned()), Ok(())] {
        let drained = Event::Drained([epoch, TOWARD], outcome.clone());
        assert_eq!(duty.step(drained), told(&outcome));
    }
    assert_eq!(
        duty.step(order(1, Order::Release { epoch })),
        [Effect::LetGo]
    );
    assert_eq!(duty.step(order(1, Order::Stop)), [Effect::Stop]);
}

#[test]
fn du5_without_a_coordinator_a_first_stage_makes_its_steps_durable_and_goes() {
    let mut duty = leading();
    duty.step(Event::Disconnected);
    assert_eq!(duty.step(leaving(30)), [FEND]);
    let full = Err("the disk is full".to_owned());
    assert_eq!(duty.step(Event::Drained([PlanEpoch(1), TOWARD], full)), []);
    assert_eq!(
        duty.step(Event::Drained([PlanEpoch(1), TOWARD], Ok(()))),
        [Effect::Stop]
    );
    // The coordinator goes while the node waits to be let go.
    let mut waits = leading();
    waits.step(leaving(30));
    assert_eq!(waits.step(Event::Disconnected), [FEND]);
    // One that follows waits for the end of its links.
    let mut follower = self::duty();
    follower.step(Event::Connected);
    let second = Order::Hold {
        epoch: PlanEpoch(1),
        replica: replica(&["n1", "n0"]),
        stage: 1,
    };
    follower.step(order(1, second));
    follower.step(Event::Linked(PlanEpoch(1), Ok(())));
    follower.step(Event::Disconnected);
    assert_eq!(follower.step(leaving(30)), []);
    let gone = Event::Broken(PlanEpoch(1), None, "reset".into());
    assert_eq!(follower.step(gone), [Effect::Stop]);
    // What holds nothing goes at once.
    assert_eq!(self::duty().step(leaving(30)), [Effect::Stop]);
}

#[test]
fn du6_a_risk_is_said_on_each_connection_and_so_is_its_end() {
    let mut duty = leading();
    let said = |cause: Option<&str>| {
        let cause = cause.map(ToOwned::to_owned);
        Effect::Tell(Notice::AtRisk { cause })
    };
    let risk = || Event::AtRisk(Some("rebalance".into()));
    assert_eq!(duty.step(risk()), [said(Some("rebalance"))]);
    assert_eq!(duty.step(risk()), [], "once");
    duty.step(Event::Disconnected);
    assert!(
        duty.step(Event::Connected)
            .contains(&said(Some("rebalance")))
    );
    duty.step(Event::Disconnected);
    assert_eq!(duty.step(Event::AtRisk(None)), [], "nobody hears it");
    assert!(duty.step(Event::Connected).contains(&said(None)));
}

#[test]
fn du7_what_is_hastened_holds_for_one_leadership_and_one_post() {
    let hasten = |epoch: u64, every_steps| Order::Hasten {
        epoch: PlanEpoch(epoch),
        every_steps,
    };
    let mut duty = leading();
    assert_eq!(duty.step(order(1, hasten(1, 1))), [Effect::Hasten(1)]);
    let refused = duty.step(order(1, hasten(2, 1)));
    assert!(matches!(
        refused[..],
        [Effect::Tell(Notice::Refused { .. })]
    ));
    // Whoever comes next says it again, or does not.
    let heard = Order::Heard { notice: 0 };
    assert_eq!(duty.step(order(2, heard.clone())), [Effect::Hasten(0)]);
    assert_eq!(duty.step(order(3, heard.clone())), []);
    assert_eq!(duty.step(order(3, hasten(1, 1))), [Effect::Hasten(1)]);
    // Another post begins with what its jobs ask.
    duty.step(order(3, hold(2)));
    assert_eq!(duty.step(order(4, heard)), []);
}
