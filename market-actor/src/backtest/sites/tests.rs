use super::*;
use crate::policy::Policy;
use crate::policy::horizon::Horizon;
use crate::problem::episode::tests::market;
use crate::problem::tests::trial;
use crate::problem::throughput::Throughput;

/// Spot that comes and goes in turns, so that one of two zones always has some.
fn turns(zone: &str, first: bool, length: usize) -> Market {
    let slots: Vec<(f64, u32)> = (0..96)
        .map(|slot| {
            (
                0.3,
                if (slot / length).is_multiple_of(2) == first {
                    4
                } else {
                    0
                },
            )
        })
        .collect();
    let mut market = market(&slots, 1.0);
    market.pool.zone = zone.into();
    market.pool.region = "east".into();
    market
}

fn journey(tolls: Tolls) -> Journey {
    let mut problem = trial(0.5, Throughput::per_machine(1.0));
    (problem.most, problem.work) = (4, 40.0);
    (problem.soft_deadline, problem.hard_deadline) = (16, 24);
    problem.value = MicroUsd(60_000_000);
    Journey {
        markets: vec![turns("a", true, 4), turns("b", false, 4)],
        problem,
        starts: (8..72).step_by(5).collect(),
        tolls,
        hysteresis: MicroUsd(0),
        cells: 400,
        safety: Safety::default(),
    }
}

fn tolls(share: f64, zone: u64) -> Tolls {
    Tolls {
        share,
        zone: MicroUsd(zone),
        region: MicroUsd(zone),
        cloud: MicroUsd(zone),
    }
}

fn roams(source: Source) -> Roamer {
    Roamer::Roams { source }
}

fn earned(trips: &[Trip]) -> i64 {
    trips.iter().map(|trip| trip.score.utility).sum()
}

#[test]
fn who_moves_where_spot_is_earns_more_than_who_stays_and_knowing_helps() {
    let journey = journey(tolls(0.8, 100_000));
    let horizon = Member {
        policy: Policy::Horizon(Horizon::track(6)),
        source: Source::Persistence,
    };
    let knows = trips(&journey, &roams(Source::Perfect));
    let goes = trips(&journey, &roams(Source::Persistence));
    let stays: Vec<i64> = (0..2)
        .map(|site| {
            let member = horizon;
            earned(&trips(&journey, &Roamer::Stays { site, member }))
        })
        .collect();
    let settles = trips(&journey, &Roamer::Settles { member: horizon });
    assert!(earned(&goes) > stays[0].max(stays[1]), "{stays:?}");
    assert!(earned(&knows) >= earned(&goes));
    assert!(earned(&knows) > earned(&settles));
    assert!(knows.iter().all(|trip| !trip.score.missed));
    assert!(goes.iter().any(|trip| trip.moves > 0));
    for trip in knows.iter().chain(&goes) {
        assert_eq!(
            trip.egress,
            MicroUsd(u64::from(trip.moves) * 100_000),
            "SI-1"
        );
        let value = journey.problem.value.0 as i64;
        assert_eq!(trip.score.utility, value - trip.score.spent as i64);
    }
}

#[test]
fn si_2_a_toll_that_is_too_dear_is_not_paid_and_one_site_is_never_left() {
    let dear = journey(tolls(0.8, 50_000_000));
    let still = |trips: &[Trip]| trips.iter().all(|trip| trip.moves == 0);
    assert!(still(&trips(&dear, &roams(Source::Perfect))));
    assert!(still(&trips(&dear, &roams(Source::Persistence))));
    let mut shy = journey(tolls(0.8, 0));
    shy.hysteresis = MicroUsd(50_000_000);
    assert!(still(&trips(&shy, &roams(Source::Persistence))));
    let mut alone = journey(tolls(0.8, 0));
    alone.markets.truncate(1);
    assert!(still(&trips(&alone, &roams(Source::Perfect))));
}

#[test]
fn net_1_no_deadline_is_missed_by_moving() {
    // Little slack, moves that compute nothing, and spot that is never where it was.
    let mut tight = journey(tolls(0.0, 0));
    tight.problem.work = 56.0;
    tight.markets = vec![turns("a", true, 1), turns("b", false, 1)];
    for source in [
        Source::Persistence,
        Source::Autoregression { memory: 48 },
        Source::Perfect,
    ] {
        let trips = trips(&tight, &roams(source));
        assert!(trips.iter().all(|trip| !trip.score.missed), "{source:?}");
    }
}

#[test]
fn tolls_are_those_of_the_border_that_is_crossed() {
    let tolls = Tolls {
        share: 0.5,
        zone: MicroUsd(1),
        region: MicroUsd(2),
        cloud: MicroUsd(3),
    };
    let pool = |provider: &str, region: &str, zone: &str| Pool {
        provider: provider.into(),
        region: region.into(),
        zone: zone.into(),
        machine: "m".into(),
    };
    let from = pool("aws", "east", "a");
    for (to, egress) in [
        (pool("aws", "east", "b"), 1),
        (pool("aws", "west", "a"), 2),
        (pool("gcp", "east", "a"), 3),
    ] {
        assert_eq!(tolls.between(&from, &to).egress, MicroUsd(egress));
    }
}

#[test]
fn who_knows_the_future_is_not_held_back_by_hysteresis() {
    let mut shy = journey(tolls(0.8, 0));
    shy.hysteresis = MicroUsd(50_000_000);
    let moved = |source| {
        trips(&shy, &roams(source))
            .iter()
            .any(|trip| trip.moves > 0)
    };
    assert!(moved(Source::Perfect));
    assert!(!moved(Source::Persistence));
}
