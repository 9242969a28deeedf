//! What a market tells: who is admitted, and what jobs owe.

use shared::ids::JobName;
use shared::life::{JobState, ReasonClass};
use shared::units::{MicroUsd, Micros};
use shared::wire::market::{Ground, MarketTold, Money, Offered, Place};
use shared::wire::request::{JobRef, RefusalCode, Reply, Request};

use super::desk::{Desk, submission};
use super::losses::{at_work, view};
use crate::life::placement::Stages;
use crate::record::{Inputs, Measure};

fn ground() -> Ground {
    Ground {
        offers: vec![Offered {
            place: Place {
                region: "east".into(),
                zone: "east-a".into(),
            },
            spot_price: MicroUsd(200_000),
            spot_available: 4,
            on_demand_price: MicroUsd(1_000_000),
            on_demand_available: None,
        }],
        fewest: 1,
        most: 4,
        slot: Micros(1_800_000_000),
        tokens_per_machine_hour: 2000,
    }
}

fn tell(desk: &mut Desk, told: MarketTold) {
    assert_eq!(desk.ask(Request::Market(told)), Reply::Done);
}

fn offers(desk: &mut Desk) {
    let ground = Some(ground());
    tell(
        desk,
        MarketTold {
            ground,
            bills: Vec::new(),
        },
    );
}

fn submit(desk: &mut Desk, name: &str, asks: &str) -> Reply {
    let mut submission = submission(name);
    let end = submission.spec.len() - 1;
    submission
        .spec
        .insert_str(end, &format!(r#","market":{asks}"#));
    desk.ask(Request::Submit(submission))
}

#[test]
fn a_zone_that_is_none_is_refused_with_those_that_are() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    let known = |reply: &Reply| matches!(reply, Reply::Job(_));
    let early = [
        ("early", r#"{"zones":["x"]}"#),
        ("well", r#"{"zones":["east"]}"#),
    ];
    let early = early.map(|(name, asks)| match submit(&mut desk, name, asks) {
        Reply::Job(job) => job.id,
        refused => panic!("nothing is known yet: {refused:?}"),
    });
    offers(&mut desk);
    // Those that came before are told as soon as it is known.
    let [nowhere, well] = early.map(|job| view(&mut desk, job));
    assert_eq!(
        (nowhere.state, well.state),
        (JobState::Failed, JobState::Queued)
    );
    let reason = nowhere.reason.expect("it says why");
    assert_eq!(reason.class, ReasonClass::UserError);
    assert!(
        reason.message.contains("there are east, east-a"),
        "{reason:?}"
    );
    let Reply::Refused(refusal) = submit(&mut desk, "one", r#"{"zones":["west"]}"#) else {
        panic!("there is no such zone");
    };
    assert_eq!(refusal.code, RefusalCode::Invalid);
    assert!(
        refusal.message.contains("there are east, east-a"),
        "{refusal}"
    );
    for (name, zones) in [
        ("a", r#"{"zones":["east-a"]}"#),
        ("b", r#"{"zones":["east"]}"#),
    ] {
        assert!(known(&submit(&mut desk, name, zones)));
    }
}

#[test]
fn by_offers_of_long_ago_nobody_is_refused() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    offers(&mut desk);
    let slot = ground().slot.0 / 1000;
    let west = r#"{"zones":["west"]}"#;
    desk.pass(slot / 2);
    offers(&mut desk);
    desk.pass(slot * 6 / 10);
    assert!(matches!(submit(&mut desk, "one", west), Reply::Refused(_)));
    desk.pass(slot / 2);
    let Reply::Job(one) = submit(&mut desk, "one", west) else {
        panic!("the market is gone");
    };
    // It is back: who came meanwhile is told.
    offers(&mut desk);
    assert_eq!(view(&mut desk, one.id).state, JobState::Failed);
}

#[test]
fn a_job_that_leaves_no_place_beside_those_at_work_is_refused_until_they_are_done() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    let mut both = ground();
    both.offers.push(both.offers[0].clone());
    both.offers[1].place.zone = "east-b".into();
    let ground = Some(both);
    let bills = Vec::new();
    tell(&mut desk, MarketTold { ground, bills });
    let known = |reply: &Reply| matches!(reply, Reply::Job(_));
    let first = submit(&mut desk, "first", r#"{"zones":["east-a"]}"#);
    assert!(known(&first));
    let Reply::Refused(refusal) = submit(&mut desk, "last", r#"{"zones":["east-b"]}"#) else {
        panic!("no machine is in both");
    };
    assert_eq!(refusal.code, RefusalCode::Conflict);
    assert!(refusal.message.contains("first in east-a"), "{refusal}");
    // Those without zones, and with some in common, are taken.
    assert!(known(&submit(&mut desk, "any", "{}")));
    assert!(known(&submit(&mut desk, "east", r#"{"zones":["east"]}"#)));
    let first = JobRef::Name(JobName::new("first").expect("a plain word is a name"));
    assert!(known(&desk.ask(Request::Cancel(first))));
    assert!(known(&submit(&mut desk, "last", r#"{"zones":["east-b"]}"#)));
}

#[test]
fn a_budget_below_the_cheapest_way_is_refused_once_the_work_is_known() {
    let mut desk = Desk::new(Stages::Fixed(1), 1, 1);
    offers(&mut desk);
    let Reply::Refused(refusal) = submit(&mut desk, "none", r#"{"budget_usd":0.09}"#) else {
        panic!("it does not pay a slot");
    };
    assert!(refusal.message.contains("at least 0.10"), "{refusal}");
    let inputs = || Inputs {
        // 100 rows of 100 tokens are ten slots of a machine.
        measure: Some(Box::new(Measure::of(vec![(100, 50); 100]))),
        ..Inputs::default()
    };
    for (name, usd, state) in [
        ("poor", 0.99, JobState::Failed),
        ("rich", 1.0, JobState::Queued),
    ] {
        let Reply::Job(job) = submit(&mut desk, name, &format!(r#"{{"budget_usd":{usd}}}"#)) else {
            panic!("its work is not known yet");
        };
        let (job, outcome) = (job.id, Ok(inputs()));
        desk.input(super::Input::Prepared { job, outcome });
        let view = view(&mut desk, job);
        assert_eq!(view.state, state, "{:?}", view.reason);
        if state == JobState::Failed {
            let reason = view.reason.expect("it says why");
            assert_eq!(reason.class, ReasonClass::UserError);
            assert!(
                reason.message.contains("at least 1.00 would do"),
                "{reason:?}"
            );
        }
    }
}

#[test]
fn a_job_shows_what_it_owes_where_there_is_a_market() {
    let (mut desk, job) = at_work(1, &["a"]);
    assert_eq!(view(&mut desk, job).money, None);
    let money = Money {
        spent: MicroUsd(7),
        saved: -1,
    };
    let nobody = shared::ids::JobId(99);
    tell(
        &mut desk,
        MarketTold {
            ground: None,
            bills: vec![(job, money), (nobody, money)],
        },
    );
    assert_eq!(view(&mut desk, job).money, Some(money));
    assert_eq!(desk.machine.market.owed(nobody), None, "it is no job");
}
