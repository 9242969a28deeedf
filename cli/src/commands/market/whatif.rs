//! `spotmux market whatif`: what would be done otherwise, and what it would come to.

use std::collections::BTreeSet;
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
    let gone = scenario.vanished(&markets).or_exit(Exit::BadInput)?;
    let before = way(&moment, &markets, &names, &BTreeSet::new())?;
    let after = way(&moment, &changed, &names, &gone)?;
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

/// One course of things, in which some markets are `gone`.
fn way(
    moment: &Moment,
    markets: &[Market],
    names: &[&str],
    gone: &BTreeSet<usize>,
) -> Result<Way, Failure> {
    let decision = moment.explained(&markets[0])?;
    let outcome: Outcome = moment.lived(&markets[0]);
    let best_zone = (markets.len() > 1).then(|| match zone(moment, markets, &decision, gone) {
        Some(choice) => {
            let at = choice.place.site;
            format!("{} with {}", names[at], machines(choice.place.held))
        }
        None => "none".to_owned(),
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

/// Where the job would best be if every zone stayed as it is now; never in one that is gone.
fn zone(
    moment: &Moment,
    markets: &[Market],
    decision: &Explanation,
    gone: &BTreeSet<usize>,
) -> Option<Choice> {
    let problem = &moment.problem;
    let at = moment.index();
    let standing = &decision.standing;
    let sites: Vec<Site> = markets
        .iter()
        .enumerate()
        .filter_map(|(number, market)| {
            let slot = market.slots.get(at).or_else(|| market.slots.last())?;
            let mut offer = Offer::of(slot, market.slot);
            if gone.contains(&number) {
                offer.spot_available = 0;
                offer.on_demand_available = Some(0);
            }
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
    // One that has begun is where it was, though nothing can be had there any more.
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
    .filter(|choice| !gone.contains(&choice.place.site))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use market_actor::market::{Pool, Slot};
    use shared::units::Micros;

    use super::*;
    use crate::args::{MomentArgs, ShapeArgs};

    fn market(zone: &str, spot: u32) -> Market {
        let slot = Slot {
            spot_price: MicroUsd(300_000),
            spot_available: spot,
            on_demand_price: MicroUsd(1_000_000),
            on_demand_available: None,
        };
        Market {
            pool: Pool {
                provider: "test".into(),
                region: String::new(),
                zone: zone.into(),
                machine: "m".into(),
            },
            start: Micros(0),
            slot: Micros(1_800_000_000),
            slots: vec![slot; 60],
        }
    }

    #[test]
    fn a_zone_that_vanishes_is_not_the_best_one() {
        let markets = [market("1a", 6), market("2b", 3)];
        let args = MomentArgs {
            shape: ShapeArgs {
                job: Some("60,24,1,4".into()),
                load: vec![0.5],
                h: "linear".into(),
                value: 1.5,
                grow: 0.9,
                shrink: 0.95,
            },
            start: Some(20),
            at: 2,
            policy: "horizon".into(),
            forecast: "persistence".into(),
        };
        let moment = Moment::of(&args, &markets[0]).unwrap();
        let names = ["1a", "2b"];
        let as_it_was = way(&moment, &markets, &names, &BTreeSet::new()).unwrap();
        let best = as_it_was.best_zone.unwrap();
        assert!(best.starts_with("1a with"), "{best}");
        for (sentence, wanted) in [
            ("zone 1a vanishes", "2b with"),
            ("every zone vanishes", "none"),
        ] {
            let scenario = Scenario::of(sentence).unwrap();
            let mut changed = markets.clone();
            scenario.apply(&mut changed, moment.index()).unwrap();
            let gone = scenario.vanished(&markets).unwrap();
            let best = way(&moment, &changed, &names, &gone)
                .unwrap()
                .best_zone
                .unwrap();
            assert!(best.starts_with(wanted), "{sentence}: {best}");
        }
    }
}
