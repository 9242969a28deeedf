//! Figures of a small case.

use super::*;
use crate::backtest::earning::judged;
use crate::backtest::learn::{Manner, follow};
use crate::backtest::run::{gap, optima, rehearsed, scores};
use crate::backtest::table::text;
use crate::forecast::choice::NEEDED;
use crate::policy::Policy;
use crate::policy::horizon::Horizon;
use crate::problem::episode::tests::market;
use crate::problem::tests::trial;
use crate::problem::throughput::Throughput;
use crate::select::pool::{Library, Member, Source};
use crate::select::proof::FEWEST;
use shared::random::{Domain, Stream};

/// A pool that comes and goes, with a price that wanders.
fn case(load: f64, throughput: Throughput, step: usize) -> Case {
    let mut slots = Vec::new();
    let (mut count, mut price) = (8.0f64, 0.4f64);
    for at in 0..400u32 {
        let stream = Stream::new(11, Domain::Policy, [at, 7, 7]);
        if stream.uniform(0) < 0.15 {
            count = (f64::from(stream.uniform(1)) * 24.0 - 8.0).clamp(0.0, 16.0);
        }
        price = (price + 0.05 * f64::from(stream.normal(4))).clamp(0.1, 1.3);
        slots.push((price, count as u32));
    }
    Case {
        name: "wandering".into(),
        market: market(&slots, 1.0),
        library: Library::new(),
        problem: trial(load, throughput),
        starts: (100..360).step_by(step).collect(),
        rehearsals: Vec::new(),
        cell: 0.02,
        safety: Safety::default(),
    }
}

fn concave() -> Throughput {
    Throughput::Affine {
        alpha: 0.72,
        beta: 2.0,
    }
}

fn all() -> Vec<Member> {
    let mut members = crate::select::pool::standard(48);
    for source in [
        Source::Perfect,
        Source::Noisy {
            error: 0.5,
            seed: 1,
        },
    ] {
        for commitment in [1, 3] {
            let horizon = Horizon {
                commitment,
                ..Horizon::track(6)
            };
            let policy = Policy::Horizon(horizon);
            members.push(Member { policy, source });
        }
    }
    members
}

#[test]
fn no_policy_beats_the_bound_or_misses_a_deadline() {
    for (load, curve) in [(0.5, Throughput::per_machine(1.0)), (0.8, concave())] {
        let case = case(load, curve, 120);
        let best = optima(&case);
        assert!(gap(&best) < 0.01, "{}", gap(&best));
        for member in all() {
            let scores = scores(&case, &member);
            for (score, best) in scores.iter().zip(&best) {
                assert!(
                    score.utility as f64 <= best.bound + 1.0,
                    "{}",
                    member.name()
                );
                assert!(!score.missed, "{} missed", member.name());
                assert_eq!(
                    score.utility,
                    case.problem.value.0 as i64 - score.spent as i64
                );
            }
        }
    }
}

#[test]
fn planning_with_foresight_beats_waiting_where_machines_are_worth_less_together() {
    let case = case(0.6, concave(), 37);
    let best = optima(&case);
    let share = |policy, source| {
        let scores = scores(&case, &Member { policy, source });
        Summary::of("", &scores, &best).share
    };
    let planned = share(Policy::Horizon(Horizon::track(6)), Source::Perfect);
    let maximal = share(Policy::Maximal { limit: 1.0 }, Source::Perfect);
    let on_demand = share(Policy::OnDemand, Source::Perfect);
    assert!(planned > maximal + 0.02, "{planned} {maximal}");
    assert!(
        maximal > on_demand && planned > 0.9,
        "{planned} {maximal} {on_demand}"
    );
}

#[test]
fn a_selection_learns_only_from_what_is_over() {
    let case = case(0.6, concave(), 37);
    let members = [
        Member::plain(Policy::OnDemand),
        Member::plain(Policy::Uniform { mixed: true }),
    ];
    let scores: Vec<Vec<Score>> = members.iter().map(|member| scores(&case, member)).collect();
    let none = vec![Vec::new(); 2];
    let manner = Manner {
        keep: 1.0,
        by_supply: false,
        seed: 1,
    };
    let learned = follow(&case, &members, &scores, &none, manner).unwrap();
    let even = (scores[0][0].utility + scores[1][0].utility) as f64 / 2.0;
    assert!((learned.expected[0] - even).abs() < 1e-3);
    assert_eq!(learned.best, 1);
    assert!(learned.second_half <= 1.0 && learned.second_half >= learned.whole - 0.05);
    // What was rehearsed is known before the first job; a rehearsal that is not over by then is not.
    let mut case = case;
    case.rehearsals = vec![10, 40, 99];
    let past: Vec<Vec<Score>> = members
        .iter()
        .map(|member| rehearsed(&case, member))
        .collect();
    let ready = follow(&case, &members, &scores, &past, manner).unwrap();
    assert!(ready.expected[0] > learned.expected[0]);
    case.rehearsals = vec![99];
    let last: Vec<Vec<Score>> = past.iter().map(|scores| scores[2..].to_vec()).collect();
    let unready = follow(&case, &members, &scores, &last, manner).unwrap();
    assert_eq!(unready.expected, learned.expected);
    // Of nothing there is no share.
    let mut idle = scores.clone();
    idle.iter_mut()
        .flatten()
        .for_each(|score| score.utility = 0);
    case.rehearsals.clear();
    let nothing = follow(&case, &members, &idle, &none, manner).unwrap();
    assert_eq!((nothing.second_half, nothing.whole), (0.0, 0.0));
}

#[test]
fn a_forecaster_is_used_only_after_it_proved_itself_by_utility() {
    let mut case = case(0.6, concave(), 20);
    let score = |utility: f64| Score {
        utility: utility as i64,
        spent: 0,
        waste: 0,
        missed: false,
        reconfigurations: 0,
    };
    let count = case.starts.len();
    assert!(count > FEWEST);
    let base: Vec<Score> = (0..count).map(|at| score(at as f64 * 7.0)).collect();
    let better: Vec<Score> = (0..count).map(|at| score(at as f64 * 7.0 + 5.0)).collect();
    let judge = |case: &Case, past: [&[Score]; 2]| {
        judged(case, &[&base[..], &better[..]], &past, NEEDED).used
    };
    // An episode lasts 36 slots and the next begins after 20: that of index e knows e - 1 of those before it.
    let used = judge(&case, [&[], &[]]);
    assert_eq!(used, vec![0; count], "at most {} are over", count - 2);
    case.rehearsals = (0..FEWEST).map(|at| 4 * at).collect();
    let past: Vec<Score> = (0..FEWEST).map(|_| score(0.0)).collect();
    let ahead: Vec<Score> = (0..FEWEST).map(|_| score(9.0)).collect();
    // The last rehearsals are over at slot 80, before the first start at 100.
    let used = judge(&case, [&past, &ahead]);
    assert_eq!(used, vec![1; count]);
    let used = judge(&case, [&ahead, &past]);
    assert_eq!(used[0], 0);
}

#[test]
fn a_table_has_a_line_for_each_policy() {
    let row = Summary {
        name: "on-demand".into(),
        share: 0.5061,
        cost: 147.0,
        waste: 0.0123,
        missed: 0,
        reconfigurations: 1.0,
        tail: -80.04,
    };
    let table = text("trial", &[row]);
    assert_eq!(table.lines().count(), 3);
    assert!(
        table.contains("on-demand       0.506   147.0      1.2       0      1.0      -80.0"),
        "{table}"
    );
    assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.05), 1.0);
    assert_eq!(quantile(Vec::new(), 0.05), 0.0);
}
