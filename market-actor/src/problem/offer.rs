//! What a slot offers, in money of one machine for one slot, and the cheapest way to hold a number of machines.
//!
//! Given n, price and capacity, spot is taken first while it costs less than on-demand, then on-demand, then spot that
//! costs as much or more. So a decision is one integer, and a plan a path of integers.

use serde::{Deserialize, Serialize};
use shared::units::{MicroUsd, Micros};

use crate::market::Slot;

/// Micros of an hour: prices are by the hour.
const HOUR: u128 = 3_600_000_000;

/// What can be had in one slot. Prices are floats because forecasts are means; what is paid is an integer
/// ([`slot_price`]) that a float holds exactly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Of one spot machine for the slot, in millionths of a dollar.
    pub spot_price: f64,
    /// Spot machines that can be held.
    pub spot_available: u32,
    /// Of one on-demand machine for the slot, in millionths of a dollar.
    pub on_demand_price: f64,
    /// On-demand machines that can be held; nothing when there is no end of them.
    pub on_demand_available: Option<u32>,
}

/// Machines of a job by how they are paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Spot machines.
    pub spot: u32,
    /// On-demand machines.
    pub on_demand: u32,
}

/// Price of one machine for a slot from its price for an hour, rounded to the nearest millionth of a dollar.
#[must_use]
pub fn slot_price(hourly: MicroUsd, slot: Micros) -> MicroUsd {
    let exact = u128::from(hourly.0) * u128::from(slot.0);
    MicroUsd(u64::try_from((exact + HOUR / 2) / HOUR).unwrap_or(u64::MAX))
}

/// Price of one machine for an hour from its price for a slot, rounded to the nearest millionth of a dollar.
#[must_use]
pub fn hourly(of_slot: f64, slot: Micros) -> MicroUsd {
    // Beyond the range of the integer the cast stops at its end.
    MicroUsd((of_slot * HOUR as f64 / slot.0.max(1) as f64).round() as u64)
}

impl Held {
    /// All machines.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.spot + self.on_demand
    }
}

impl Offer {
    /// What `slot` of a market with slots of `length` offers.
    #[must_use]
    pub fn of(slot: &Slot, length: Micros) -> Self {
        Self {
            spot_price: slot_price(slot.spot_price, length).0 as f64,
            spot_available: slot.spot_available,
            on_demand_price: slot_price(slot.on_demand_price, length).0 as f64,
            on_demand_available: slot.on_demand_available,
        }
    }

    /// Whether a spot machine costs less than one on demand.
    #[must_use]
    pub fn spot_is_cheaper(&self) -> bool {
        self.spot_price < self.on_demand_price
    }

    /// Spot machines worth taking: those that cost less than on-demand.
    #[must_use]
    pub fn cheap_spot(&self) -> u32 {
        if self.spot_is_cheaper() {
            self.spot_available
        } else {
            0
        }
    }

    /// The cheapest way to hold exactly `count` machines; nothing when there are not as many.
    #[must_use]
    pub fn fill(&self, count: u32) -> Option<Held> {
        let limit = self.on_demand_available.unwrap_or(u32::MAX);
        let first = self.cheap_spot().min(count);
        let on_demand = (count - first).min(limit);
        let spot = count - on_demand;
        (spot <= self.spot_available).then_some(Held { spot, on_demand })
    }

    /// The cheapest way to hold as many of `count` machines as there are.
    #[must_use]
    pub fn fill_most(&self, count: u32) -> Held {
        let limit = self.on_demand_available.unwrap_or(u32::MAX);
        self.fill(count.min(limit.saturating_add(self.spot_available)))
            .unwrap_or_default()
    }

    /// As many of `held` as `count`, without the dearest.
    #[must_use]
    pub fn pared(&self, held: Held, count: u32) -> Held {
        let less = held.count().saturating_sub(count);
        let (mut spot, mut on_demand) = (held.spot, held.on_demand);
        if self.spot_is_cheaper() {
            let first = less.min(on_demand);
            on_demand -= first;
            spot -= less - first;
        } else {
            let first = less.min(spot);
            spot -= first;
            on_demand -= less - first;
        }
        Held { spot, on_demand }
    }

    /// What `held` costs for the slot, in millionths of a dollar.
    #[must_use]
    pub fn cost(&self, held: Held) -> f64 {
        f64::from(held.spot) * self.spot_price + f64::from(held.on_demand) * self.on_demand_price
    }

    /// What the cheapest way to hold `count` machines costs; infinite when there are not as many.
    #[must_use]
    pub fn price_of(&self, count: u32) -> f64 {
        self.fill(count)
            .map_or(f64::INFINITY, |held| self.cost(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(spot: f64, available: u32, limit: Option<u32>) -> Offer {
        Offer {
            spot_price: spot,
            spot_available: available,
            on_demand_price: 10.0,
            on_demand_available: limit,
        }
    }

    #[test]
    fn a_fill_is_the_cheapest_of_all_ways() {
        for price in [3.0, 10.0, 14.0] {
            for available in 0..5 {
                for limit in [None, Some(0), Some(2)] {
                    let offer = offer(price, available, limit);
                    for count in 0..8 {
                        let every = (0..=count).filter_map(|spot| {
                            let held = Held {
                                spot,
                                on_demand: count - spot,
                            };
                            (spot <= available && held.on_demand <= limit.unwrap_or(u32::MAX))
                                .then(|| offer.cost(held))
                        });
                        assert_eq!(offer.price_of(count), every.fold(f64::INFINITY, f64::min));
                    }
                    assert!(offer.fill_most(7).count() <= 7);
                }
            }
        }
        assert_eq!(offer(14.0, 3, Some(2)).fill_most(9).count(), 5);
    }

    #[test]
    fn hours_become_slots_to_the_nearest_millionth() {
        let half = Micros(1_800_000_000);
        assert_eq!(slot_price(MicroUsd(918_001), half), MicroUsd(459_001));
        assert_eq!(slot_price(MicroUsd(2_000_000), half), MicroUsd(1_000_000));
        assert_eq!(
            slot_price(MicroUsd(u64::MAX), Micros(u64::MAX)),
            MicroUsd(u64::MAX)
        );
    }
}
