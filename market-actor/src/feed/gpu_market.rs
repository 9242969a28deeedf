//! Snapshots of a marketplace as CSV: quantiles of the asking price per GPU and hour, and the number of offers.
//!
//! The median asking price stands for the price and all offers for the capacity: a price level and a depth of a whole
//! market, on-demand and spot mixed, not a pool of spot machines. A "machine" here is one GPU. The name of the file is
//! the GPU.

use shared::units::{MicroUsd, Micros};

use super::fault::{Faults, FeedError};
use super::table::{Fault, Row, count, rows};
use super::{Observed, Steps, instant, money, stem};
use crate::market::Pool;

/// The first row.
pub const HEADER: &str = "timestamp,usd_min,usd_p10,usd_p25,usd_median,usd_p75,usd_p90,usd_max,usd_mean,offers_total,stock_available,stock_low,stock_medium,stock_high,providers";

/// More offers than a marketplace lists.
const MOST_OFFERS: u64 = 1_000_000;

/// Reads a file.
///
/// # Errors
/// Another header, bad rows, no rows.
pub fn parse(source_name: &str, text: &str) -> Result<Observed, FeedError> {
    let mut faults = Faults::new(source_name);
    let (mut prices, mut offers) = (Vec::new(), Vec::new());
    for (at, row) in rows(text).enumerate() {
        if at == 0 {
            let found = row.is_header(HEADER);
            faults.keep(row.line, found);
            continue;
        }
        let found = snapshot(&row);
        if let Some((at, price, offered)) = faults.keep(row.line, found) {
            prices.push((at, price));
            offers.push((at, offered));
        }
    }
    let prices = faults.or(prices)?;
    let pool = Pool {
        provider: "marketplace".to_owned(),
        region: String::new(),
        zone: String::new(),
        machine: stem(source_name).to_owned(),
    };
    let mut observed = Observed::nothing(pool, true);
    observed.spot_price = Steps::new(prices, Micros(0));
    observed.spot_available = Steps::new(offers, Micros(0));
    if observed.spot_price.is_none() {
        return Err(FeedError::Empty {
            source_name: source_name.to_owned(),
        });
    }
    Ok(observed)
}

fn snapshot(row: &Row<'_>) -> Result<(Micros, MicroUsd, u32), Fault> {
    let cells: [_; 15] = row.all()?;
    let at = instant::parse(cells[0].1).map_err(|fault| (cells[0].0, fault))?;
    let median = money::parse(cells[4].1).map_err(|fault| (cells[4].0, fault))?;
    let offers = count(cells[9], "a number of offers", MOST_OFFERS)?;
    Ok((at, median, offers as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_offers() {
        let text = format!(
            "{HEADER}\n2025-10-19T21:00:00.5+00:00,1,1,1,1.64,1.65,1.65,1.66,1.53,40,23,17,0,0,6\n\
             2025-10-19T21:30:00+00:00,1,1,1,1.6,1.65,1.65,1.66,1.53,38,23,15,0,0,6\n"
        );
        let observed = parse("gpu/A100_80GB_PCIe.csv", &text).unwrap();
        assert_eq!(observed.pool.machine, "A100_80GB_PCIe");
        let prices = observed.spot_price.unwrap();
        assert_eq!(prices.changes()[1].1, MicroUsd(1_600_000));
        assert_eq!(observed.spot_available.unwrap().changes()[0].1, 40);
    }

    #[test]
    fn bad_rows_are_listed() {
        let text = format!("{HEADER}\n2025-10-19T21:00:00Z,1,1,1,x,1,1,1,1,40,2,1,0,0,6\n1,2\n");
        let message = parse("a.csv", &text).unwrap_err().to_string();
        assert!(
            message.contains("line 2, column 28: \"x\" is no price"),
            "{message}"
        );
        assert!(
            message.contains("line 3, column 1: 2 cells where 15 belong"),
            "{message}"
        );
        assert!(parse("a.csv", "x\n").is_err());
    }
}
