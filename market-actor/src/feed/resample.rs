//! Steps in time to equal slots.
//!
//! | value | of a slot |
//! | --- | --- |
//! | capacity | the least in force at any time of the slot: machines that lived through it |
//! | price | weighted by time, rounded to the nearest millionth; or the first, last or highest in force in the slot |
//!
//! Slots begin where all series that the source has are known, on a multiple of the slot's length if the source has
//! dates, and end with the first series that ends; a part of a slot at the end is dropped.

use shared::units::{MicroUsd, Micros};
use thiserror::Error;

use super::{Observed, Steps};
use crate::market::{Market, Slot};

/// Most slots of one market.
pub const MOST_SLOTS: u64 = 10_000_000;

/// What price stands for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriceRule {
    /// The mean over the slot's time: what a machine that runs through it costs.
    #[default]
    TimeWeighted,
    /// The one in force as the slot begins: what a machine costs that is asked for then.
    First,
    /// The last one in force.
    Last,
    /// The highest one in force.
    Highest,
}

/// How to cut, and what stands for what a source does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Length of a slot.
    pub slot: Micros,
    /// Which price.
    pub price: PriceRule,
    /// Of one on-demand machine for an hour, where the source has none.
    pub on_demand_price: MicroUsd,
    /// On-demand machines, where the source has none: nothing is no end of them.
    pub on_demand_available: Option<u32>,
    /// Spot price where the source has none.
    pub spot_price: Option<MicroUsd>,
    /// Spot machines where the source has none.
    pub spot_available: Option<u32>,
}

/// Why a source cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResampleError {
    /// No length.
    #[error("a slot of 0 seconds: give its length")]
    NoLength,
    /// No prices, and none to stand for them.
    #[error(
        "{machine} has no prices: compose it with a source that has, or give a price that stands for them"
    )]
    NoPrice {
        /// Whose.
        machine: String,
    },
    /// No capacity, and none to stand for it.
    #[error(
        "{machine} has no capacities: compose it with a source that has, or give a number of machines that stands for them"
    )]
    NoCapacity {
        /// Whose.
        machine: String,
    },
    /// Not one whole slot is known.
    #[error(
        "{machine}: all of it is known for {} s, shorter than a slot of {} s: give a shorter slot",
        known.seconds(), slot.seconds()
    )]
    TooShort {
        /// Whose.
        machine: String,
        /// For how long all series are known.
        known: Micros,
        /// Length of a slot.
        slot: Micros,
    },
    /// More slots than fit.
    #[error("{machine}: {slots} slots, the limit is {MOST_SLOTS}: give a longer slot")]
    TooMany {
        /// Whose.
        machine: String,
        /// How many.
        slots: u64,
    },
}

/// Cuts what was observed into slots.
///
/// # Errors
/// See [`ResampleError`].
pub fn resample(observed: &Observed, cut: &Cut) -> Result<Market, ResampleError> {
    let machine = || observed.pool.machine.clone();
    if cut.slot.0 == 0 {
        return Err(ResampleError::NoLength);
    }
    if observed.spot_price.is_none() && cut.spot_price.is_none() {
        return Err(ResampleError::NoPrice { machine: machine() });
    }
    if observed.spot_available.is_none() && cut.spot_available.is_none() {
        return Err(ResampleError::NoCapacity { machine: machine() });
    }
    let (start, end) = span(observed, cut.slot);
    let slots = end.since(start).0 / cut.slot.0;
    if slots == 0 {
        return Err(ResampleError::TooShort {
            machine: machine(),
            known: end.since(start),
            slot: cut.slot,
        });
    }
    if slots > MOST_SLOTS {
        return Err(ResampleError::TooMany {
            machine: machine(),
            slots,
        });
    }
    let mut price = Cursor::new(observed.spot_price.as_ref());
    let mut available = Cursor::new(observed.spot_available.as_ref());
    let mut on_demand_price = Cursor::new(observed.on_demand_price.as_ref());
    let mut on_demand_available = Cursor::new(observed.on_demand_available.as_ref());
    let one = |at: u64| {
        let begin = start.plus(Micros(at * cut.slot.0));
        let end = begin.plus(cut.slot);
        let spot_price = price.over(begin, end, |parts| price_of(parts, cut.price));
        let spot_available = available.over(begin, end, least);
        let usd = on_demand_price.over(begin, end, |parts| price_of(parts, PriceRule::Last));
        Slot {
            spot_price: spot_price.or(cut.spot_price).unwrap_or_default(),
            spot_available: spot_available.or(cut.spot_available).unwrap_or_default(),
            on_demand_price: usd.unwrap_or(cut.on_demand_price),
            on_demand_available: on_demand_available
                .over(begin, end, least)
                .or(cut.on_demand_available),
        }
    };
    let slots = (0..slots).map(one).collect();
    Ok(Market {
        pool: observed.pool.clone(),
        start,
        slot: cut.slot,
        slots,
    })
}

/// From when to when both price and capacity are known, where the source has them.
fn span(observed: &Observed, slot: Micros) -> (Micros, Micros) {
    let price = observed.spot_price.as_ref();
    let available = observed.spot_available.as_ref();
    let starts = [price.map(Steps::start), available.map(Steps::start)];
    let ends = [price.map(Steps::end), available.map(Steps::end)];
    let mut start = starts.into_iter().flatten().max().unwrap_or_default();
    if observed.dated {
        start = Micros(start.0.div_ceil(slot.0).saturating_mul(slot.0));
    }
    let end = ends.into_iter().flatten().min().unwrap_or_default();
    (start, end)
}

fn least(parts: &[(u64, u32)]) -> u32 {
    let values = parts.iter().map(|(_, value)| *value);
    values.min().unwrap_or_default()
}

fn price_of(parts: &[(u64, MicroUsd)], rule: PriceRule) -> MicroUsd {
    let all = || parts.iter().map(|(_, price)| *price);
    let one = match rule {
        PriceRule::TimeWeighted => None,
        PriceRule::First => all().next(),
        PriceRule::Last => all().next_back(),
        PriceRule::Highest => all().max(),
    };
    if let Some(price) = one {
        return price;
    }
    let time: u128 = parts.iter().map(|(time, _)| u128::from(*time)).sum();
    let spent: u128 = parts
        .iter()
        .map(|(time, price)| u128::from(*time) * u128::from(price.0))
        .sum();
    MicroUsd(((spent + time / 2) / time.max(1)) as u64)
}

/// Goes through steps slot by slot.
struct Cursor<'a, T> {
    steps: Option<&'a Steps<T>>,
    at: usize,
    parts: Vec<(u64, T)>,
}

impl<'a, T: Copy> Cursor<'a, T> {
    const fn new(steps: Option<&'a Steps<T>>) -> Self {
        Self {
            steps,
            at: 0,
            parts: Vec::new(),
        }
    }

    /// What `read` makes of the values in force from `begin` until before `end`, each with its time in microseconds.
    /// Before the first step its value holds.
    fn over<U>(
        &mut self,
        begin: Micros,
        end: Micros,
        read: impl Fn(&[(u64, T)]) -> U,
    ) -> Option<U> {
        let changes = self.steps?.changes();
        while self.at + 1 < changes.len() && changes[self.at + 1].0 <= begin {
            self.at += 1;
        }
        self.parts.clear();
        let mut from = begin;
        let mut at = self.at;
        loop {
            let next = changes.get(at + 1).map(|(next, _)| *next);
            let until = next.map_or(end, |next| next.min(end));
            self.parts.push((until.since(from).0, changes[at].1));
            if until == end {
                return Some(read(&self.parts));
            }
            from = until;
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests;
