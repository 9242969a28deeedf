//! Our own recordings of what a provider shows: JSON lines, version 1.
//!
//! ```text
//! {"spotmux_market":1}
//! {"pool":0,"provider":"aws","region":"us-east-1","zone":"us-east-1a","machine":"p3.2xlarge"}
//! {"at":1700000000000000,"of":0,"spot_price":918000,"spot_available":4}
//! ```
//!
//! The head names the version. A pool is named before its first sighting; numbers count from 0. A sighting has
//! microseconds since 1970-01-01 UTC (`at`), a pool (`of`), and what was seen: prices in millionths of a dollar an hour (at most
//! a million dollars; 0 is a price, that of machines which cost nothing, as those of a fixed list), machines (at most a million); what is
//! absent was not looked at. Another head begins the numbers of pools anew, so a process that comes
//! back appends to the same file. A last line without its end was cut while it was written: it is passed over.
//!
//! RC-1: what is written and read back is what was given to write.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use shared::units::{MicroUsd, Micros};

use super::fault::{Faults, FeedError, RowFault};
use super::skypilot::MOST_MACHINES;
use super::{Observed, Steps, money};
use crate::market::Pool;

/// Instants lie before the year 10000.
const LAST: u64 = 253_402_300_800_000_000;

/// The version that is written, and the last one that is read.
pub const VERSION: u64 = 1;

/// What one look at a pool showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Since 1970-01-01 UTC.
    pub at: Micros,
    /// Of which pool.
    pub pool: Pool,
    /// Of one spot machine, for an hour.
    pub spot_price: Option<MicroUsd>,
    /// Spot machines that the pool would give.
    pub spot_available: Option<u32>,
    /// Of one on-demand machine, for an hour.
    pub on_demand_price: Option<MicroUsd>,
    /// On-demand machines that the pool would give.
    pub on_demand_available: Option<u32>,
}

/// Turns sightings into lines. It remembers which pools were named; the shell appends what it returns to a file.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    begun: bool,
    pools: BTreeMap<Pool, u64>,
}

/// What was read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// In the order of the file.
    pub sightings: Vec<Sighting>,
    /// Whether a last line was cut, and passed over.
    pub cut: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadLine {
    spotmux_market: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolLine {
    pool: u64,
    provider: String,
    region: String,
    zone: String,
    machine: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SightingLine {
    at: Micros,
    of: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    spot_price: Option<MicroUsd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spot_available: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_demand_price: Option<MicroUsd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_demand_available: Option<u32>,
}

/// Which of the three a line is.
#[derive(Deserialize)]
struct Kind {
    spotmux_market: Option<IgnoredAny>,
    pool: Option<IgnoredAny>,
}

impl Recorder {
    /// The lines to append for a sighting, each with its end: a head and the pool where they are due, then the sighting.
    pub fn write(&mut self, sighting: &Sighting) -> String {
        let mut lines = String::new();
        if !self.begun {
            self.begun = true;
            let spotmux_market = VERSION;
            push(&mut lines, &HeadLine { spotmux_market });
        }
        let next = self.pools.len() as u64;
        let of = match self.pools.get(&sighting.pool) {
            Some(number) => *number,
            None => {
                self.pools.insert(sighting.pool.clone(), next);
                let pool = sighting.pool.clone();
                let line = PoolLine {
                    pool: next,
                    provider: pool.provider,
                    region: pool.region,
                    zone: pool.zone,
                    machine: pool.machine,
                };
                push(&mut lines, &line);
                next
            }
        };
        let line = SightingLine {
            at: sighting.at,
            of,
            spot_price: sighting.spot_price,
            spot_available: sighting.spot_available,
            on_demand_price: sighting.on_demand_price,
            on_demand_available: sighting.on_demand_available,
        };
        push(&mut lines, &line);
        lines
    }
}

fn push(lines: &mut String, line: &impl Serialize) {
    let text = serde_json::to_string(line).expect("numbers and texts are always JSON");
    writeln!(lines, "{text}").expect("a text takes what is written");
}

/// Reads a recording.
///
/// # Errors
/// A later version, lines that are none of the three, sightings of pools that were not named, a file without a head.
pub fn parse(source_name: &str, text: &str) -> Result<Recording, FeedError> {
    let mut faults = Faults::new(source_name);
    let mut recording = Recording::default();
    let mut pools: Option<Vec<Pool>> = None;
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    recording.cut = whole < text.len();
    for (at, line) in text[..whole].lines().enumerate() {
        let found = line_of(line);
        match faults.keep(at + 1, found) {
            None => {}
            Some(Line::Head(version)) if version <= VERSION => pools = Some(Vec::new()),
            Some(Line::Head(found)) => {
                return Err(FeedError::Version {
                    source_name: source_name.to_owned(),
                    found,
                    known: VERSION,
                });
            }
            Some(Line::Pool(number, pool)) => match &mut pools {
                Some(pools) if pools.len() as u64 == number => pools.push(pool),
                Some(_) => faults.add(at + 1, 1, out_of_order(number)),
                None => faults.add(at + 1, 1, headless(line)),
            },
            Some(Line::Sighting(seen)) => {
                let place = usize::try_from(seen.of).unwrap_or(usize::MAX);
                match pools.as_ref().map(|pools| pools.get(place)) {
                    Some(Some(pool)) => recording.sightings.push(sighting(seen, pool)),
                    Some(None) => faults.add(at + 1, 1, out_of_order(seen.of)),
                    None => faults.add(at + 1, 1, headless(line)),
                }
            }
        }
    }
    faults.or(recording)
}

enum Line {
    Head(u64),
    Pool(u64, Pool),
    Sighting(SightingLine),
}

fn line_of(line: &str) -> Result<Line, (usize, RowFault)> {
    let fault = |error: serde_json::Error| (error.column(), RowFault::Json(error));
    let kind: Kind = serde_json::from_str(line).map_err(fault)?;
    if kind.spotmux_market.is_some() {
        let head: HeadLine = serde_json::from_str(line).map_err(fault)?;
        return Ok(Line::Head(head.spotmux_market));
    }
    if kind.pool.is_none() {
        let seen: SightingLine = serde_json::from_str(line).map_err(fault)?;
        return bounded(line, seen).map(Line::Sighting);
    }
    let named: PoolLine = serde_json::from_str(line).map_err(fault)?;
    let pool = Pool {
        provider: named.provider,
        region: named.region,
        zone: named.zone,
        machine: named.machine,
    };
    Ok(Line::Pool(named.pool, pool))
}

/// Refuses what no market shows, at the column of its key: sums of it would not be numbers any more.
fn bounded(line: &str, seen: SightingLine) -> Result<SightingLine, (usize, RowFault)> {
    let machines = |count: Option<u32>| count.map(u64::from);
    let price = |price: Option<MicroUsd>| price.map(|price| price.0);
    for (what, value, most) in [
        ("at", Some(seen.at.0), LAST),
        ("spot_price", price(seen.spot_price), money::MOST),
        ("on_demand_price", price(seen.on_demand_price), money::MOST),
        (
            "spot_available",
            machines(seen.spot_available),
            MOST_MACHINES,
        ),
        (
            "on_demand_available",
            machines(seen.on_demand_available),
            MOST_MACHINES,
        ),
    ] {
        let Some(value) = value.filter(|value| *value > most) else {
            continue;
        };
        let byte = line.find(&format!("\"{what}\"")).unwrap_or(0);
        let fault = RowFault::Number {
            what,
            text: value.to_string(),
            least: 0,
            most,
        };
        return Err((line[..byte].chars().count() + 1, fault));
    }
    Ok(seen)
}

fn sighting(seen: SightingLine, pool: &Pool) -> Sighting {
    Sighting {
        at: seen.at,
        pool: pool.clone(),
        spot_price: seen.spot_price,
        spot_available: seen.spot_available,
        on_demand_price: seen.on_demand_price,
        on_demand_available: seen.on_demand_available,
    }
}

fn out_of_order(number: u64) -> RowFault {
    RowFault::Word {
        text: format!("pool {number}"),
        wanted: "the next number for a new pool, or one that was named above",
    }
}

fn headless(line: &str) -> RowFault {
    RowFault::Word {
        text: line.chars().take(40).collect(),
        wanted: "the head {\"spotmux_market\":1}",
    }
}

impl Recording {
    /// What was seen of each pool, in order of pools; a series is known to hold until the last sighting of its pool.
    #[must_use]
    pub fn observed(&self) -> Vec<Observed> {
        let mut pools: BTreeMap<&Pool, Vec<&Sighting>> = BTreeMap::new();
        for sighting in &self.sightings {
            pools.entry(&sighting.pool).or_default().push(sighting);
        }
        let of_pool = |(pool, sightings): (&Pool, Vec<&Sighting>)| Observed {
            spot_price: steps(&sightings, |s| s.spot_price),
            spot_available: steps(&sightings, |s| s.spot_available),
            on_demand_price: steps(&sightings, |s| s.on_demand_price),
            on_demand_available: steps(&sightings, |s| s.on_demand_available),
            ..Observed::nothing(pool.clone(), true)
        };
        pools.into_iter().map(of_pool).collect()
    }
}

fn steps<T: Copy>(
    sightings: &[&Sighting],
    part: impl Fn(&Sighting) -> Option<T>,
) -> Option<Steps<T>> {
    let end = sightings.iter().map(|s| s.at).max()?;
    let seen = sightings.iter();
    let values = seen.filter_map(|s| Some((s.at, part(s)?))).collect();
    Steps::new(values, end)
}

#[cfg(test)]
mod tests;
