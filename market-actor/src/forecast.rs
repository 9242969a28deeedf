//! What a market will be: prices and capacities of the slots to come, as distributions.
//!
//! A forecaster is a function of what was seen, so it cannot look ahead: [`Forecast::outlook`] takes the slots up to
//! now and answers for the slots after them. Series are forecast one by one by a [`model::Model`]; a
//! [`forecaster::Forecaster`] pairs a model of the price with a model of the capacity.

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;

use crate::market::Slot;

pub mod arima;
pub mod belief;
pub mod capacity;
pub mod choice;
pub mod forecaster;
pub mod hedge;
pub mod model;
pub mod persistence;
pub mod record;
pub mod residual;
pub mod seasonal;
mod simplex;
pub mod smoothing;
#[cfg(test)]
mod testing;
pub mod transition;
pub mod trial;

pub use capacity::Capacity;

/// What a forecaster thinks of the slots after the last one seen, nearest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// One a slot; none when nothing was seen.
    pub slots: Vec<SlotOutlook>,
}

/// What a forecaster thinks of one slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlotOutlook {
    /// Of one spot machine, for an hour.
    pub spot_price: Quantiles,
    /// Most spot machines that live through the whole slot.
    pub spot_available: Capacity,
    /// Most spot machines that live from the first slot of the outlook through this one: the least capacity of all
    /// slots so far. [`Outlook::loss_within`] reads the chance of a loss from it.
    pub spot_lasting: Capacity,
    /// Of one on-demand machine, for an hour: as last seen.
    pub on_demand_price: MicroUsd,
    /// Most on-demand machines, nothing when there is no end of them: as last seen.
    pub on_demand_available: Option<u32>,
}

/// A price that is undershot with a chance of 10, 50 and 90 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// One time in ten the price is below.
    pub p10: MicroUsd,
    /// As often below as above.
    pub p50: MicroUsd,
    /// One time in ten the price is above.
    pub p90: MicroUsd,
}

/// Thinks about slots to come.
pub trait Forecast {
    /// What the `horizon` slots after `seen` (oldest first) may be. A function of its arguments; an empty outlook when
    /// nothing was seen.
    fn outlook(&self, seen: &[Slot], horizon: usize) -> Outlook;
}

impl Outlook {
    /// The median of each slot, as if it were to happen.
    #[must_use]
    pub fn medians(&self) -> Vec<Slot> {
        self.slots.iter().map(SlotOutlook::median).collect()
    }

    /// The chance that fewer than `held` spot machines live through the next `slots` slots; through all of the
    /// outlook when it is shorter. 0 when it is empty.
    #[must_use]
    pub fn loss_within(&self, slots: usize, held: u32) -> f64 {
        let last = slots.min(self.slots.len());
        match last.checked_sub(1) {
            Some(last) => self.slots[last].spot_lasting.below(held),
            None => 0.0,
        }
    }
}

impl SlotOutlook {
    /// The median of price and of capacity.
    #[must_use]
    pub fn median(&self) -> Slot {
        Slot {
            spot_price: self.spot_price.p50,
            spot_available: self.spot_available.quantile(0.5),
            on_demand_price: self.on_demand_price,
            on_demand_available: self.on_demand_available,
        }
    }

    /// What is certain to come about when a slot is known.
    #[must_use]
    pub fn certain(slot: Slot, lasting: u32) -> Self {
        Self {
            spot_price: Quantiles {
                p10: slot.spot_price,
                p50: slot.spot_price,
                p90: slot.spot_price,
            },
            spot_available: Capacity::certain(slot.spot_available),
            spot_lasting: Capacity::certain(lasting),
            on_demand_price: slot.on_demand_price,
            on_demand_available: slot.on_demand_available,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(available: u32) -> Slot {
        Slot {
            spot_price: MicroUsd(300_000),
            spot_available: available,
            on_demand_price: MicroUsd(1_000_000),
            on_demand_available: None,
        }
    }

    #[test]
    fn what_is_certain_is_its_own_median() {
        let outlook = Outlook {
            slots: vec![
                SlotOutlook::certain(slot(4), 4),
                SlotOutlook::certain(slot(6), 4),
            ],
        };
        assert_eq!(outlook.medians(), [slot(4), slot(6)]);
    }

    #[test]
    fn a_loss_is_read_from_the_capacity_that_lasts() {
        let outlook = Outlook {
            slots: vec![
                SlotOutlook::certain(slot(6), 6),
                SlotOutlook::certain(slot(3), 3),
                SlotOutlook::certain(slot(6), 3),
            ],
        };
        assert_eq!(outlook.loss_within(1, 6), 0.0);
        assert_eq!(outlook.loss_within(3, 6), 1.0);
        assert_eq!(outlook.loss_within(3, 3), 0.0);
        assert_eq!(outlook.loss_within(9, 4), 1.0);
        assert_eq!(Outlook::default().loss_within(3, 4), 0.0);
    }
}
