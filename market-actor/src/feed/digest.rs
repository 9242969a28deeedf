//! A market in a few figures.

use serde::Serialize;
use shared::units::MicroUsd;

use crate::market::{Market, Pool};

/// What there is to know of a market at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Digest {
    /// Which pool.
    pub pool: Pool,
    /// Slots.
    pub slots: usize,
    /// Minutes of a slot.
    pub slot_minutes: f64,
    /// Least, median and greatest spot price of an hour.
    pub spot_price: [MicroUsd; 3],
    /// Slots in which the price is another than before.
    pub price_changes: usize,
    /// On-demand price of an hour, of the last slot.
    pub on_demand_price: MicroUsd,
    /// Share of slots in which spot costs as much as on-demand or more.
    pub dear: f64,
    /// Least, median and greatest number of spot machines.
    pub spot_available: [u32; 3],
    /// Mean number of spot machines.
    pub mean_available: f64,
    /// Share of slots without a spot machine.
    pub without: f64,
    /// Most slots in a row without one.
    pub longest_without: usize,
    /// Slots in which there are fewer than before.
    pub losses: usize,
}

/// Sums a market up; nothing of one without a slot.
#[must_use]
pub fn digest(market: &Market) -> Option<Digest> {
    let slots = &market.slots;
    let last = slots.last()?;
    let count = slots.len() as f64;
    let mut prices: Vec<MicroUsd> = slots.iter().map(|slot| slot.spot_price).collect();
    prices.sort_unstable();
    let mut counts: Vec<u32> = slots.iter().map(|slot| slot.spot_available).collect();
    let sum: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    counts.sort_unstable();
    let (mut longest, mut row) = (0, 0);
    for slot in slots {
        row = if slot.spot_available == 0 { row + 1 } else { 0 };
        longest = longest.max(row);
    }
    let share = |of: usize| of as f64 / count;
    let pairs = || slots.windows(2);
    let middle = slots.len() / 2;
    Some(Digest {
        pool: market.pool.clone(),
        slots: slots.len(),
        slot_minutes: market.slot.seconds() / 60.0,
        spot_price: [prices[0], prices[middle], prices[slots.len() - 1]],
        price_changes: pairs()
            .filter(|two| two[0].spot_price != two[1].spot_price)
            .count(),
        on_demand_price: last.on_demand_price,
        dear: share(
            slots
                .iter()
                .filter(|slot| slot.spot_price >= slot.on_demand_price)
                .count(),
        ),
        spot_available: [counts[0], counts[middle], counts[slots.len() - 1]],
        mean_available: sum as f64 / count,
        without: share(slots.iter().filter(|slot| slot.spot_available == 0).count()),
        longest_without: longest,
        losses: pairs()
            .filter(|two| two[1].spot_available < two[0].spot_available)
            .count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::episode::tests::market;

    #[test]
    fn figures_by_hand() {
        let market = market(&[(0.3, 4), (0.3, 0), (0.5, 0), (1.0, 2)], 1.0);
        let told = digest(&market).expect("there are slots");
        assert_eq!(
            told.spot_price,
            [MicroUsd(600_000), MicroUsd(1_000_000), MicroUsd(2_000_000)]
        );
        assert_eq!(
            (told.price_changes, told.losses, told.longest_without),
            (2, 1, 2)
        );
        assert_eq!(
            (told.dear, told.without, told.mean_available),
            (0.25, 0.5, 1.5)
        );
        assert_eq!(told.spot_available, [0, 2, 4]);
        let none = Market {
            slots: Vec::new(),
            ..market
        };
        assert_eq!(digest(&none), None);
    }
}
