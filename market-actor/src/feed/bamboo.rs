//! Sizes of clusters over time, as the artefacts of Bamboo (NSDI'23) and Parcae (NSDI'24) have them: no prices.
//!
//! | format | rows |
//! | --- | --- |
//! | events | `milliseconds,add` or `remove`, `,node`: the size is what was added and not removed |
//! | clock | `YYYY-MM-DD, HH:MM:SS, size`, UTC, unsorted: of rows at one instant the last in the file counts |
//! | steps | `time,size` twice a change, before and after; hours if any time has a point, else seconds |
//! | milliseconds | `milliseconds,size` |
//!
//! None of them says what follows its last row, so a series ends with that row.

use std::collections::BTreeSet;

use shared::units::Micros;

use super::fault::{Faults, FeedError, RowFault};
use super::instant;
use super::table::{Fault, Row, count, rows};
use super::{Observed, Steps, region_of, stem};
use crate::market::Pool;

/// More machines than any of these clusters has.
const MOST_MACHINES: u64 = 1_000_000;
/// Three centuries.
const MOST_MILLIS: u64 = 10_000_000_000_000;

/// Reads events `ms,add|remove,node`.
///
/// # Errors
/// Bad rows, among them a node that is added twice or removed without being there; no rows.
pub fn events(source_name: &str, text: &str) -> Result<Observed, FeedError> {
    let mut faults = Faults::new(source_name);
    let mut nodes = BTreeSet::new();
    let mut sizes = Vec::new();
    for row in rows(text) {
        let found = event(&row, &mut nodes);
        if let Some(at) = faults.keep(row.line, found) {
            sizes.push((at, nodes.len() as u32));
        }
    }
    finish(source_name, faults.or(sizes)?, false)
}

fn event(row: &Row<'_>, nodes: &mut BTreeSet<String>) -> Result<Micros, Fault> {
    let [at, what, node] = row.all()?;
    let at = Micros::of_millis(count(at, "a time in milliseconds", MOST_MILLIS)?);
    let changed = match what.1 {
        "add" => nodes.insert(node.1.to_owned()),
        "remove" => nodes.remove(node.1),
        other => {
            let fault = RowFault::Word {
                text: other.to_owned(),
                wanted: "add or remove",
            };
            return Err((what.0, fault));
        }
    };
    if changed {
        return Ok(at);
    }
    let fault = RowFault::Node {
        node: node.1.to_owned(),
        there: what.1 == "add",
    };
    Err((node.0, fault))
}

/// Reads `YYYY-MM-DD, HH:MM:SS, size`.
///
/// # Errors
/// Bad rows, no rows.
pub fn clock(source_name: &str, text: &str) -> Result<Observed, FeedError> {
    let sizes = each(source_name, text, |row| {
        let [date, time, size] = row.all()?;
        let text = format!("{}T{}", date.1, time.1);
        let at = instant::parse(&text).map_err(|_| {
            let form = "2021-12-10, 13:07:45";
            let text = format!("{}, {}", date.1, time.1);
            (date.0, RowFault::Instant { text, form })
        })?;
        Ok((at, size_of(size)?))
    })?;
    finish(source_name, sizes, true)
}

/// Reads `time,size`, two rows a change; times with a point anywhere are hours, otherwise seconds. The source names no
/// unit: hours fit the dates in the name of its file with points, days would not.
///
/// # Errors
/// Bad rows, no rows.
pub fn steps(source_name: &str, text: &str) -> Result<Observed, FeedError> {
    let unit = if text.contains('.') { 3600.0 } else { 1.0 };
    let sizes = each(source_name, text, |row| {
        let [time, size] = row.all()?;
        let number = time.1.parse::<f64>().unwrap_or(f64::NAN);
        let seconds = number * unit;
        if !(0.0..=1e10).contains(&seconds) {
            let fault = RowFault::Number {
                what: "a time",
                text: time.1.to_owned(),
                least: 0,
                most: 10_000_000_000,
            };
            return Err((time.0, fault));
        }
        Ok((Micros((seconds * 1e6).round() as u64), size_of(size)?))
    })?;
    finish(source_name, sizes, false)
}

/// Reads `ms,size`.
///
/// # Errors
/// Bad rows, no rows.
pub fn milliseconds(source_name: &str, text: &str) -> Result<Observed, FeedError> {
    let sizes = each(source_name, text, |row| {
        let [at, size] = row.all()?;
        let at = Micros::of_millis(count(at, "a time in milliseconds", MOST_MILLIS)?);
        Ok((at, size_of(size)?))
    })?;
    finish(source_name, sizes, false)
}

fn size_of(cell: (usize, &str)) -> Result<u32, Fault> {
    count(cell, "a size", MOST_MACHINES).map(|size| size as u32)
}

fn each(
    source_name: &str,
    text: &str,
    mut read: impl FnMut(&Row<'_>) -> Result<(Micros, u32), Fault>,
) -> Result<Vec<(Micros, u32)>, FeedError> {
    let mut faults = Faults::new(source_name);
    let mut sizes = Vec::new();
    for row in rows(text) {
        let found = read(&row);
        sizes.extend(faults.keep(row.line, found));
    }
    faults.or(sizes)
}

fn finish(
    source_name: &str,
    sizes: Vec<(Micros, u32)>,
    dated: bool,
) -> Result<Observed, FeedError> {
    let mut observed = Observed::nothing(pool(source_name), dated);
    observed.spot_available = Steps::new(sizes, Micros(0));
    if observed.spot_available.is_none() {
        return Err(FeedError::Empty {
            source_name: source_name.to_owned(),
        });
    }
    Ok(observed)
}

/// The whole name is the machine; some names have a zone in them, such as `g4dn-xlarge-us-east-1c-2020`.
fn pool(source_name: &str) -> Pool {
    let machine = stem(source_name);
    let words: Vec<&str> = machine.split('-').collect();
    let zone = words
        .windows(3)
        .map(|three| three.join("-"))
        .find(|name| name.starts_with("us-") && !region_of(name).is_empty());
    let zone = zone.unwrap_or_default();
    Pool {
        provider: "bamboo".to_owned(),
        region: region_of(&zone),
        zone,
        machine: machine.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(observed: Result<Observed, FeedError>) -> Vec<(u64, u32)> {
        let steps = observed.unwrap().spot_available.unwrap();
        let changes = steps.changes().iter();
        changes.map(|(at, size)| (at.0 / 1000, *size)).collect()
    }

    #[test]
    fn events_add_up() {
        let text = "0,add,node1\n0,add,node2\n500,remove,node1\n900,add,node1\n";
        assert_eq!(sizes(events("p3.csv", text)), [(0, 2), (500, 1), (900, 2)]);
    }

    #[test]
    fn events_that_cannot_be() {
        let text = "0,add,a\n5,add,a\n6,remove,b\n7,move,a\nx,add,c\n8,add\n";
        let message = events("p3.csv", text).unwrap_err().to_string();
        for said in [
            "5 bad rows",
            "line 2, column 7: node \"a\" is added twice",
            "line 3, column 10: node \"b\" is removed but was not there",
            "line 4, column 3: \"move\" stands where add or remove belongs",
            "line 5, column 1: a time in milliseconds is not \"x\"",
            "line 6, column 1: 2 cells where 3 belong",
        ] {
            assert!(message.contains(said), "{said} in {message}");
        }
    }

    #[test]
    fn clocks_are_sorted_and_the_last_of_an_instant_counts() {
        let text = "1970-01-01, 00:00:02, 8\n1970-01-01, 00:00:03, 8\n1970-01-01, 00:00:02, 5\n1970-01-01, 00:00:01, 7\n";
        let observed = clock("v100x1-east1c.txt", text);
        assert!(observed.as_ref().unwrap().dated);
        assert_eq!(sizes(observed), [(1000, 7), (2000, 5), (3000, 8)]);
        let message = clock("t", "1970-01-41, 00:00:02, 8\n")
            .unwrap_err()
            .to_string();
        assert!(message.contains("2021-12-10, 13:07:45"), "{message}");
    }

    #[test]
    fn steps_are_in_hours_when_there_is_a_point() {
        let seconds = steps("g4dn-xlarge-us-east-1c-2020.csv", "0,0\n60,0\n60,4\n75,4\n");
        assert_eq!(seconds.as_ref().unwrap().pool.zone, "us-east-1c");
        assert_eq!(sizes(seconds), [(0, 0), (60_000, 4), (75_000, 4)]);
        let hours = steps("p2.csv", "0.000,0\n0.500,0\n0.500,9\n");
        assert_eq!(sizes(hours), [(0, 0), (1_800_000, 9)]);
        assert!(steps("p2.csv", "-1,0\nx,0\n").is_err());
    }

    #[test]
    fn milliseconds_with_sizes() {
        let text = "0,1\n0,2\n40,3\n";
        assert_eq!(sizes(milliseconds("p3-size.csv", text)), [(0, 2), (40, 3)]);
        assert!(matches!(
            milliseconds("p3-size.csv", "\n"),
            Err(FeedError::Empty { .. })
        ));
    }
}
