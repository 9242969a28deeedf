//! A model of the price and a model of the capacity: together they make an [`Outlook`].
//!
//! Prices are forecast in their natural logarithm, where a rise by half and the fall back have one size, and quantiles
//! stay quantiles. Capacities are forecast as they are. The two are forecast apart: how they move together is not used.

use std::sync::Arc;

use shared::units::MicroUsd;

use super::arima::Arima;
use super::belief::Belief;
use super::capacity::Capacity;
use super::choice::{Choice, choose};
use super::hedge::Hedge;
use super::model::{Model, Prospect, Range};
use super::persistence::Persistence;
use super::residual::Residual;
use super::seasonal::SeasonalNaive;
use super::smoothing::Smoothing;
use super::transition::Transition;
use super::trial::{Plan, Report, Unit, run};
use super::{Forecast, Outlook, Quantiles, SlotOutlook};
use crate::market::Slot;

/// Two models.
#[derive(Clone, Debug)]
pub struct Forecaster {
    /// Of the logarithm of the spot price in millionths of a dollar.
    pub price: Arc<dyn Model>,
    /// Of the number of spot machines.
    pub capacity: Arc<dyn Model>,
    /// Most slots that are looked back to.
    pub memory: usize,
}

/// Slots looked back to unless something else is set: four weeks of half hours.
pub const MEMORY: usize = 1344;

impl Forecaster {
    /// Two models with the usual memory.
    #[must_use]
    pub const fn new(price: Arc<dyn Model>, capacity: Arc<dyn Model>) -> Self {
        Self {
            price,
            capacity,
            memory: MEMORY,
        }
    }

    /// What is, stays, with the changes of the past about it.
    #[must_use]
    pub fn persistence() -> Self {
        let free = Residual::new(Persistence, Range::Free);
        let counts = Residual::new(Persistence, Range::Counts);
        Self::new(Arc::new(free), Arc::new(counts))
    }

    /// All models, weighed by how they did. `day` is a day in slots, 0 where there is no day to look for.
    #[must_use]
    pub fn ensemble(day: usize) -> Self {
        Self::new(
            Arc::new(hedge(price_models(day))),
            Arc::new(hedge(capacity_models(day))),
        )
    }
}

/// A forecaster of models that were tried, and what they were chosen by.
#[derive(Clone, Debug)]
pub struct Proven {
    /// Of the models chosen.
    pub forecaster: Forecaster,
    /// Of the price.
    pub price: Choice,
    /// Of the capacity.
    pub capacity: Choice,
}

/// Tries all models and the ensemble of them on what was seen, and takes for price and for capacity the best one that
/// beats persistence by more than chance, or persistence. `day` is a day in slots, 0 where there is no day to look for.
#[must_use]
pub fn proven(seen: &[Slot], day: usize, plan: &Plan) -> Proven {
    let ensemble = Forecaster::ensemble(day);
    let mut price = price_models(day);
    price.push(ensemble.price);
    let mut capacity = capacity_models(day);
    capacity.push(ensemble.capacity);
    let (price, of_price) = pick(&price, &price_series(seen), Unit::Dollars, plan);
    let (capacity, of_capacity) = pick(&capacity, &capacity_series(seen), Unit::Machines, plan);
    Proven {
        forecaster: Forecaster {
            memory: plan.memory,
            ..Forecaster::new(price, capacity)
        },
        price: of_price,
        capacity: of_capacity,
    }
}

fn pick(
    models: &[Arc<dyn Model>],
    series: &[f64],
    unit: Unit,
    plan: &Plan,
) -> (Arc<dyn Model>, Choice) {
    let reports = models
        .iter()
        .map(|model| run(model.as_ref(), series, unit, plan));
    let reports: Vec<Report> = reports.collect();
    let choice = choose(&reports, plan.lags()).expect("persistence is always among the models");
    (Arc::clone(&models[choice.chosen]), choice)
}

fn hedge(members: Vec<Arc<dyn Model>>) -> Hedge {
    Hedge {
        members,
        rounds: 48,
        stride: 2,
    }
}

/// The models of a price, persistence first. `day` is a day in slots, 0 where there is no day to look for.
#[must_use]
pub fn price_models(day: usize) -> Vec<Arc<dyn Model>> {
    point_models(day, Range::Free)
}

/// The models of a capacity, persistence first. `day` is a day in slots, 0 where there is no day to look for.
#[must_use]
pub fn capacity_models(day: usize) -> Vec<Arc<dyn Model>> {
    let mut models = point_models(day, Range::Counts);
    models.push(Arc::new(Transition::default()));
    models
}

fn point_models(day: usize, range: Range) -> Vec<Arc<dyn Model>> {
    let mut models: Vec<Arc<dyn Model>> = vec![Arc::new(Residual::new(Persistence, range))];
    if day > 0 {
        let seasonal = SeasonalNaive { period: day };
        models.push(Arc::new(Residual::new(seasonal, range)));
    }
    models.push(Arc::new(Residual::new(Smoothing::default(), range)));
    models.push(Arc::new(Residual::new(Arima::default(), range)));
    models
}

/// The series of prices that models see.
#[must_use]
pub fn price_series(slots: &[Slot]) -> Vec<f64> {
    let price = |slot: &Slot| (slot.spot_price.0.max(1) as f64).ln();
    slots.iter().map(price).collect()
}

/// The series of capacities that models see.
#[must_use]
pub fn capacity_series(slots: &[Slot]) -> Vec<f64> {
    slots
        .iter()
        .map(|slot| f64::from(slot.spot_available))
        .collect()
}

/// The price of a logarithm.
#[must_use]
pub fn price_of(logarithm: f64) -> MicroUsd {
    // Beyond the range of the integer the cast stops at its end.
    MicroUsd(logarithm.exp().round() as u64)
}

impl Forecast for Forecaster {
    fn outlook(&self, seen: &[Slot], horizon: usize) -> Outlook {
        let seen = &seen[seen.len().saturating_sub(self.memory.max(1))..];
        let price = self.price.look(&price_series(seen), horizon);
        let capacity = self.capacity.look(&capacity_series(seen), horizon);
        let (Some(last), Some(price), Some(capacity)) = (seen.last(), price, capacity) else {
            return Outlook::default();
        };
        let slots = (0..horizon).map(|ahead| slot_outlook(last, &price, &capacity, ahead));
        Outlook {
            slots: slots.collect(),
        }
    }
}

fn slot_outlook(last: &Slot, price: &Prospect, capacity: &Prospect, ahead: usize) -> SlotOutlook {
    let price = &price.values[ahead];
    SlotOutlook {
        spot_price: Quantiles {
            p10: price_of(price.quantile(0.1)),
            p50: price_of(price.quantile(0.5)),
            p90: price_of(price.quantile(0.9)),
        },
        spot_available: capacity_of(&capacity.values[ahead]),
        spot_lasting: capacity_of(&capacity.least[ahead]),
        on_demand_price: last.on_demand_price,
        on_demand_available: last.on_demand_available,
    }
}

fn capacity_of(belief: &Belief) -> Capacity {
    let most = belief.quantile(1.0).max(0.0).round();
    Capacity::of_weighted(belief.atoms().iter().copied(), most as u32)
}

#[cfg(test)]
mod tests;
