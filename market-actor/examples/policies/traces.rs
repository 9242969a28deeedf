//! Just enough of two kinds of trace files to build the markets of the back-test.

use std::path::Path;

use anyhow::{Context as _, Result};
use market_actor::market::{Market, Pool, Slot};
use shared::units::{MicroUsd, Micros};

/// Seconds of a slot.
pub(crate) const SLOT: i64 = 1800;

/// Capacity of a file of the SkyPilot set, as the least of each slot.
pub(crate) fn capacity(path: &Path) -> Result<Vec<u32>> {
    #[derive(serde::Deserialize)]
    struct File {
        metadata: Metadata,
        data: Vec<u32>,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        gap_seconds: i64,
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file: File = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let ticks = (SLOT / file.metadata.gap_seconds).max(1) as usize;
    let least = |part: &[u32]| part.iter().copied().min().unwrap_or(0);
    Ok(file.data.chunks_exact(ticks).map(least).collect())
}

/// Price of each slot from `skip` slots after the first row of a price file on, over `on_demand`: that at its start, or the
/// highest in it.
pub(crate) fn prices(
    path: &Path,
    on_demand: f64,
    skip: usize,
    count: usize,
    highest: bool,
) -> Result<Vec<f64>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut rows = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [time, _, _, price] = fields[..] else {
            anyhow::bail!(
                "{}: a row of other than four fields: {line}",
                path.display()
            );
        };
        rows.push((seconds(time)?, price.parse::<f64>()? / on_demand));
    }
    let first = rows.first().context("a price file without rows")?.0;
    Ok((skip..skip + count)
        .map(|slot| {
            let at = first + slot as i64 * SLOT;
            let start = rows.partition_point(|row| row.0 <= at) - 1;
            let end = rows.partition_point(|row| row.0 < at + SLOT);
            let seen = if highest {
                &rows[start..end]
            } else {
                &rows[start..=start]
            };
            seen.iter().map(|row| row.1).fold(0.0, f64::max)
        })
        .collect())
}

/// A market with an on-demand price of one dollar for a slot.
pub(crate) fn market(name: &str, capacity: &[u32], price: &[f64]) -> Market {
    let hourly = |price: f64| MicroUsd((price * 2e6).round() as u64);
    let slots = capacity.iter().zip(price).map(|(&count, &price)| Slot {
        spot_price: hourly(price),
        spot_available: count,
        on_demand_price: hourly(1.0),
        on_demand_available: None,
    });
    Market {
        pool: Pool {
            provider: name.to_owned(),
            region: String::new(),
            zone: String::new(),
            machine: "g".to_owned(),
        },
        start: Micros(0),
        slot: Micros(SLOT as u64 * 1_000_000),
        slots: slots.collect(),
    }
}

/// Seconds since 1970 of `2015-03-11T16:53:20+00:00`.
fn seconds(text: &str) -> Result<i64> {
    let part = |range: std::ops::Range<usize>| -> Result<i64> {
        Ok(text.get(range).context("a short time")?.parse()?)
    };
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    // Days by the civil calendar with years that begin in March.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Ok(days * 86_400 + part(11..13)? * 3600 + part(14..16)? * 60 + part(17..19)?)
}
