//! `spotmux market forecast`: rolling-origin errors of all forecasters on a trace.

use std::fmt::Write as _;
use std::sync::Arc;

use market_actor::backtest::cell::day;
use market_actor::forecast::Forecast;
use market_actor::forecast::choice::{Choice, choose};
use market_actor::forecast::forecaster::{self, Forecaster, MEMORY, capacity_models, price_models};
use market_actor::forecast::model::Model;
use market_actor::forecast::trial::{Plan, Report, Score, Unit, run as try_model};
use market_actor::market::Market;
use market_actor::plot::Picture;
use serde_json::{Value, json};
use shared::units::Micros;

use super::{draw, say_assumed};
use crate::args::ForecastArgs;
use crate::exit::{Exit, Failure};
use crate::markets::source::{Recorded, read};
use crate::render::{Align, Output, Table};

/// Runs the command.
pub(super) fn run(args: &ForecastArgs, output: &Output) -> Result<Exit, Failure> {
    if args.horizon == 0 || args.points == 0 {
        let message = "--horizon and --points are numbers from 1 on";
        return Err(Failure::new(Exit::Usage, message));
    }
    let all = read(&args.trace, 0)?;
    for recorded in &all {
        say_assumed(recorded, output);
        let (value, text) = tried(recorded, args);
        output.result(&value, &text)?;
    }
    if let (Some(path), Some(first)) = (&args.plot, all.first()) {
        draw(path, &picture(first, args.horizon), output)?;
    }
    Ok(Exit::Done)
}

/// A day in slots, where the market has three.
fn days(market: &Market) -> usize {
    let day = day(market) as usize;
    if market.slots.len() >= 3 * day {
        day
    } else {
        0
    }
}

fn tried(recorded: &Recorded, args: &ForecastArgs) -> (Value, String) {
    let slots = &recorded.market.slots;
    let day = days(&recorded.market);
    let both = Forecaster::ensemble(day);
    let parts = [
        (
            "price",
            Unit::Dollars,
            forecaster::price_series(slots),
            with(price_models(day), both.price),
        ),
        (
            "capacity",
            Unit::Machines,
            forecaster::capacity_series(slots),
            with(capacity_models(day), both.capacity),
        ),
    ];
    let mut text = String::new();
    let mut told = Vec::new();
    for (what, unit, series, models) in parts {
        let moves = series.windows(2).any(|two| two[0] != two[1]);
        if !moves {
            let _ = writeln!(text, "{}: the {what} never changes", recorded.name);
            told.push(json!({ "series": what, "changes": false }));
            continue;
        }
        let first = (series.len() / 4).clamp(1, 336);
        let left = series.len().saturating_sub(first + args.horizon);
        let plan = Plan {
            horizon: args.horizon,
            first,
            stride: (left / args.points).max(1),
            refit: 12,
            memory: MEMORY,
        };
        let reports: Vec<Report> = models
            .iter()
            .map(|model| try_model(model.as_ref(), &series, unit, &plan))
            .collect();
        let points = reports.first().map_or(0, |report| report.losses.len());
        let _ = writeln!(
            text,
            "{}: {what} in {}, {points} points, {} slots apart",
            recorded.name,
            unit_word(unit),
            plan.stride
        );
        if points == 0 {
            let _ = writeln!(
                text,
                "  the trace is too short for {} slots ahead",
                args.horizon
            );
            told.push(json!({ "series": what, "changes": true, "points": 0 }));
            continue;
        }
        let choice = choose(&reports, plan.lags());
        text.push_str(&table(&reports, args.horizon));
        let [near, third, far] = [1, args.horizon.div_ceil(3), args.horizon];
        let _ = writeln!(
            text,
            "near, third, far: {near}, {third} and {far} slots ahead; MAE: mean absolute error; coverage: share of what came \
             that was between the 10 and the 90 % quantile"
        );
        if let Some(choice) = &choice {
            let _ = writeln!(text, "{choice}\n");
        }
        told.push(value(
            what,
            unit,
            points,
            plan.stride,
            &reports,
            choice.as_ref(),
        ));
    }
    let value = json!({ "name": recorded.name, "assumed": recorded.assumed, "series": told });
    (value, text)
}

fn with(mut models: Vec<Arc<dyn Model>>, ensemble: Arc<dyn Model>) -> Vec<Arc<dyn Model>> {
    models.push(ensemble);
    models
}

const fn unit_word(unit: Unit) -> &'static str {
    match unit {
        Unit::Dollars => "USD an hour",
        Unit::Machines => "machines",
    }
}

/// The nearest slot, the one at a third of the horizon, and the farthest.
fn shown(report: &Report, horizon: usize) -> [Score; 3] {
    [1, horizon.div_ceil(3), horizon].map(|ahead| report.scores[ahead - 1])
}

fn table(reports: &[Report], horizon: usize) -> String {
    let mut table = Table::new(&[
        ("model", Align::Left),
        ("MAE near", Align::Right),
        ("third", Align::Right),
        ("far", Align::Right),
        ("pinball", Align::Right),
        ("coverage near", Align::Right),
        ("far", Align::Right),
        ("Brier far", Align::Right),
    ]);
    for report in reports {
        let [near, third, far] = shown(report, horizon);
        table.row([
            report.model.clone(),
            format!("{:.4}", near.mean_absolute_error),
            format!("{:.4}", third.mean_absolute_error),
            format!("{:.4}", far.mean_absolute_error),
            format!("{:.4}", report.mean_pinball()),
            format!("{:.2}", near.coverage),
            format!("{:.2}", far.coverage),
            far.brier
                .map_or_else(|| "-".to_owned(), |brier| format!("{brier:.3}")),
        ]);
    }
    table.text()
}

fn value(
    what: &str,
    unit: Unit,
    points: usize,
    stride: usize,
    reports: &[Report],
    choice: Option<&Choice>,
) -> Value {
    let models: Vec<Value> = reports
        .iter()
        .map(|report| {
            let scores: Vec<Value> = report
                .scores
                .iter()
                .map(|score| {
                    json!({
                        "ahead": score.ahead,
                        "mean_absolute_error": score.mean_absolute_error,
                        "pinball": score.pinball,
                        "coverage": score.coverage,
                        "brier": score.brier,
                    })
                })
                .collect();
            json!({ "model": report.model, "pinball": report.mean_pinball(), "scores": scores })
        })
        .collect();
    let used = choice.and_then(|choice| reports.get(choice.chosen));
    json!({
        "series": what,
        "changes": true,
        "unit": unit_word(unit),
        "points": points,
        "slots_apart": stride,
        "models": models,
        "used": used.map(|report| report.model.clone()),
    })
}

/// What the ensemble thought at three quarters of the trace, and what came.
fn picture(recorded: &Recorded, horizon: usize) -> String {
    let market = &recorded.market;
    let at = market.slots.len() * 3 / 4;
    let from = at.saturating_sub(horizon * 8);
    let until = (at + horizon * 2).min(market.slots.len());
    let outlook = Forecaster::ensemble(days(market)).outlook(&market.slots[..at], horizon);
    let shown = Market {
        start: market.start.plus(Micros(market.slot.0 * from as u64)),
        slots: market.slots[from..until].to_vec(),
        ..market.clone()
    };
    let outlooks = [(at - from, outlook)];
    Picture {
        title: &recorded.name,
        market: &shown,
        dated: recorded.dated,
        outlooks: &outlooks,
        held: &[],
    }
    .svg()
}
