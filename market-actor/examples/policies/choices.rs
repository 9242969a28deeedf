//! What is chosen as jobs go by: the policy by a selection, the forecaster by what was earned with it.

use anyhow::Result;
use market_actor::backtest::earning::judged;
use market_actor::backtest::learn::{Manner, follow};
use market_actor::backtest::{Case, Optimum, Score};
use market_actor::forecast::choice::NEEDED;
use market_actor::forecast::record::Kind;
use market_actor::policy::Policy;
use market_actor::policy::foresight::outlook::Guess;
use market_actor::policy::horizon::Horizon;
use market_actor::select::pool::{Member, Source, prune, strongest};

use crate::DAY;

/// AR(1) as in the standard pool.
pub(crate) const fn drift() -> Source {
    Source::Autoregression { memory: 5 * DAY }
}

/// The policies whose forecasters are compared.
fn planners() -> [Horizon; 4] {
    let spread = |horizon| Horizon {
        spread: true,
        ..horizon
    };
    [
        Horizon::track(6),
        Horizon::cost_to_go(12),
        spread(Horizon::track(6)),
        spread(Horizon::chain(4)),
    ]
}

/// The foresights that are compared, persistence first, what sees the future last.
fn foresights(horizon: &Horizon) -> Vec<Source> {
    let forecast = |forecaster, guess| Source::Forecast {
        forecaster,
        day: DAY,
        guess,
    };
    let mut sources = vec![Source::Persistence, drift()];
    for guess in [Guess::Median, Guess::Mean] {
        // What stays has no other guess; its bands count only where capacities are spread.
        if horizon.spread {
            sources.push(forecast(Kind::Persistence, guess));
        }
        sources.push(forecast(Kind::Ensemble, guess));
        sources.push(forecast(Kind::Proven, guess));
    }
    sources.push(Source::Perfect);
    sources
}

/// All members that are compared by their forecasters.
pub(crate) fn compared() -> Vec<Member> {
    let of = |horizon: &Horizon| -> Vec<Member> {
        let policy = Policy::Horizon(*horizon);
        let sources = foresights(horizon).into_iter();
        sources.map(|source| Member { policy, source }).collect()
    };
    planners().iter().flat_map(of).collect()
}

/// Lines on policies whose forecaster is chosen by utility.
pub(crate) fn forecasters(
    case: &Case,
    members: &[Member],
    scores: &[Vec<Score>],
    past: &[Vec<Score>],
    best: &[Optimum],
) -> Vec<String> {
    let top: f64 = best.iter().map(|best| best.found.utility as f64).sum();
    let mut lines = Vec::new();
    for horizon in planners() {
        let policy = Policy::Horizon(horizon);
        let sources: Vec<Source> = foresights(&horizon)
            .into_iter()
            .filter(|source| *source != Source::Perfect)
            .collect();
        let at = |source: &Source| {
            let wanted = Member {
                policy,
                source: *source,
            };
            let found = members.iter().position(|member| *member == wanted);
            found.expect("what is compared is among the members")
        };
        let places: Vec<usize> = sources.iter().map(at).collect();
        let of = |all: &'_ [Vec<Score>]| -> Vec<Vec<Score>> {
            places.iter().map(|at| all[*at].clone()).collect()
        };
        let (scores, past) = (of(scores), of(past));
        let scores: Vec<&[Score]> = scores.iter().map(Vec::as_slice).collect();
        let past: Vec<&[Score]> = past.iter().map(Vec::as_slice).collect();
        for (name, needed) in [("beyond chance", NEEDED), ("on average", 0.0)] {
            let judged = judged(case, &scores, &past, needed);
            let used: Vec<String> = sources
                .iter()
                .enumerate()
                .map(|(at, source)| {
                    let times = judged.used.iter().filter(|used| **used == at).count();
                    (times, source.word())
                })
                .filter(|(times, _)| *times > 0)
                .map(|(times, word)| format!("{word} {times}"))
                .collect();
            lines.push(format!(
                "{policy}, forecaster that earned more {name}: {:.3} of optimum; used: {}",
                judged.earned.iter().sum::<f64>() / top,
                used.join(", ")
            ));
        }
    }
    lines
}

/// Lines on selections among the pool.
pub(crate) fn selections(
    case: &Case,
    pool: &[Member],
    scores: &[Vec<Score>],
    past: &[Vec<Score>],
    best: &[Optimum],
) -> Result<Vec<String>> {
    let top: f64 = best.iter().map(|best| best.found.utility as f64).sum();
    let mut lines = Vec::new();
    // Pruned by the rehearsals and the first half of the episodes, judged over the second.
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for (scores, count) in [(&past, case.rehearsals.len()), (&scores, best.len() / 2)] {
        for at in 0..count {
            let round = scores[..pool.len()]
                .iter()
                .map(|own| own[at].utility as f64);
            rounds.push(round.collect());
        }
    }
    let kept = strongest(&rounds, &prune(&rounds), 8);
    // What the second half is measured by, whatever was pruned.
    let half = best.len() / 2;
    let mut best_fixed = (f64::NEG_INFINITY, String::new());
    for (member, scores) in pool.iter().zip(scores) {
        let sum: f64 = scores[half..]
            .iter()
            .map(|score| score.utility as f64)
            .sum();
        if sum > best_fixed.0 {
            best_fixed = (sum, member.name());
        }
    }
    let few: Vec<Member> = kept.iter().map(|&at| pool[at]).collect();
    let of = |all: &[Vec<Score>]| -> Vec<Vec<Score>> {
        kept.iter().map(|&at| all[at].clone()).collect()
    };
    let (few_scores, few_past) = (of(scores), of(past));
    for (name, members, scores, past) in [
        (
            "whole pool",
            pool,
            &scores[..pool.len()],
            &past[..pool.len()],
        ),
        ("pruned pool", &few[..], &few_scores[..], &few_past[..]),
    ] {
        for (manner, by_supply, keep) in [
            ("all kept", false, 1.0),
            (".97 kept", false, 0.97),
            (".9 kept", false, 0.9),
            ("all kept, by supply", true, 1.0),
        ] {
            let learned = follow(
                case,
                members,
                scores,
                past,
                Manner {
                    keep,
                    by_supply,
                    seed: 1,
                },
            )?;
            let earned: f64 = learned.expected.iter().sum();
            let second: f64 = learned.expected[half..].iter().sum();
            lines.push(format!(
                "selection, {manner}, {name} of {}: {:.3} of optimum, {:.3} of its best fixed; second half {:.3} of the best fixed of all, {}",
                members.len(),
                earned / top,
                learned.whole,
                second / best_fixed.0,
                best_fixed.1
            ));
        }
    }
    Ok(lines)
}
