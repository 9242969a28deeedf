//! The markets of the back-test, read from public traces, and the jobs that are started in them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use market_actor::backtest::Case;
use market_actor::feed::compose::{Align, Scale, compose};
use market_actor::feed::resample::{Cut, PriceRule, resample};
use market_actor::feed::{Observed, files};
use market_actor::forecast::record::{Kind, Outlooks, Proving};
use market_actor::market::Market;
use market_actor::policy::Safety;
use market_actor::problem::throughput::Throughput;
use market_actor::problem::{Problem, Reconfigure};
use market_actor::select::pool::{AHEAD, Library};
use shared::units::{MicroUsd, Micros};

use crate::{DAY, Options, parallel};

/// Half an hour.
const SLOT: Micros = Micros(1_800_000_000);

/// One on-demand machine costs a dollar for a slot.
const ON_DEMAND: MicroUsd = MicroUsd(2_000_000);

/// Throughput curves: name, alpha and beta, the latter for twelve machines.
const CURVES: [(&str, f64, f64); 2] = [("H=n", 1.0, 0.0), ("concave", 0.72, 2.0)];

/// Work over what the most machines bring until the deadline at one unit each.
const LOADS: [f64; 3] = [0.3, 0.5, 0.7];

fn cell_name(place: &str, curve: &str, load: f64) -> String {
    format!("{place}, {curve}, load {load}")
}

/// Where jobs are started.
pub(crate) struct Place {
    name: String,
    market: Market,
    /// Most machines that a job uses.
    most: u32,
    library: Library,
}

/// All markets, with what forecasters thought at every slot of each.
pub(crate) fn places(options: &Options) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    let large = "skypilot-spot-traces/availability/16-node/aws-08-27-2023";
    let small = "skypilot-spot-traces/preemption/4-node/aws-08-03-2023";
    let west = options.traces.join(large).join("us-west-2a_v100_1.json");
    let east = options.traces.join(large).join("us-east-2b_v100_1.json");
    let few = options.traces.join(small).join("us-west-2c_v100_1.json");
    let mut place = |name: &str, market: Market, most: u32| {
        places.push(Place {
            name: name.to_owned(),
            market,
            most,
            library: Library::new(),
        });
    };
    let joined = composite(options, &west, "1e")?;
    place("composite west-2a x east-1e", joined, 12);
    let joined = composite(options, &east, "1a")?;
    place("composite east-2b x east-1a", joined, 12);
    let flat = |path, dollars: f64| flat(path, MicroUsd((dollars * 2e6).round() as u64));
    place("west-2a, price .35", flat(&west, 0.35)?, 12);
    place("4-node west-2c, price .30", flat(&few, 0.918 / 3.06)?, 4);
    if let Some(only) = &options.only {
        // No one looks at a place whose cells are not asked for.
        places.retain(|place| {
            let mut cells = CURVES
                .iter()
                .flat_map(|curve| LOADS.map(|load| (curve.0, load)));
            cells.any(|(curve, load)| cell_name(&place.name, curve, load).contains(only.as_str()))
        });
    }
    if options.forecasts {
        think(&mut places, options.threads);
    }
    Ok(places)
}

/// Lets all forecasters look at every slot from the second day on.
fn think(places: &mut [Place], threads: usize) {
    let day = DAY as usize;
    let looks = parallel(places.len() * Kind::ALL.len(), threads, |task| {
        let slots = &places[task / Kind::ALL.len()].market.slots;
        let outlooks = match Kind::ALL[task % Kind::ALL.len()] {
            Kind::Proven => {
                let proving = Proving::every(4 * day, day, AHEAD);
                Outlooks::proven(slots, day, AHEAD, &proving)
            }
            other => Outlooks::of(slots, day, AHEAD, other.forecast(day, AHEAD).as_ref()),
        };
        Arc::new(outlooks)
    });
    for (task, outlooks) in looks.into_iter().enumerate() {
        let kind = Kind::ALL[task % Kind::ALL.len()];
        places[task / Kind::ALL.len()]
            .library
            .insert(kind, outlooks);
    }
}

fn cut(price: PriceRule, spot_price: Option<MicroUsd>) -> Cut {
    Cut {
        slot: SLOT,
        price,
        on_demand_price: ON_DEMAND,
        on_demand_available: None,
        spot_price,
        spot_available: None,
    }
}

fn one(path: &Path) -> Result<Observed> {
    let mut pools = files::read(path, None)?;
    pools
        .pop()
        .with_context(|| format!("{}: no pool", path.display()))
}

/// Capacities of a file at one price.
fn flat(path: &Path, price: MicroUsd) -> Result<Market> {
    Ok(resample(&one(path)?, &cut(PriceRule::First, Some(price)))?)
}

/// Capacities of a file at the prices of another place, from some slots after the first of them on.
fn composite(options: &Options, capacities: &Path, zone: &str) -> Result<Market> {
    let folder = options.traces.join("aws-spot-price-2015");
    let mut prices = one(&folder.join(format!("g2.2xlarge-us-east-{zone}.csv")))?;
    prices.spot_price = prices.spot_price.and_then(|steps| {
        let skipped = Micros(options.skip as u64 * SLOT.0);
        steps.from(steps.start().plus(skipped))
    });
    let scale = Scale {
        from: MicroUsd(650_000),
        to: ON_DEMAND,
    };
    let joined = compose(&prices, &one(capacities)?, Align::Begin, Some(scale))?;
    Ok(resample(&joined, &cut(options.price, None))?)
}

/// The jobs of the back-test.
pub(crate) fn cases(options: &Options) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for place in places(options)? {
        let (market, most) = (&place.market, place.most);
        for (curve, alpha, beta) in CURVES {
            for load in LOADS {
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
                    name: cell_name(&place.name, curve, load),
                    starts: (first..=market.slots.len().saturating_sub(24))
                        .step_by(step)
                        .collect(),
                    rehearsals: (DAY as usize..first.saturating_sub(36))
                        .step_by(4)
                        .collect(),
                    cell: 0.05,
                    market: market.clone(),
                    library: BTreeMap::clone(&place.library),
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
