//! Traces as markets of equal slots.

use std::path::Path;

use market_actor::admission;
use market_actor::feed::compose::{Align, Scale, compose};
use market_actor::feed::resample::{Cut, PriceRule, resample};
use market_actor::feed::{Format, Observed, Steps, choice, files, format};
use market_actor::market::Market;
use shared::units::{MicroUsd, Micros};

use crate::args::MarketTraceArgs;
use crate::exit::{Exit, Failure, OrExit};

/// Spot price over the price on demand where only one of them is known.
const SPOT_SHARE: f64 = 0.3;

/// A market and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// The file's name, and the pool's.
    pub(crate) name: String,
    /// Its slots.
    pub(crate) market: Market,
    /// Whether its instants are dates.
    pub(crate) dated: bool,
    /// What the source does not say and was taken instead; sentences.
    pub(crate) assumed: Vec<String>,
}

/// Reads all traces that are named. `most` stands for capacities that a source does not have.
///
/// # Errors
/// When a file cannot be read, or not be cut into slots.
pub(crate) fn read(args: &MarketTraceArgs, most: u32) -> Result<Vec<Recorded>, Failure> {
    let format = match &args.format {
        Some(name) => Some(Format::of_name(name).ok_or_else(|| {
            let known = format::names();
            Failure::new(Exit::Usage, format!("--format {name:?} is none of {known}"))
        })?),
        None => None,
    };
    if args.slot == 0 || args.slot > 24 * 60 {
        let message = format!("--slot {} is outside 1 to 1440 minutes", args.slot);
        return Err(Failure::new(Exit::Usage, message));
    }
    let mut all = Vec::new();
    for path in &args.trace {
        let pools = files::read(path, format).or_exit(Exit::BadInput)?;
        for pool in chosen(pools, args, path)? {
            all.push(recorded(&pool, args, path, most)?);
        }
    }
    Ok(all)
}

/// The pools of a file that are asked for.
fn chosen(
    pools: Vec<Observed>,
    args: &MarketTraceArgs,
    path: &Path,
) -> Result<Vec<Observed>, Failure> {
    let told = |flag: &str, error: &dyn std::fmt::Display| {
        Failure::new(
            Exit::BadInput,
            format!("{}: {error}: set {flag}", path.display()),
        )
    };
    if let Some(name) = &args.pool {
        let only = choice::one(pools, Some(name)).map_err(|error| told("--pool", &error))?;
        return Ok(vec![only]);
    }
    let Some(zone) = &args.zone else {
        return Ok(pools);
    };
    let known: Vec<String> = pools.iter().map(|pool| pool.pool.zone.clone()).collect();
    let at = admission::zone(zone, &known)
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
        .or_exit(Exit::BadInput)?;
    let zone = known.get(at).cloned().unwrap_or_default();
    let there = pools.into_iter().filter(|pool| pool.pool.zone == zone);
    let only = choice::one(there.collect(), None).map_err(|error| told("--pool", &error))?;
    Ok(vec![only])
}

/// The pool of a file of prices.
fn priced(args: &MarketTraceArgs) -> Result<Option<Observed>, Failure> {
    let Some(file) = &args.prices else {
        return Ok(None);
    };
    let pools = files::read(file, None).or_exit(Exit::BadInput)?;
    let named = args.prices_pool.as_deref();
    let mut prices = choice::one(pools, named).map_err(|error| {
        let message = format!("{}: {error}: set --prices-pool", file.display());
        Failure::new(Exit::BadInput, message)
    })?;
    let skip = args.prices_skip.saturating_mul(args.slot);
    let skip = Micros(skip.saturating_mul(60_000_000));
    let known = prices.spot_price.is_some();
    prices.spot_price = prices
        .spot_price
        .and_then(|steps| steps.from(Micros(steps.start().0.saturating_add(skip.0))));
    if known && prices.spot_price.is_none() {
        let message = format!(
            "--prices-skip {} leaves nothing of {}: skip fewer slots",
            args.prices_skip,
            file.display()
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    Ok(Some(prices))
}

/// The middle of prices by the time that they were in force, as the one that is shown of equal slots is: a price that changes to and
/// fro for minutes weighs no more than those minutes.
fn median(steps: &Steps<MicroUsd>) -> MicroUsd {
    let changes = steps.changes();
    let ends = changes.iter().skip(1).map(|(at, _)| *at);
    let spans = changes.iter().zip(ends.chain([steps.end()]));
    let mut lasted: Vec<(MicroUsd, u128)> = spans
        .map(|((at, price), end)| (*price, u128::from(end.since(*at).0)))
        .collect();
    lasted.sort_unstable();
    let whole: u128 = lasted.iter().map(|(_, time)| time).sum();
    let mut passed = 0;
    let middle = lasted.iter().find(|(_, time)| {
        passed += time;
        2 * passed > whole
    });
    // What was seen for one instant lasted for none.
    let middle = middle.or_else(|| lasted.last());
    middle.map_or(MicroUsd(0), |(price, _)| *price)
}

/// Dollars as an argument gives them.
fn dollars(name: &str, value: f64) -> Result<MicroUsd, Failure> {
    if value.is_finite() && (0.0..=1e6).contains(&value) {
        Ok(MicroUsd((value * 1e6).round() as u64))
    } else {
        let message = format!("--{name} {value} is outside 0 to 1000000 dollars");
        Err(Failure::new(Exit::Usage, message))
    }
}

fn recorded(
    pool: &Observed,
    args: &MarketTraceArgs,
    path: &Path,
    most: u32,
) -> Result<Recorded, Failure> {
    let mut assumed = Vec::new();
    let priced = priced(args)?;
    let usual = priced.as_ref().unwrap_or(pool).spot_price.as_ref();
    let usual = usual.map(median);
    let on_demand = on_demand(args, pool, usual, &mut assumed)?;
    let mut joined = match &priced {
        Some(prices) => {
            let scale = match args.prices_on_demand {
                Some(from) => Some(Scale {
                    from: dollars("prices-on-demand", from)?,
                    to: on_demand,
                }),
                None => None,
            };
            compose(prices, pool, Align::Begin, scale).or_exit(Exit::BadInput)?
        }
        None => pool.clone(),
    };
    if args.on_demand.is_some() {
        // What is said holds for all slots.
        joined.on_demand_price = None;
    }
    let mut spot_price = None;
    if joined.spot_price.is_none() {
        let price = match args.spot_price {
            Some(price) => dollars("spot-price", price)?,
            None => {
                let price = on_demand.dollars() * SPOT_SHARE;
                assumed.push(format!(
                    "spot costs {price:.3} USD an hour: --spot-price sets it"
                ));
                dollars("spot-price", price)?
            }
        };
        spot_price = Some(price);
    }
    let mut spot_available = None;
    if joined.spot_available.is_none() {
        let machines = args.spot_machines.unwrap_or(most);
        assumed.push(format!(
            "there are {machines} spot machines at all times: --spot-machines sets it"
        ));
        spot_available = Some(machines);
    }
    let cut = Cut {
        slot: Micros(args.slot * 60_000_000),
        price: PriceRule::First,
        on_demand_price: on_demand,
        on_demand_available: None,
        spot_price,
        spot_available,
    };
    let market = resample(&joined, &cut)
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
        .or_exit(Exit::BadInput)?;
    let file = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let pool = &joined.pool;
    let parts = [&pool.machine, &pool.zone];
    let own: Vec<&str> = parts
        .into_iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty() && !file.contains(part))
        .collect();
    Ok(Recorded {
        name: if own.is_empty() {
            file
        } else {
            format!("{file} {}", own.join(" "))
        },
        market,
        dated: joined.dated,
        assumed,
    })
}

/// What a machine on demand costs for an hour, in the middle where the file says it slot by slot.
fn on_demand(
    args: &MarketTraceArgs,
    pool: &Observed,
    usual: Option<MicroUsd>,
    assumed: &mut Vec<String>,
) -> Result<MicroUsd, Failure> {
    Ok(match (args.on_demand, &pool.on_demand_price, usual) {
        (Some(price), _, _) => dollars("on-demand", price)?,
        // The one of the file is used slot by slot.
        (None, Some(steps), _) => median(steps),
        (None, None, Some(usual)) => {
            let price = MicroUsd((usual.dollars() / SPOT_SHARE * 1e6).round() as u64);
            let dollars = price.dollars();
            assumed.push(format!(
                "on demand costs {dollars:.3} USD an hour, the median spot price over {SPOT_SHARE}: --on-demand sets it"
            ));
            price
        }
        (None, None, None) => {
            assumed.push("on demand costs 1 USD an hour: --on-demand sets it".to_owned());
            MicroUsd(1_000_000)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(prices: &[(u64, u64)], end: u64) -> Steps<MicroUsd> {
        let prices = prices
            .iter()
            .map(|(at, price)| (Micros(*at), MicroUsd(*price)));
        Steps::new(prices.collect(), Micros(end)).expect("there are prices")
    }

    #[test]
    fn the_median_of_prices_is_by_time_and_not_by_changes() {
        let hours_and_a_minute = [(0, 500), (600, 1_000), (601, 2_000), (602, 3_000)];
        assert_eq!(median(&steps(&hours_and_a_minute, 603)), MicroUsd(500));
        assert_eq!(median(&steps(&[(0, 500), (10, 700)], 30)), MicroUsd(700));
        // As of slots, of two that lasted as long it is the dearer.
        assert_eq!(median(&steps(&[(0, 500), (10, 700)], 20)), MicroUsd(700));
        assert_eq!(median(&steps(&[(7, 500)], 7)), MicroUsd(500));
    }
}
