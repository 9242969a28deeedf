//! Back-test of all policies on recorded markets: a table for each cell, and JSON.
//!
//! ```text
//! cargo run --release -p market-actor --example policies -- --traces DIR [--threads N] [--json FILE] [--cell NAME]
//!     [--skip SLOTS] [--price start|highest] [--net least|lock]
//! ```
//!
//! `DIR` holds `skypilot-spot-traces` and `aws-spot-price-2015`. A market of capacity and price from two places is called
//! a composite. The numbers are the same for any number of threads.

mod traces;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail};
use market_actor::backtest::learn::follow;
use market_actor::backtest::run::{gap, optima, rehearsed, scores};
use market_actor::backtest::table::text;
use market_actor::backtest::{Case, Optimum, Score, Summary};
use market_actor::market::Market;
use market_actor::policy::horizon::Horizon;
use market_actor::policy::net::Net;
use market_actor::policy::{Policy, Safety};
use market_actor::problem::throughput::Throughput;
use market_actor::problem::{Problem, Reconfigure};
use market_actor::select::pool::{Member, Source, prune, standard, strongest};
use shared::units::MicroUsd;

/// Slots of a day.
const DAY: u32 = 48;

struct Options {
    traces: PathBuf,
    threads: usize,
    json: Option<PathBuf>,
    only: Option<String>,
    /// Slots of the price files that are left out at their beginning.
    skip: usize,
    /// Whether the price of a slot is the highest in it, not that at its start.
    highest: bool,
    net: Net,
}

fn main() -> Result<()> {
    let options = options()?;
    let mut report = Vec::new();
    for case in cases(&options)? {
        if options
            .only
            .as_ref()
            .is_some_and(|only| !case.name.contains(only.as_str()))
        {
            continue;
        }
        let (rows, lines) = cell(&case, options.threads)?;
        println!("{}", text(&case.name, &rows));
        for line in &lines {
            println!("{line}");
        }
        println!();
        report.push(serde_json::json!({ "case": case.name, "rows": rows, "selection": lines }));
    }
    if let Some(path) = options.json {
        std::fs::write(&path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}

fn options() -> Result<Options> {
    let mut options = Options {
        traces: PathBuf::new(),
        threads: 1,
        json: None,
        only: None,
        skip: 827,
        highest: false,
        net: Net::Least,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--traces" => options.traces = value.into(),
            "--threads" => options.threads = value.parse()?,
            "--json" => options.json = Some(value.into()),
            "--cell" => options.only = Some(value),
            "--price" if value == "highest" => options.highest = true,
            "--price" if value == "start" => options.highest = false,
            "--skip" => options.skip = value.parse()?,
            "--net" if value == "lock" => options.net = Net::Lock,
            "--net" if value == "least" => options.net = Net::Least,
            _ => bail!(
                "{word} {value} is unknown: --traces DIR, --threads N, --json FILE, --cell NAME, --skip SLOTS, --price start|highest, --net least|lock"
            ),
        }
    }
    if !options.traces.is_dir() {
        bail!("--traces DIR names the folder with skypilot-spot-traces and aws-spot-price-2015");
    }
    Ok(options)
}

/// Markets with the most machines that a job uses there.
fn markets(options: &Options) -> Result<Vec<(Market, u32)>> {
    let traces = &options.traces;
    let sky = traces.join("skypilot-spot-traces");
    let large = sky.join("availability/16-node/aws-08-27-2023");
    let west = traces::capacity(&large.join("us-west-2a_v100_1.json"))?;
    let east = traces::capacity(&large.join("us-east-2b_v100_1.json"))?;
    let small = sky.join("preemption/4-node/aws-08-03-2023/us-west-2c_v100_1.json");
    let small = traces::capacity(&small)?;
    let price = |zone: &str, count| {
        let path = traces.join(format!("aws-spot-price-2015/g2.2xlarge-us-east-{zone}.csv"));
        traces::prices(&path, 0.65, options.skip, count, options.highest)
    };
    Ok(vec![
        (
            traces::market(
                "composite west-2a x east-1e",
                &west,
                &price("1e", west.len())?,
            ),
            12,
        ),
        (
            traces::market(
                "composite east-2b x east-1a",
                &east,
                &price("1a", east.len())?,
            ),
            12,
        ),
        (
            traces::market("west-2a, price .35", &west, &vec![0.35; west.len()]),
            12,
        ),
        (
            traces::market(
                "4-node west-2c, price .30",
                &small,
                &vec![0.918 / 3.06; small.len()],
            ),
            4,
        ),
    ])
}

fn cases(options: &Options) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (market, most) in markets(options)? {
        for (curve, alpha, beta) in [("H=n", 1.0, 0.0), ("concave", 0.72, 2.0)] {
            for load in [0.3, 0.5, 0.7] {
                let work = load * f64::from(most) * 24.0;
                let beta = beta * f64::from(most) / 12.0;
                let problem = Problem {
                    work,
                    soft_deadline: 24,
                    hard_deadline: 36,
                    fewest: 1,
                    most,
                    throughput: Throughput::Affine { alpha, beta },
                    reconfigure: Reconfigure {
                        grow: 0.9,
                        shrink: 0.95,
                        ..Reconfigure::default()
                    },
                    value: MicroUsd((1.5e6 * work).round() as u64),
                    reclaims: false,
                };
                problem.check()?;
                let step = if load < 0.4 { 6 } else { 8 };
                let first = (5 * DAY as usize).min(market.slots.len() / 3);
                cases.push(Case {
                    name: format!("{}, {curve}, load {load}", market.pool.provider),
                    starts: (first..=market.slots.len().saturating_sub(24))
                        .step_by(step)
                        .collect(),
                    rehearsals: (DAY as usize..first.saturating_sub(36))
                        .step_by(4)
                        .collect(),
                    cell: 0.05,
                    market: market.clone(),
                    problem,
                    safety: Safety {
                        net: options.net,
                        margin: 0,
                    },
                });
            }
        }
    }
    Ok(cases)
}

/// Members that see the future, for comparison, and the standard pool.
fn members() -> (Vec<Member>, Vec<Member>) {
    let mut seers = Vec::new();
    let noise = |error| Source::Noisy { error, seed: 1 };
    for source in [Source::Perfect, noise(0.3), noise(0.5), noise(1.0)] {
        for horizon in [
            Horizon::track(6),
            Horizon::cost_to_go(12),
            Horizon::chain(6),
        ] {
            let policy = Policy::Horizon(horizon);
            seers.push(Member { policy, source });
        }
    }
    let averaged = Horizon {
        commitment: 3,
        ..Horizon::track(6)
    };
    seers.push(Member {
        policy: Policy::Horizon(averaged),
        source: Source::Perfect,
    });
    let mut pool = vec![Member::plain(Policy::OnDemand)];
    pool.extend(standard(DAY));
    (seers, pool)
}

/// One piece of work: the optimum, or a member.
enum Done {
    Best(Vec<Optimum>),
    Member(Vec<Score>, Vec<Score>),
}

/// A cell of the report.
fn cell(case: &Case, threads: usize) -> Result<(Vec<Summary>, Vec<String>)> {
    let (seers, pool) = members();
    let all: Vec<Member> = pool.iter().chain(&seers).copied().collect();
    let mut done = parallel(all.len() + 1, threads, |task| match task {
        0 => Done::Best(optima(case)),
        _ => Done::Member(
            scores(case, &all[task - 1]),
            rehearsed(case, &all[task - 1]),
        ),
    })
    .into_iter();
    let Some(Done::Best(best)) = done.next() else {
        bail!("the optimum is the first task");
    };
    let (scores, past): (Vec<Vec<Score>>, Vec<Vec<Score>>) = done
        .filter_map(|done| match done {
            Done::Member(scores, past) => Some((scores, past)),
            Done::Best(_) => None,
        })
        .unzip();
    let rows: Vec<Summary> = all
        .iter()
        .zip(&scores)
        .map(|(member, scores)| Summary::of(&member.name(), scores, &best))
        .collect();
    let top: f64 = best.iter().map(|best| best.found.utility as f64).sum();
    let mut lines = vec![format!(
        "episodes {}, optimum {:.2} $, grid error at most {:.3} %",
        best.len(),
        top / 1e6 / best.len().max(1) as f64,
        100.0 * gap(&best)
    )];
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
    for (member, scores) in pool.iter().zip(&scores) {
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
    let (few_scores, few_past) = (of(&scores), of(&past));
    for (name, members, scores, past) in [
        (
            "whole pool",
            &pool,
            &scores[..pool.len()],
            &past[..pool.len()],
        ),
        ("pruned pool", &few, &few_scores[..], &few_past[..]),
    ] {
        for boost in [1.0, 4.0, 16.0] {
            let learned = follow(case, members, scores, past, boost, 1)?;
            let earned: f64 = learned.expected.iter().sum();
            let second: f64 = learned.expected[half..].iter().sum();
            lines.push(format!(
                "selection x{boost}, {name} of {}: {:.3} of optimum, {:.3} of its best fixed; second half {:.3} of the best fixed of all, {}",
                members.len(),
                earned / top,
                learned.whole,
                second / best_fixed.0,
                best_fixed.1
            ));
        }
    }
    Ok((rows, lines))
}

/// Runs tasks on threads and returns what they gave, in the order of the tasks.
fn parallel<T: Send>(tasks: usize, threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    if task >= tasks {
                        break;
                    }
                    let result = work(task);
                    results
                        .lock()
                        .expect("no task panicked")
                        .push((task, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no task panicked");
    results.sort_by_key(|(task, _)| *task);
    results.into_iter().map(|(_, result)| result).collect()
}
