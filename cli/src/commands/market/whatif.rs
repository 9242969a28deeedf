//! `spotmux market whatif`: what would be done otherwise, and what it would come to.

use std::fmt::Write as _;

use market_actor::explain::Explanation;
use market_actor::market::Market;
use market_actor::policy::foresight::{Foresight, Persistence};
use market_actor::policy::pools::{Choice, Move, Place, Site, Survey};
use market_actor::problem::decision::Situation;
use market_actor::problem::episode::Outcome;
use market_actor::problem::offer::Offer;
use market_actor::whatif::Scenario;
use serde::Serialize;
use shared::units::MicroUsd;

use super::explain::{first, machines, sentence};
use super::say_assumed;
use crate::args::WhatifArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::markets::moment::Moment;
use crate::markets::source::read;
use crate::render::{Align, Output, Table};

/// Share of the slot of a move that computes.
const MOVE_SHARE: f64 = 0.5;
/// Slots of a survey of zones.
const SURVEYED: usize = 12;

/// One course of things.
#[derive(Serialize)]
struct Way {
    decision: Explanation,
    spent_usd: f64,
    completed: Option<u32>,
    missed: bool,
    reconfigurations: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_zone: Option<String>,
}

#[derive(Serialize)]
struct Told<'a> {
    scenario: &'a Scenario,
    as_it_was: Way,
    what_if: Way,
}

/// Runs the command.
pub(super) fn run(args: &WhatifArgs, output: &Output) -> Result<Exit, Failure> {
    let scenario = Scenario::of(&args.sentence).or_exit(Exit::Usage)?;
    let all = read(&args.trace, 12)?;
    let recorded = first(&all)?;
    let moment = Moment::of(&args.moment, &recorded.market)?;
    let markets: Vec<Market> = all.iter().map(|one| one.market.clone()).collect();
    let mut changed = markets.clone();
    scenario
        .apply(&mut changed, moment.index())
        .or_exit(Exit::BadInput)?;
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let before = way(&moment, &markets, &names)?;
    let after = way(&moment, &changed, &names)?;
    for one in &all {
        say_assumed(one, output);
    }
    let text = text(&args.sentence, &before, &after);
    output.result(
        &Told {
            scenario: &scenario,
            as_it_was: before,
            what_if: after,
        },
        &text,
    )?;
    Ok(Exit::Done)
}

fn way(moment: &Moment, markets: &[Market], names: &[&str]) -> Result<Way, Failure> {
    let decision = moment.explained(&markets[0])?;
    let outcome: Outcome = moment.lived(&markets[0]);
    let best_zone = (markets.len() > 1)
        .then(|| zone(moment, markets, &decision))
        .flatten()
        .map(|choice| {
            let at = choice.place.site;
            format!("{} with {}", names[at], machines(choice.place.held))
        });
    Ok(Way {
        decision,
        spent_usd: outcome.spent.dollars(),
        completed: outcome.completed,
        missed: outcome.missed,
        reconfigurations: outcome.reconfigurations,
        best_zone,
    })
}

/// Where the job would best be if every zone stayed as it is now.
fn zone(moment: &Moment, markets: &[Market], decision: &Explanation) -> Option<Choice> {
    let problem = &moment.problem;
    let at = moment.index();
    let standing = &decision.standing;
    let sites: Vec<Site> = markets
        .iter()
        .filter_map(|market| {
            let slot = market.slots.get(at).or_else(|| market.slots.last())?;
            let offer = Offer::of(slot, market.slot);
            let situation = Situation {
                problem,
                slot: standing.slot,
                progress: standing.progress,
                held: standing.held,
                offer,
                at,
                past: &[],
                length: market.slot,
                losses: &[],
                waited: standing.waited,
            };
            let ahead = SURVEYED.min(decision.slots_left.max(1) as usize) - 1;
            let mut offers = vec![offer];
            let later = Persistence.look(&situation, ahead as u32);
            offers.extend(later.iter().map(|view| view.offer(0.0)));
            Some(Site { offers })
        })
        .collect();
    if sites.len() != markets.len() {
        return None;
    }
    let most = problem.fastest(None);
    let rate = problem.throughput.at(most);
    let price = sites[0].offers[0].on_demand_price;
    let begun = standing.progress > 0.0 || standing.held.count() > 0;
    Survey {
        problem,
        elapsed: standing.slot,
        remaining: decision.remaining,
        at: begun.then_some(Place {
            site: 0,
            held: standing.held,
        }),
        sites: &sites,
        moves: &|_, _| Move {
            share: MOVE_SHARE,
            egress: MicroUsd(0),
        },
        ending: f64::from(most) * price / rate.max(f64::MIN_POSITIVE),
        cells: 288,
        hysteresis: 0.0,
    }
    .choose()
}

fn text(sentence_of_user: &str, before: &Way, after: &Way) -> String {
    let mut text = String::new();
    let standing = &before.decision.standing;
    let _ = writeln!(
        text,
        "slot {} of the job, {} left to the deadline, held before: {}\n",
        standing.slot,
        before.decision.slots_left,
        machines(standing.held)
    );
    let mut table = Table::new(&[
        ("", Align::Left),
        ("as it was", Align::Left),
        ("what if", Align::Left),
    ]);
    let mut line = |name: &str, of: &dyn Fn(&Way) -> String| {
        table.row([name.to_owned(), of(before), of(after)]);
    };
    line("held", &|way| machines(way.decision.decision.held));
    line("job costs", &|way| format!("{:.2} USD", way.spent_usd));
    line("job is done", &|way| {
        way.completed.map_or_else(
            || "never".to_owned(),
            |slots| format!("after {slots} slots"),
        )
    });
    line("deadline", &|way| {
        if way.missed { "missed" } else { "kept" }.to_owned()
    });
    line("changes", &|way| way.reconfigurations.to_string());
    if before.best_zone.is_some() || after.best_zone.is_some() {
        line("best zone", &|way| {
            way.best_zone.clone().unwrap_or_default()
        });
    }
    text.push_str(&table.text());
    let _ = writeln!(
        text,
        "\nas it was: {}\nif {}: {}",
        sentence(&before.decision.decision.reason),
        sentence_of_user.trim_end_matches('.'),
        sentence(&after.decision.decision.reason)
    );
    text
}
