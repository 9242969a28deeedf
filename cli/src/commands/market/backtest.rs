//! `spotmux market backtest`: policies through recorded markets, and the best that could have been done.

use std::collections::BTreeSet;
use std::thread;

use market_actor::backtest::cell::{self, Shape};
use market_actor::backtest::learn::{Learned, Manner, follow};
use market_actor::backtest::run::{gap, optima, rehearsed, scores};
use market_actor::backtest::table;
use market_actor::backtest::{Case, Optimum, Score, Summary};
use market_actor::plot::curves::Curves;
use market_actor::policy::Safety;
use market_actor::select::pool::{Member, standard};
use serde::Serialize;

use super::players::{Players, SELECTION, players};
use super::{draw, say_assumed, together};
use crate::args::BacktestArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::markets::shape::shapes;
use crate::markets::source::{Recorded, read};
use crate::markets::threads::parallel;
use crate::render::Output;

/// Deadlines of the picture, over that of the job.
const DEADLINES: [f64; 6] = [0.75, 1.0, 1.25, 1.5, 2.0, 3.0];

/// A cell of the report.
#[derive(Serialize)]
struct Cell {
    cell: String,
    episodes: usize,
    slot_minutes: f64,
    optimum_usd: f64,
    /// How far the oracle's grid can be wrong, as a share.
    optimum_gap: f64,
    policies: Vec<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selection: Option<Selected>,
    assumed: Vec<String>,
}

/// How a policy did that is learned.
#[derive(Serialize)]
struct Selected {
    members: usize,
    /// The member that earns most over the second half.
    best: String,
    /// What the chances earn over the second half, as a share of that member's.
    second_half: f64,
    /// The same over all episodes.
    whole: f64,
}

/// Runs the command.
pub(super) fn run(args: &BacktestArgs, output: &Output) -> Result<Exit, Failure> {
    let shapes = shapes(&args.shape)?;
    let most = shapes
        .iter()
        .map(|(_, shape)| shape.most)
        .max()
        .unwrap_or(1);
    let threads = args
        .threads
        .or_else(|| thread::available_parallelism().ok().map(Into::into))
        .unwrap_or(1);
    let all = read(&args.trace, most)?;
    if args.together.together {
        return together::run(args, &shapes, &all, threads, output);
    }
    for recorded in &all {
        say_assumed(recorded, output);
        for (name, shape) in &shapes {
            let name = format!("{}, {name}", recorded.name);
            let case = case(name, recorded, shape, args.every)?;
            let players = players(args, cell::day(&case.market))?;
            let (cell, text) = played(&case, &players, threads, &recorded.assumed)?;
            output.result(&cell, &text)?;
        }
    }
    if let (Some(path), Some(recorded), Some((name, shape))) =
        (&args.plot, all.first(), shapes.first())
    {
        let title = format!("{}, {name}: cost by deadline", recorded.name);
        let lines = by_deadline(args, recorded, shape, threads)?;
        let picture = Curves {
            title: &title,
            across: "slots up to the deadline",
            upwards: "mean cost of a job, USD",
            lines: &lines,
        };
        draw(path, &picture.svg(), output)?;
    }
    Ok(Exit::Done)
}

fn case(name: String, recorded: &Recorded, shape: &Shape, every: usize) -> Result<Case, Failure> {
    let safety = Safety::default();
    let case =
        cell::case(name, recorded.market.clone(), shape, every, safety).or_exit(Exit::BadInput)?;
    if case.starts.is_empty() {
        let message = format!(
            "{}: {} slots are too few for a job of {} slots: give a longer trace or a shorter --slot",
            recorded.name,
            case.market.slots.len(),
            case.problem.soft_deadline
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    Ok(case)
}

/// One piece of work: the optimum, or a member in episodes and rehearsals.
enum Done {
    Best(Vec<Optimum>),
    Member(Vec<Score>, Vec<Score>),
}

fn played(
    case: &Case,
    players: &Players,
    threads: usize,
    assumed: &[String],
) -> Result<(Cell, String), Failure> {
    let pool = if players.learns {
        standard(cell::day(&case.market).max(12))
    } else {
        Vec::new()
    };
    let mut all = pool.clone();
    for member in &players.members {
        if !all.contains(member) {
            all.push(*member);
        }
    }
    // The oracle takes longest: it goes first.
    let done = parallel(all.len() + 1, threads, |task| match task.checked_sub(1) {
        None => Done::Best(optima(case)),
        Some(at) => {
            let past = if at < pool.len() {
                rehearsed(case, &all[at])
            } else {
                Vec::new()
            };
            Done::Member(scores(case, &all[at]), past)
        }
    });
    let (mut best, mut earned, mut past) = (Vec::new(), Vec::new(), Vec::new());
    for one in done {
        match one {
            Done::Best(optima) => best = optima,
            Done::Member(scores, rehearsed) => {
                earned.push(scores);
                past.push(rehearsed);
            }
        }
    }
    let mut rows = Vec::new();
    for member in &players.members {
        let at = all.iter().position(|own| own == member).unwrap_or_default();
        rows.push(Summary::of(&member.name(), &earned[at], &best));
    }
    let mut selection = None;
    if players.learns {
        let own = &earned[..pool.len()];
        let manner = Manner {
            keep: 0.97,
            by_supply: false,
            seed: 1,
        };
        let learned =
            follow(case, &pool, own, &past[..pool.len()], manner).or_exit(Exit::Internal)?;
        rows.push(drawn(&learned, own, &best));
        selection = Some(Selected {
            members: pool.len(),
            best: pool[learned.best].name(),
            second_half: learned.second_half,
            whole: learned.whole,
        });
    }
    let top: f64 = best.iter().map(|best| best.found.utility as f64).sum();
    let cell = Cell {
        cell: case.name.clone(),
        episodes: best.len(),
        slot_minutes: case.market.slot.seconds() / 60.0,
        optimum_usd: top / 1e6 / best.len().max(1) as f64,
        optimum_gap: gap(&best),
        policies: rows,
        selection,
        assumed: assumed.to_vec(),
    };
    let mut text = table::text(&cell.cell, &cell.policies);
    text.push_str(&format!(
        "{} starts; the optimum earns {:.2} USD a job, found to within {:.3} %\n",
        cell.episodes,
        cell.optimum_usd,
        100.0 * cell.optimum_gap
    ));
    if let Some(selected) = &cell.selection {
        text.push_str(&format!(
            "selection among {} members earns {:.3} of the best of them over the second half ({})\n",
            selected.members, selected.second_half, selected.best
        ));
    }
    Ok((cell, text))
}

/// The row of the members that were drawn.
fn drawn(learned: &Learned, scores: &[Vec<Score>], best: &[Optimum]) -> Summary {
    let own: Vec<Score> = learned
        .drawn
        .iter()
        .enumerate()
        .map(|(episode, &member)| scores[member][episode])
        .collect();
    Summary::of(SELECTION, &own, best)
}

/// A name, and points of a line.
type Line = (String, Vec<(f64, f64)>);

/// Mean cost of each policy, and of the optimum, by deadline; the work stays.
fn by_deadline(
    args: &BacktestArgs,
    recorded: &Recorded,
    shape: &Shape,
    threads: usize,
) -> Result<Vec<Line>, Failure> {
    let work = shape
        .problem(&recorded.market)
        .or_exit(Exit::BadInput)?
        .work;
    let mut lines: Vec<Line> = Vec::new();
    let slots: BTreeSet<u32> = DEADLINES
        .iter()
        .map(|times| (f64::from(shape.soft_deadline) * times).round() as u32)
        .collect();
    for soft_deadline in slots {
        let longer = Shape {
            work: cell::Work::Amount(work),
            soft_deadline,
            ..shape.clone()
        };
        // A deadline that cannot be met has no cost.
        let Ok(case) = case(String::new(), recorded, &longer, args.every) else {
            continue;
        };
        let mut players = players(args, cell::day(&case.market))?;
        players.learns = false;
        let tasks = parallel(players.members.len() + 1, threads, |task| {
            match task.checked_sub(1) {
                None => optima(&case).iter().map(|best| best.found).collect(),
                Some(at) => scores(&case, &players.members[at]),
            }
        });
        let names =
            std::iter::once("optimum".to_owned()).chain(players.members.iter().map(Member::name));
        for (name, scores) in names.zip(&tasks) {
            let paid: u64 = scores.iter().map(|score| score.spent).sum();
            let mean = paid as f64 / 1e6 / scores.len().max(1) as f64;
            let point = (f64::from(soft_deadline), mean);
            match lines.iter_mut().find(|(own, _)| *own == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
    }
    Ok(lines)
}
