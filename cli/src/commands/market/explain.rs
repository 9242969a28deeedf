//! `spotmux market explain`: why so many machines.

use std::fmt::Write as _;

use market_actor::backtest::cell::day;
use market_actor::explain::{Alternative, Explanation};
use market_actor::forecast::Forecast;
use market_actor::forecast::forecaster::Forecaster;
use market_actor::market::Market;
use market_actor::plot::{Held as Drawn, Picture};
use market_actor::problem::decision::Reason;
use market_actor::problem::offer::Held;
use serde::Serialize;
use shared::units::Micros;

use super::{draw, say_assumed};
use crate::args::ExplainArgs;
use crate::exit::{Exit, Failure};
use crate::markets::moment::Moment;
use crate::markets::source::{Recorded, read};
use crate::render::{Align, Output, Table};

#[derive(Serialize)]
struct Told<'a> {
    market: &'a str,
    start: usize,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

/// Runs the command.
pub(super) fn run(args: &ExplainArgs, output: &Output) -> Result<Exit, Failure> {
    let all = read(&args.trace, 12)?;
    let recorded = first(&all)?;
    let moment = Moment::of(&args.moment, &recorded.market)?;
    let explanation = moment.explained(&recorded.market)?;
    say_assumed(recorded, output);
    output.result(
        &Told {
            market: &recorded.name,
            start: moment.start,
            explanation: &explanation,
        },
        &text(&explanation),
    )?;
    if let Some(path) = &args.plot {
        draw(path, &picture(recorded, &moment), output)?;
    }
    Ok(Exit::Done)
}

/// The first market of those read.
pub(super) fn first(all: &[Recorded]) -> Result<&Recorded, Failure> {
    all.first()
        .ok_or_else(|| Failure::new(Exit::BadInput, "no pool is in the trace"))
}

/// `4 spot + 2 on demand`.
pub(super) fn machines(held: Held) -> String {
    match (held.spot, held.on_demand) {
        (0, 0) => "none".to_owned(),
        (spot, 0) => format!("{spot} spot"),
        (0, on_demand) => format!("{on_demand} on demand"),
        (spot, on_demand) => format!("{spot} spot + {on_demand} on demand"),
    }
}

fn usd(micros: f64) -> String {
    format!("{:.3}", micros / 1e6)
}

/// Of a machine for a slot: one of 0 is none that anybody told.
fn price(micros: f64) -> String {
    if micros > 0.0 {
        format!("{} USD a slot", usd(micros))
    } else {
        "no price".to_owned()
    }
}

/// All that a decision depends on, as text.
pub(super) fn text(told: &Explanation) -> String {
    let mut text = String::new();
    let standing = &told.standing;
    let flat_out = told
        .slots_flat_out
        .map_or_else(|| "never".to_owned(), |slots| format!("{slots} slots"));
    let _ = writeln!(
        text,
        "slot {} of the job, {} left to the deadline; {:.1} of {:.1} done; flat out on demand takes {flat_out}",
        standing.slot,
        told.slots_left,
        standing.progress,
        standing.progress + told.remaining
    );
    let _ = writeln!(
        text,
        "held before: {}; losses so far: {}",
        machines(standing.held),
        standing.losses.iter().sum::<u32>()
    );
    let limit = told
        .offer
        .on_demand_available
        .map_or_else(|| "any number".to_owned(), |count| count.to_string());
    let _ = writeln!(
        text,
        "now: {} spot machines at {}, {limit} on demand at {}",
        told.offer.spot_available,
        price(told.offer.spot_price),
        price(told.offer.on_demand_price)
    );
    for (at, view) in told.expected.iter().enumerate() {
        let spot = &view.spot_available;
        let _ = writeln!(
            text,
            "+{}: {:.1} spot machines ({:.1} to {:.1}) at {} ({} to {})",
            at + 1,
            spot.mean,
            spot.low,
            spot.high,
            usd(view.spot_price.mean),
            usd(view.spot_price.low),
            usd(view.spot_price.high)
        );
    }
    let mut table = Table::new(&[
        ("", Align::Left),
        ("machines", Align::Left),
        ("slot USD", Align::Right),
        ("work", Align::Right),
        ("then USD", Align::Right),
        ("utility USD", Align::Right),
        ("done after", Align::Right),
        ("net", Align::Left),
    ]);
    for one in &told.alternatives {
        table.row(row(one));
    }
    let _ = write!(
        text,
        "\n{}then USD: what the job costs in all when it goes on so; utility: what finishing earns less that\n",
        table.text()
    );
    let _ = writeln!(
        text,
        "\n{} holds {}: {}",
        told.policy,
        machines(told.decision.held),
        sentence(&told.decision.reason)
    );
    if let Some(margin) = told.margin {
        let (much, than) = match margin {
            0.. => (margin, "more than"),
            _ => (-margin, "less than"),
        };
        let _ = match margin {
            0 => writeln!(text, "others that pass are as good"),
            _ => writeln!(
                text,
                "its utility is {} USD {than} that of the next best that passes",
                usd(much as f64)
            ),
        };
    }
    if let Some(wished) = told.wished {
        let _ = writeln!(text, "without the safety net: {}", machines(wished));
    }
    text
}

fn row(one: &Alternative) -> [String; 8] {
    let mark = if one.chosen { "->" } else { "" };
    [
        mark.to_owned(),
        machines(one.held),
        usd(one.cost.0 as f64),
        format!("{:.2}", one.gained),
        usd(one.spent.0 as f64),
        usd(one.utility as f64),
        one.completed
            .map_or_else(|| "never".to_owned(), |slots| format!("{slots} slots")),
        if one.passes { "passes" } else { "too late" }.to_owned(),
    ]
}

/// A reason in words.
pub(super) fn sentence(reason: &Reason) -> String {
    match reason {
        Reason::EvenPace { machines } => format!("{machines} meet the deadline at an even pace"),
        Reason::CheapSpot { price, limit } => format!(
            "spot at {} is within its limit of {}",
            usd(*price),
            usd(*limit)
        ),
        Reason::Waits {
            slots_left,
            slots_needed,
        } => format!("no spot worth having, and {slots_needed} of {slots_left} slots would do"),
        Reason::KeepsPace { target } => format!("{target:.1} is to be done by the slot's end"),
        Reason::StaysOnDemand { until } => {
            format!("on demand until {until:.1} is done")
        }
        Reason::StaysPut { instead_of } => {
            format!("a change to {instead_of} would cost more than it brings")
        }
        Reason::Planned { window, .. } => {
            format!("first step of the best plan over {window} slots")
        }
        Reason::Averaged { plans, mean } => format!("the mean of {plans} plans is {mean:.2}"),
        Reason::Drawn { from, until } => {
            format!("the interval drawn for on demand is slots {from} to {until}")
        }
        Reason::SafetyNet {
            slots_left,
            slots_needed,
        } => format!(
            "the safety net: after anything less, flat out would take {slots_needed} slots and {slots_left} are left"
        ),
        Reason::Locked => "the safety net holds it flat out to the end".to_owned(),
        Reason::Late { worth } => {
            format!(
                "too late for the deadline, but finishing still earns {}",
                usd(*worth)
            )
        }
        Reason::GivesUp => "finishing would cost more than it brings".to_owned(),
        Reason::WaitedEnough { slots } => {
            format!("{slots} slots without spot are as long as the tenant waits")
        }
        Reason::Share { granted, wanted } => {
            format!("{granted} of {wanted} spot machines are its share of the pool")
        }
    }
}

/// The market about the job, what the ensemble thinks at the moment, and all that is held.
fn picture(recorded: &Recorded, moment: &Moment) -> String {
    let market = &recorded.market;
    let outcome = moment.lived(market);
    let at = moment.index().min(market.slots.len());
    let from = moment.start.saturating_sub(12);
    let until = (moment.start + outcome.records.len() + 6).min(market.slots.len());
    let slots_of_day = day(market) as usize;
    let outlook = Forecaster::ensemble(slots_of_day).outlook(&market.slots[..at], 12);
    let shown = Market {
        start: market.start.plus(Micros(market.slot.0 * from as u64)),
        slots: market.slots[from..until.max(from)].to_vec(),
        ..market.clone()
    };
    let mut held = vec![Drawn::default(); moment.start - from];
    held.extend(outcome.records.iter().map(|record| Drawn {
        spot: record.decision.held.spot,
        on_demand: record.decision.held.on_demand,
    }));
    let title = format!(
        "{}: a job from slot {} on, {:.2} USD",
        recorded.name,
        moment.start,
        outcome.spent.dollars()
    );
    Picture {
        title: &title,
        market: &shown,
        dated: recorded.dated,
        outlooks: &[(at - from, outlook)],
        held: &held,
    }
    .svg()
}
