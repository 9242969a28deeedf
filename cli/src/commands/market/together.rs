//! `spotmux market backtest --together`: one job in several places, which moves or stays.

use std::fmt::Write as _;

use market_actor::backtest::cell::{self, Shape};
use market_actor::backtest::sites::{Journey, Roamer, Row, Tolls, trips};
use market_actor::backtest::table;
use market_actor::feed::instant_text;
use market_actor::market::Market;
use market_actor::policy::Safety;
use market_actor::policy::pools::egress;
use market_actor::select::pool::{Member, Source};
use market_actor::select::word;
use serde::Serialize;
use shared::units::{MicroUsd, Micros};

use super::players::{SELECTION, players};
use super::say_assumed;
use crate::args::{BacktestArgs, POLICIES, TogetherArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::markets::source::Recorded;
use crate::markets::threads::parallel;
use crate::render::Output;

/// Cells of a plan's grid.
const CELLS: usize = 288;
/// Bytes of a gibibyte.
const GIB: f64 = (1u64 << 30) as f64;

/// A cell of the report.
#[derive(Serialize)]
struct Cell {
    cell: String,
    places: Vec<String>,
    episodes: usize,
    slots: usize,
    slot_minutes: f64,
    tolls: Tolls,
    hysteresis: MicroUsd,
    optimum_usd: f64,
    rows: Vec<Row>,
    assumed: Vec<String>,
}

/// Runs the command.
pub(super) fn run(
    args: &BacktestArgs,
    shapes: &[(String, Shape)],
    all: &[Recorded],
    threads: usize,
    output: &Output,
) -> Result<Exit, Failure> {
    // Who is not named is left out.
    let named = args.policy.join(",") != POLICIES;
    if named && args.policy.iter().any(|name| name == SELECTION) {
        let message = "--together learns no policy: name those that are to play, as in --policy horizon,uniform, without selection";
        return Err(Failure::new(Exit::Usage, message));
    }
    let tolls = tolls(&args.together)?;
    let markets = aligned(all)?;
    for recorded in all {
        say_assumed(recorded, output);
    }
    for (name, shape) in shapes {
        let journey = journey(&markets, shape, args, tolls)?;
        let cell = played(
            format!("{} places, {name}", all.len()),
            &journey,
            all,
            args,
            threads,
        )?;
        output.result(&cell, &text(&cell))?;
    }
    Ok(Exit::Done)
}

fn tolls(args: &TogetherArgs) -> Result<Tolls, Failure> {
    let wrong = |what: String| Failure::new(Exit::Usage, what);
    if !(0.0..=1.0).contains(&args.move_share) {
        let share = args.move_share;
        return Err(wrong(format!("--move-share {share} is outside 0 to 1")));
    }
    if !(0.0..=1e6).contains(&args.state) {
        let state = args.state;
        return Err(wrong(format!(
            "--state {state} is outside 0 to 1000000 GiB"
        )));
    }
    if args.egress.len() != 3 {
        let message =
            "--egress takes three prices, to another zone, region and cloud: 0.01,0.02,0.09";
        return Err(wrong(message.into()));
    }
    let fee = |at: usize| {
        let price = args.egress.get(at).copied().unwrap_or_default();
        dollars("egress", price).map(|price| egress((args.state * GIB) as u64, price))
    };
    Ok(Tolls {
        share: args.move_share,
        zone: fee(0)?,
        region: fee(1)?,
        cloud: fee(2)?,
    })
}

fn dollars(name: &str, value: f64) -> Result<MicroUsd, Failure> {
    if (0.0..=1e6).contains(&value) {
        return Ok(MicroUsd((value * 1e6).round() as u64));
    }
    let message = format!("--{name} {value} is outside 0 to 1000000 dollars");
    Err(Failure::new(Exit::Usage, message))
}

/// Markets that begin and end together: by the calendar where all have dates, otherwise from their first slots on.
fn aligned(all: &[Recorded]) -> Result<Vec<Market>, Failure> {
    let mut markets: Vec<Market> = all.iter().map(|one| one.market.clone()).collect();
    let distinct = |one: &Market| {
        let same = markets.iter().filter(|other| other.pool == one.pool);
        same.count() == 1
    };
    if markets.len() < 2 || !markets.iter().all(distinct) {
        let message = "--together takes several traces, each of a place of its own";
        return Err(Failure::new(Exit::Usage, message));
    }
    if all.iter().all(|one| one.dated) {
        let latest = markets.iter().map(|market| market.start).max();
        for market in &mut markets {
            let late = latest.unwrap_or_default().since(market.start);
            let skipped = usize::try_from(late.0 / market.slot.0.max(1)).unwrap_or(usize::MAX);
            market.slots.drain(..skipped.min(market.slots.len()));
        }
    }
    let shortest = markets.iter().map(|market| market.slots.len()).min();
    if shortest.unwrap_or_default() == 0 {
        let spans = all.iter().map(span).collect::<Vec<_>>().join("; ");
        let message =
            format!("the traces have no slot in common: {spans}. Give traces of the same time");
        return Err(Failure::new(Exit::BadInput, message));
    }
    for market in &mut markets {
        market.slots.truncate(shortest.unwrap_or_default());
    }
    Ok(markets)
}

/// When a trace begins and ends, as it names itself.
fn span(one: &Recorded) -> String {
    let Market {
        start, slot, slots, ..
    } = &one.market;
    let count = slots.len();
    if !one.dated {
        return format!("{} has {count} slots", one.name);
    }
    let length = Micros(slot.0.saturating_mul(count as u64));
    let (from, to) = (instant_text(*start), instant_text(start.plus(length)));
    format!("{} is of {from} to {to}", one.name)
}

fn journey(
    markets: &[Market],
    shape: &Shape,
    args: &BacktestArgs,
    tolls: Tolls,
) -> Result<Journey, Failure> {
    // The job and its starts are those of the first market, as for it alone.
    let safety = Safety::default();
    let first = markets[0].clone();
    let case = cell::case(String::new(), first, shape, args.every, safety);
    let case = case.or_exit(Exit::BadInput)?;
    if case.starts.is_empty() {
        let message = format!(
            "{} slots that all traces have are too few for a job of {} slots: give longer traces or a shorter --slot",
            markets[0].slots.len(),
            case.problem.soft_deadline
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    Ok(Journey {
        markets: markets.to_vec(),
        problem: case.problem,
        starts: case.starts,
        tolls,
        hysteresis: dollars("hysteresis", args.together.hysteresis)?,
        cells: CELLS,
        safety,
    })
}

/// Rows of a table: who moves, by what it is told; who settles where it looks best; who stays in each place.
fn roamers(
    journey: &Journey,
    all: &[Recorded],
    args: &BacktestArgs,
) -> Result<Vec<(String, Roamer)>, Failure> {
    let day = cell::day(&journey.markets[0]);
    let members: Vec<Member> = players(args, day)?.members;
    let mut rows: Vec<(String, Roamer)> = Vec::new();
    let sources = args
        .forecast
        .iter()
        .map(|name| word::foresight(name, day).or_exit(Exit::Usage));
    let sources: Vec<Source> = sources.collect::<Result<_, _>>()?;
    let with_persistence = [Source::Persistence].into_iter().chain(sources);
    for source in with_persistence {
        let name = format!("moves, {}", source.word());
        if rows.iter().all(|(own, _)| *own != name) {
            rows.push((name, Roamer::Roams { source }));
        }
    }
    for member in &members {
        let name = format!("settles, {}", member.name());
        rows.push((name, Roamer::Settles { member: *member }));
    }
    for (site, recorded) in all.iter().enumerate() {
        for member in &members {
            let name = format!("stays in {}, {}", place(recorded), member.name());
            let member = *member;
            rows.push((name, Roamer::Stays { site, member }));
        }
    }
    Ok(rows)
}

fn place(recorded: &Recorded) -> &str {
    match recorded.market.pool.zone.as_str() {
        "" => &recorded.name,
        zone => zone,
    }
}

fn played(
    name: String,
    journey: &Journey,
    all: &[Recorded],
    args: &BacktestArgs,
    threads: usize,
) -> Result<Cell, Failure> {
    let roamers = roamers(journey, all, args)?;
    let knows = Roamer::Roams {
        source: Source::Perfect,
    };
    let mut done = parallel(roamers.len() + 1, threads, |task| match task {
        0 => trips(journey, &knows),
        task => trips(journey, &roamers[task - 1].1),
    });
    let best = done.remove(0);
    let mut rows = vec![Row::of("knew the future", &best, &best)];
    for ((name, _), trips) in roamers.iter().zip(&done) {
        rows.push(Row::of(name, trips, &best));
    }
    let top: f64 = best.iter().map(|trip| trip.score.utility as f64).sum();
    Ok(Cell {
        cell: name,
        places: all.iter().map(|one| place(one).to_owned()).collect(),
        episodes: best.len(),
        slots: journey.markets[0].slots.len(),
        slot_minutes: journey.markets[0].slot.seconds() / 60.0,
        tolls: journey.tolls,
        hysteresis: journey.hysteresis,
        optimum_usd: top / 1e6 / best.len().max(1) as f64,
        rows,
        assumed: all.iter().flat_map(|one| one.assumed.clone()).collect(),
    })
}

fn text(cell: &Cell) -> String {
    let summaries: Vec<_> = cell.rows.iter().map(|row| row.summary.clone()).collect();
    let plain = table::text(&cell.cell, &summaries);
    let mut text = String::new();
    for (at, line) in plain.lines().enumerate() {
        let _ = match at.checked_sub(2).and_then(|row| cell.rows.get(row)) {
            Some(row) => writeln!(text, "{line}  {:>5.2}  {:>8.3}", row.moves, row.egress),
            None if at == 1 => writeln!(text, "{line}  moves  egress $"),
            None => writeln!(text, "{line}"),
        };
    }
    let _ = writeln!(
        text,
        "{} starts in {} slots; who knew the future earns {:.2} USD a job",
        cell.episodes, cell.slots, cell.optimum_usd
    );
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use market_actor::market::{Pool, Slot};

    use super::*;

    fn recorded(zone: &str, start: u64, slots: usize, dated: bool) -> Recorded {
        let slot = Slot {
            spot_price: MicroUsd(300_000),
            spot_available: 1,
            on_demand_price: MicroUsd(1_000_000),
            on_demand_available: None,
        };
        let pool = Pool {
            provider: "p".into(),
            region: "r".into(),
            zone: zone.into(),
            machine: "m".into(),
        };
        Recorded {
            name: zone.into(),
            market: Market {
                pool,
                start: Micros(start * 60_000_000),
                slot: Micros(60_000_000),
                slots: vec![slot; slots],
            },
            dated,
            assumed: Vec::new(),
        }
    }

    #[test]
    fn traces_begin_and_end_together() {
        let length = |all: &[Recorded]| {
            let markets = aligned(all).unwrap();
            markets
                .iter()
                .map(|market| market.slots.len())
                .collect::<Vec<_>>()
        };
        let undated = [recorded("a", 0, 9, false), recorded("b", 4, 7, true)];
        assert_eq!(length(&undated), [7, 7]);
        let dated = [recorded("a", 0, 9, true), recorded("b", 4, 7, true)];
        assert_eq!(length(&dated), [5, 5]);
        assert!(aligned(&undated[..1]).is_err());
        // Of different times, and one slot less than that.
        let apart = [recorded("a", 0, 4, true), recorded("b", 4, 7, true)];
        let told = aligned(&apart).unwrap_err().error.to_string();
        assert!(
            told.contains("no slot in common: a is of 1970-01-01"),
            "{told}"
        );
        let near = [recorded("a", 0, 5, true), recorded("b", 4, 7, true)];
        assert_eq!(length(&near), [1, 1]);
        let twice = [recorded("a", 0, 9, true), recorded("a", 0, 9, true)];
        assert!(aligned(&twice).is_err());
    }
}
