//! SkyPilot's spot traces: `{"metadata": {"gap_seconds": 300}, "data": [0, 3, ...], "prices": [0.918, ...]}`.
//!
//! One value a tick, without dates: how many machines a probe was given or held. `prices` (dollars an hour) is there in
//! few files and has one value for each of `data`. The name of the file is the pool: `us-west-2a_v100_1.json`. A value
//! of 1 in a trace of one node means "at least one". The traces are of Wu et al., "Can't Be Late", NSDI'24.

use serde::Deserialize;
use serde_json::Value;
use shared::units::{MicroUsd, Micros};

use super::fault::{Faults, FeedError, RowFault, place};
use super::{Observed, Steps, money, region_of, stem};
use crate::market::Pool;

/// More machines than any probe asks for.
pub(super) const MOST_MACHINES: u64 = 1_000_000;

#[derive(Deserialize)]
struct Trace {
    metadata: Metadata,
    data: Vec<Value>,
    prices: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Metadata {
    gap_seconds: Value,
}

/// Reads one file; `source_name` is its name.
///
/// # Errors
/// Text that is no such JSON, values that are no counts or prices, prices and data of different lengths, no data.
pub fn parse(source_name: &str, text: &str) -> Result<Observed, FeedError> {
    let mut faults = Faults::new(source_name);
    let trace: Trace = match serde_json::from_str(text) {
        Ok(trace) => trace,
        Err(error) => {
            faults.add(error.line(), error.column(), RowFault::Json(error));
            return Err(faults.or(()).expect_err("a fault was added"));
        }
    };
    if let Some(prices) = &trace.prices
        && prices.len() != trace.data.len()
    {
        return Err(FeedError::Lengths {
            source_name: source_name.to_owned(),
            prices: prices.len(),
            values: trace.data.len(),
        });
    }
    let gap = gap(text, &trace.metadata.gap_seconds, &mut faults);
    let counts = counts(text, &trace.data, &mut faults);
    let prices = trace.prices.map(|all| prices(text, &all, &mut faults));
    let gap = faults.or(gap)?;
    let Some(capacity) = Steps::ticks(counts, gap) else {
        return Err(FeedError::Empty {
            source_name: source_name.to_owned(),
        });
    };
    let mut observed = Observed::nothing(pool(source_name), false);
    observed.spot_available = Some(capacity);
    observed.spot_price = prices.and_then(|all| Steps::ticks(all, gap));
    Ok(observed)
}

fn pool(source_name: &str) -> Pool {
    let name = stem(source_name);
    let (zone, machine) = name.split_once('_').unwrap_or(("", name));
    Pool {
        provider: "skypilot".to_owned(),
        region: region_of(zone),
        zone: zone.to_owned(),
        machine: machine.to_owned(),
    }
}

fn gap(text: &str, value: &Value, faults: &mut Faults<'_>) -> Micros {
    let seconds = value.as_f64().unwrap_or(0.0);
    let micros = (seconds * 1e6).round();
    if (1.0..=1e13).contains(&micros) {
        return Micros(micros as u64);
    }
    let at = text.find("\"gap_seconds\"").unwrap_or(0);
    let (line, column) = place(text, at);
    let fault = RowFault::Number {
        what: "gap_seconds",
        text: value.to_string(),
        least: 1,
        most: 10_000_000,
    };
    faults.add(line, column, fault);
    Micros(1)
}

fn counts(text: &str, values: &[Value], faults: &mut Faults<'_>) -> Vec<u32> {
    let mut counts = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        let count = value.as_u64().filter(|count| *count <= MOST_MACHINES);
        if count.is_none() {
            let fault = || RowFault::Number {
                what: "a number of machines",
                text: value.to_string(),
                least: 0,
                most: MOST_MACHINES,
            };
            faults.add_at(text, || element(text, "data", at), fault);
        }
        counts.push(count.unwrap_or(0) as u32);
    }
    counts
}

fn prices(text: &str, values: &[Value], faults: &mut Faults<'_>) -> Vec<MicroUsd> {
    let mut prices = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        let price = value.as_f64().and_then(money::of_dollars);
        if price.is_none() {
            let fault = || RowFault::Price {
                text: value.to_string(),
            };
            faults.add_at(text, || element(text, "prices", at), fault);
        }
        prices.push(price.unwrap_or_default());
    }
    prices
}

/// Where element `index` of the array under a key of the outer object begins. The text is known to be JSON.
fn element(text: &str, key: &str, index: usize) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0usize, 0usize);
    let mut last_text = 0..0;
    let mut commas: Option<usize> = None;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let begin = at + 1;
                at = begin;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                if depth == 1 {
                    last_text = begin..at.min(bytes.len());
                }
            }
            b'[' if depth == 1 && text.get(last_text.clone()) == Some(key) => {
                depth += 1;
                commas = Some(0);
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 2 => commas = commas.map(|n| n + 1),
            _ => {}
        }
        at += 1;
        if commas == Some(index) && depth == 2 {
            let blank = bytes[at..].iter().take_while(|b| b.is_ascii_whitespace());
            return at + blank.count();
        }
        if depth < 2 {
            commas = None;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = r#"{"metadata": {"gap_seconds": 300}, "data": [0, 3, 16]}"#;

    #[test]
    fn capacity_without_prices() {
        let observed = parse("16-node/us-west-2a_v100_1.json", PLAIN).unwrap();
        assert_eq!(observed.pool.zone, "us-west-2a");
        assert_eq!(observed.pool.region, "us-west-2");
        assert_eq!(observed.pool.machine, "v100_1");
        assert!(!observed.dated && observed.spot_price.is_none());
        let steps = observed.spot_available.unwrap();
        assert_eq!(steps.changes()[2], (Micros(600_000_000), 16));
        assert_eq!(steps.end(), Micros(900_000_000));
    }

    #[test]
    fn prices_lie_beside_capacity() {
        let text = r#"{"metadata": {"gap_seconds": 32}, "data": [1, 0], "prices": [0.918, 1]}"#;
        let observed = parse("us-east-1f_v100_1.json", text).unwrap();
        let prices = observed.spot_price.unwrap();
        let expected = [
            (Micros(0), MicroUsd(918_000)),
            (Micros(32_000_000), MicroUsd(1_000_000)),
        ];
        assert_eq!(prices.changes(), expected);
    }

    #[test]
    fn every_bad_value_is_pointed_at() {
        let text = "{\"x\": [\"data\", 1], \"metadata\": {\"gap_seconds\": 0},\n \"data\": [0, -3,\n \"a,b\", 1.5],\n \"prices\": [1, 1, -1, 1]}";
        let message = parse("t.json", text).unwrap_err().to_string();
        for place in [
            "line 1, column 33: gap_seconds",
            "line 2, column 14: a number of machines is not \"-3\"",
            "line 3, column 2: ",
            "line 3, column 9: ",
            "line 4, column 19: \"-1\" is no price",
        ] {
            assert!(message.contains(place), "{place} in {message}");
        }
    }

    #[test]
    fn what_is_no_trace() {
        let broken = parse("t.json", "{\n  \"data\": [").unwrap_err().to_string();
        assert!(broken.contains("line 2, column"), "{broken}");
        let short = r#"{"metadata": {"gap_seconds": 1}, "data": [1, 0], "prices": [0.918]}"#;
        assert!(matches!(
            parse("t.json", short),
            Err(FeedError::Lengths {
                prices: 1,
                values: 2,
                ..
            })
        ));
        let empty = r#"{"metadata": {"gap_seconds": 1}, "data": []}"#;
        assert!(matches!(
            parse("t.json", empty),
            Err(FeedError::Empty { .. })
        ));
    }
}
