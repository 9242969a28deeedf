//! Rolling-origin errors of all forecasters on recorded markets, as tables.
//!
//! ```text
//! cargo run --release -p market-actor --example forecasts -- [--slot MINUTES] [--horizon SLOTS] [--points N]
//!     [--format NAME] [--svg FOLDER] [--fleet N] PATHS
//! ```
//!
//! Each series that moves is cut into slots (30 minutes, or the longest of 15, 5 and 1 that leaves 200), tried at up to
//! N points that lie evenly after the first quarter (at most a week), and forecast for some slots ahead. With `--svg` a
//! picture of each pool is written, with the outlook that the ensemble had at three quarters of it; with `--fleet` also
//! what a fleet of N machines would hold that takes all the spot machines there are and fills up with on-demand ones.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use market_actor::feed::resample::{Cut, PriceRule, resample};
use market_actor::feed::{Format, Observed, files};
use market_actor::forecast::Forecast;
use market_actor::forecast::choice::choose;
use market_actor::forecast::forecaster::{self, Forecaster, capacity_models, price_models};
use market_actor::forecast::model::Model;
use market_actor::forecast::trial::{Plan, Report, Unit, run};
use market_actor::market::{Market, Slot};
use market_actor::plot::{Held, Picture};
use shared::units::{MicroUsd, Micros};

/// What was asked for.
struct Asked {
    slot: Option<u64>,
    horizon: usize,
    points: usize,
    format: Option<Format>,
    svg: Option<PathBuf>,
    fleet: u32,
    paths: Vec<PathBuf>,
}

const USAGE: &str = "forecasts [--slot MINUTES] [--horizon SLOTS] [--points N] [--format NAME] [--svg FOLDER] [--fleet N] PATHS";

fn main() -> ExitCode {
    let asked = match asked(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    for path in &asked.paths {
        match files::read(path, asked.format) {
            Ok(pools) => {
                for pool in pools {
                    failed |= !report(path, &pool, &asked);
                }
            }
            Err(error) => {
                eprintln!("{error}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

fn asked(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked {
        slot: None,
        horizon: 12,
        points: 300,
        format: None,
        svg: None,
        fleet: 0,
        paths: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        if !argument.starts_with("--") {
            asked.paths.push(argument.into());
            continue;
        }
        let value = arguments
            .next()
            .ok_or_else(|| format!("{argument} wants a value"))?;
        let number = || {
            let number = value.parse::<usize>().ok().filter(|n| *n > 0);
            number.ok_or_else(|| format!("{argument} {value}: a number from 1 on"))
        };
        match argument.as_str() {
            "--slot" => asked.slot = Some(number()? as u64),
            "--horizon" => asked.horizon = number()?,
            "--points" => asked.points = number()?,
            "--format" => {
                let format = Format::of_name(&value);
                asked.format = Some(format.ok_or_else(|| format!("{value} is no format"))?);
            }
            "--fleet" => asked.fleet = number()? as u32,
            "--svg" => asked.svg = Some(value.into()),
            _ => return Err(format!("{argument} is not known")),
        }
    }
    if asked.paths.is_empty() {
        return Err("no files".to_owned());
    }
    Ok(asked)
}

/// Cuts a pool into slots of the length asked for, or of one that leaves enough.
fn cut(pool: &Observed, asked: &Asked) -> Result<Market, String> {
    let of = |minutes: u64| {
        let cut = Cut {
            slot: Micros(minutes * 60_000_000),
            price: PriceRule::TimeWeighted,
            on_demand_price: MicroUsd(0),
            on_demand_available: None,
            spot_price: Some(MicroUsd(0)),
            spot_available: Some(0),
        };
        resample(pool, &cut).map_err(|error| error.to_string())
    };
    if let Some(minutes) = asked.slot {
        return of(minutes);
    }
    let mut last = of(1);
    for minutes in [30, 15, 5] {
        if let Ok(market) = of(minutes)
            && market.slots.len() >= 200
        {
            last = Ok(market);
            break;
        }
    }
    last
}

fn report(path: &Path, pool: &Observed, asked: &Asked) -> bool {
    let market = match cut(pool, asked) {
        Ok(market) => market,
        Err(message) => {
            eprintln!("{}: {message}", path.display());
            return false;
        }
    };
    let minutes = market.slot.0 / 60_000_000;
    let day = (24 * 60 / minutes.max(1)) as usize;
    // A day that was not seen thrice is no day to look for.
    let day = if market.slots.len() >= 3 * day {
        day
    } else {
        0
    };
    let name = format!("{} {}", market.pool.machine, market.pool.zone);
    println!(
        "\n## {}: {name}, {} slots of {minutes} min\n",
        path.display(),
        market.slots.len()
    );
    let halves = [
        (pool.spot_price.is_some(), "price", Unit::Dollars),
        (pool.spot_available.is_some(), "capacity", Unit::Machines),
    ];
    for (_, what, unit) in halves.into_iter().filter(|half| half.0) {
        let (series, mut models) = match unit {
            Unit::Dollars => (forecaster::price_series(&market.slots), price_models(day)),
            Unit::Machines => (
                forecaster::capacity_series(&market.slots),
                capacity_models(day),
            ),
        };
        if series.iter().all(|value| *value == series[0]) {
            println!("{what}: never changes\n");
            continue;
        }
        let both = Forecaster::ensemble(day);
        let ensemble: Arc<dyn Model> = match unit {
            Unit::Dollars => both.price,
            Unit::Machines => both.capacity,
        };
        models.push(ensemble);
        table(what, &series, &models, unit, asked);
    }
    asked
        .svg
        .as_ref()
        .is_none_or(|folder| draw(folder, &name, &market, pool.dated, day, asked))
}

fn table(what: &str, series: &[f64], models: &[Arc<dyn Model>], unit: Unit, asked: &Asked) {
    let first = (series.len() / 4).clamp(1, 336);
    let tried = series.len().saturating_sub(first + asked.horizon);
    let plan = Plan {
        horizon: asked.horizon,
        first,
        stride: (tried / asked.points).max(1),
        refit: 12,
        memory: forecaster::MEMORY,
    };
    let reports: Vec<Report> = models
        .iter()
        .map(|model| run(model.as_ref(), series, unit, &plan))
        .collect();
    let aheads = [1, asked.horizon.div_ceil(3), asked.horizon];
    let unit = match unit {
        Unit::Dollars => "USD/h",
        Unit::Machines => "machines",
    };
    println!(
        "{what} ({unit}), {} points, {} slots apart\n",
        reports[0].losses.len(),
        plan.stride
    );
    println!(
        "| model | MAE +{} | +{} | +{} | pinball | coverage +{} | +{} | +{} | Brier +{} |",
        aheads[0], aheads[1], aheads[2], aheads[0], aheads[1], aheads[2], aheads[2]
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for report in &reports {
        let score = |ahead: usize| report.scores[ahead - 1];
        let [near, middle, far] = aheads.map(score);
        println!(
            "| {} | {:.4} | {:.4} | {:.4} | {:.4} | {:.2} | {:.2} | {:.2} | {} |",
            report.model,
            near.mean_absolute_error,
            middle.mean_absolute_error,
            far.mean_absolute_error,
            report.mean_pinball(),
            near.coverage,
            middle.coverage,
            far.coverage,
            far.brier
                .map_or_else(|| "-".to_owned(), |brier| format!("{brier:.3}"))
        );
    }
    if let Some(choice) = choose(&reports, plan.lags()) {
        println!("\n{choice}\n");
    }
}

fn draw(
    folder: &Path,
    name: &str,
    market: &Market,
    dated: bool,
    day: usize,
    asked: &Asked,
) -> bool {
    let at = market.slots.len() * 3 / 4;
    let from = at.saturating_sub(asked.horizon * 8);
    let until = (at + asked.horizon * 2).min(market.slots.len());
    let outlook = Forecaster::ensemble(day).outlook(&market.slots[..at], asked.horizon);
    let shown = Market {
        start: market.start.plus(Micros(market.slot.0 * from as u64)),
        slots: market.slots[from..until].to_vec(),
        ..market.clone()
    };
    let outlooks = [(at - from, outlook)];
    let fill = |slot: &Slot| {
        let spot = slot.spot_available.min(asked.fleet);
        Held {
            spot,
            on_demand: asked.fleet - spot,
        }
    };
    let is_sized = shown.slots.iter().any(|slot| slot.spot_available > 0);
    let slots = if asked.fleet > 0 && is_sized {
        &shown.slots[..]
    } else {
        &[]
    };
    let held: Vec<Held> = slots.iter().map(fill).collect();
    let picture = Picture {
        title: name,
        market: &shown,
        dated,
        outlooks: &outlooks,
        held: &held,
    };
    let file = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-") + ".svg";
    let path = folder.join(file);
    if let Err(error) = std::fs::write(&path, picture.svg()) {
        eprintln!("{}: {error}", path.display());
        return false;
    }
    println!("drawn: {}", path.display());
    true
}
