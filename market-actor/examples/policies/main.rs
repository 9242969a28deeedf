//! Back-test of all policies on recorded markets: a table for each cell, and JSON.
//!
//! ```text
//! cargo run --release -p market-actor --example policies -- --traces DIR [--threads N] [--json FILE] [--scores DIR]
//!     [--cell NAME] [--skip SLOTS] [--price start|highest|mean] [--net least|lock]
//!     [--forecasts yes|no]
//! ```
//!
//! `DIR` holds `skypilot-spot-traces` and `aws-spot-price-2015`. A market of capacity and price from two places is called
//! a composite. The numbers are the same for any number of threads.

mod choices;
mod markets;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, bail};
use market_actor::backtest::run::{gap, optima, rehearsed, scores};
use market_actor::backtest::table::text;
use market_actor::backtest::{Case, Optimum, Score, Summary};
use market_actor::feed::resample::PriceRule;
use market_actor::policy::Policy;
use market_actor::policy::horizon::Horizon;
use market_actor::policy::net::Net;
use market_actor::select::pool::{Member, Source, standard};

/// Slots of a day.
const DAY: u32 = 48;

struct Options {
    traces: PathBuf,
    threads: usize,
    json: Option<PathBuf>,
    /// Folder for what each member earned in each episode.
    scores: Option<PathBuf>,
    only: Option<String>,
    /// Slots of the price files that are left out at their beginning.
    skip: usize,
    /// Which price stands for a slot.
    price: PriceRule,
    net: Net,
    /// Whether forecasters look at the markets: most of the time goes there.
    forecasts: bool,
}

fn main() -> Result<()> {
    let options = options()?;
    let mut report = Vec::new();
    for case in markets::cases(&options)? {
        if options
            .only
            .as_ref()
            .is_some_and(|only| !case.name.contains(only.as_str()))
        {
            continue;
        }
        let (rows, lines) = cell(&case, &options)?;
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
        scores: None,
        only: None,
        skip: 827,
        price: PriceRule::First,
        net: Net::Least,
        forecasts: true,
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
            "--scores" => options.scores = Some(value.into()),
            "--cell" => options.only = Some(value),
            "--price" if value == "highest" => options.price = PriceRule::Highest,
            "--price" if value == "start" => options.price = PriceRule::First,
            "--price" if value == "mean" => options.price = PriceRule::TimeWeighted,
            "--skip" => options.skip = value.parse()?,
            "--forecasts" if value == "yes" => options.forecasts = true,
            "--forecasts" if value == "no" => options.forecasts = false,
            "--net" if value == "lock" => options.net = Net::Lock,
            "--net" if value == "least" => options.net = Net::Least,
            _ => bail!(
                "{word} {value} is unknown: --traces DIR, --threads N, --json FILE, --scores DIR, --cell NAME, --skip SLOTS, --price start|highest|mean, --net least|lock, --forecasts yes|no"
            ),
        }
    }
    if !options.traces.is_dir() {
        bail!("--traces DIR names the folder with skypilot-spot-traces and aws-spot-price-2015");
    }
    Ok(options)
}

/// The standard pool, and members for comparison: some see the future, some have forecasts.
fn members(forecasts: bool) -> (Vec<Member>, Vec<Member>) {
    let mut others = Vec::new();
    let noise = |error| Source::Noisy { error, seed: 1 };
    for source in [Source::Perfect, noise(0.3), noise(0.5), noise(1.0)] {
        for horizon in [
            Horizon::track(6),
            Horizon::cost_to_go(12),
            Horizon::chain(6),
        ] {
            let policy = Policy::Horizon(horizon);
            others.push(Member { policy, source });
        }
    }
    for source in [Source::Perfect, choices::drift()] {
        let averaged = Horizon {
            commitment: 3,
            ..Horizon::track(6)
        };
        let policy = Policy::Horizon(averaged);
        others.push(Member { policy, source });
    }
    let mut pool = vec![Member::plain(Policy::OnDemand)];
    pool.extend(standard(DAY));
    for member in choices::compared() {
        if forecasts && !pool.contains(&member) && !others.contains(&member) {
            others.push(member);
        }
    }
    (others, pool)
}

/// One piece of work: the optimum, or a member.
enum Done {
    Best(Vec<Optimum>),
    Member(Vec<Score>, Vec<Score>),
}

/// A cell of the report.
fn cell(case: &Case, options: &Options) -> Result<(Vec<Summary>, Vec<String>)> {
    let (others, pool) = members(options.forecasts);
    let all: Vec<Member> = pool.iter().chain(&others).copied().collect();
    let mut done = parallel(all.len() + 1, options.threads, |task| match task {
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
    if let Some(folder) = &options.scores {
        keep(folder, case, &all, &scores, &past, &best)?;
    }
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
    lines.extend(choices::selections(case, &pool, &scores, &past, &best)?);
    if options.forecasts {
        lines.extend(choices::forecasters(case, &all, &scores, &past, &best));
    }
    Ok((rows, lines))
}

/// Writes what each member earned in each rehearsal and each episode.
fn keep(
    folder: &Path,
    case: &Case,
    members: &[Member],
    scores: &[Vec<Score>],
    past: &[Vec<Score>],
    best: &[Optimum],
) -> Result<()> {
    let earned = |scores: &[Score]| -> Vec<i64> { scores.iter().map(|s| s.utility).collect() };
    let of = |all: &[Vec<Score>]| -> Vec<Vec<i64>> { all.iter().map(|own| earned(own)).collect() };
    let best: Vec<i64> = best.iter().map(|best| best.found.utility).collect();
    let names: Vec<String> = members.iter().map(Member::name).collect();
    let text = serde_json::json!({
        "case": case.name, "members": names, "starts": case.starts, "rehearsals": case.rehearsals,
        "value": case.problem.value.0, "scores": of(scores), "rehearsed": of(past), "optimum": best,
    });
    let name = case.name.replace(['/', ' '], "_");
    std::fs::write(folder.join(name + ".json"), text.to_string())?;
    Ok(())
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
