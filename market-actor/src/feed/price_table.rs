//! AWS price history as CSV: `timestamp,availability_zone,instance_type,usd_per_hour` with a header.
//!
//! A row is a change or a daily repeat; its price holds until the next row of the same zone and type. Rows of several
//! zones and types may be mixed and unsorted. There is no capacity. A series ends with its last row.

use std::collections::BTreeMap;

use shared::units::{MicroUsd, Micros};

use super::fault::{Faults, FeedError};
use super::table::{Fault, Row, rows};
use super::{Observed, Steps, instant, money, region_of};
use crate::market::Pool;

/// The first row.
pub const HEADER: &str = "timestamp,availability_zone,instance_type,usd_per_hour";

/// Prices by pool, as they are found.
pub(super) type Prices = BTreeMap<Pool, Vec<(Micros, MicroUsd)>>;

/// Reads a file; one pool for each zone and type, in order of both.
///
/// # Errors
/// Another header, bad rows, no rows.
pub fn parse(source_name: &str, text: &str) -> Result<Vec<Observed>, FeedError> {
    let mut faults = Faults::new(source_name);
    let mut prices = Prices::new();
    for (at, row) in rows(text).enumerate() {
        if at == 0 {
            let found = row.is_header(HEADER);
            faults.keep(row.line, found);
            continue;
        }
        let found = price(&row);
        if let Some((pool, at, price)) = faults.keep(row.line, found) {
            prices.entry(pool).or_default().push((at, price));
        }
    }
    finish(source_name, faults.or(prices)?)
}

fn price(row: &Row<'_>) -> Result<(Pool, Micros, MicroUsd), Fault> {
    let [at, zone, machine, price] = row.all()?;
    let instant = instant::parse(at.1).map_err(|fault| (at.0, fault))?;
    let usd = money::parse(price.1).map_err(|fault| (price.0, fault))?;
    Ok((pool(zone.1, machine.1), instant, usd))
}

/// The pool of an AWS zone and instance type.
pub(super) fn pool(zone: &str, machine: &str) -> Pool {
    Pool {
        provider: "aws".to_owned(),
        region: region_of(zone),
        zone: zone.to_owned(),
        machine: machine.to_owned(),
    }
}

/// Pools with prices, if there are any.
pub(super) fn finish(source_name: &str, prices: Prices) -> Result<Vec<Observed>, FeedError> {
    if prices.is_empty() {
        return Err(FeedError::Empty {
            source_name: source_name.to_owned(),
        });
    }
    let pools = prices.into_iter().map(|(pool, changes)| {
        let mut observed = Observed::nothing(pool, true);
        observed.spot_price = Steps::new(changes, Micros(0));
        observed
    });
    Ok(pools.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_told_apart_and_sorted() {
        let text = format!(
            "{HEADER}\n2021-03-02T14:00:00+00:00,us-east-1c,g3.4xlarge,0.342\n\
             2021-03-02T15:00:00+00:00,us-east-1a,g3.4xlarge,0.35\n2021-03-02T13:00:00+00:00,us-east-1a,g3.4xlarge,0.36\n"
        );
        let pools = parse("g3.csv", &text).unwrap();
        let zones: Vec<&str> = pools.iter().map(|p| p.pool.zone.as_str()).collect();
        assert_eq!(zones, ["us-east-1a", "us-east-1c"]);
        let first = pools[0].spot_price.as_ref().unwrap();
        let prices: Vec<u64> = first.changes().iter().map(|(_, price)| price.0).collect();
        assert_eq!(prices, [360_000, 350_000]);
        assert!(pools[0].dated && pools[0].spot_available.is_none());
    }

    #[test]
    fn bad_rows_are_listed() {
        let text = format!(
            "{HEADER}\nyesterday,z,m,1\n2021-03-02T14:00:00Z,z,m,-1\n2021-03-02T14:00:00Z,z\n"
        );
        let message = parse("g3.csv", &text).unwrap_err().to_string();
        for said in [
            "line 2, column 1: \"yesterday\" is no time",
            "line 3, column 26: \"-1\" is no price",
            "line 4, column 1: 2 cells where 4 belong",
        ] {
            assert!(message.contains(said), "{said} in {message}");
        }
        let message = parse("g3.csv", "time,price\n").unwrap_err().to_string();
        assert!(message.contains("line 1, column 1: \"time,price\" stands where"));
        assert!(matches!(
            parse("g3.csv", HEADER),
            Err(FeedError::Empty { .. })
        ));
    }
}
