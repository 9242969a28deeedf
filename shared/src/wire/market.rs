//! What a market actor tells the coordinator: what is offered, and what jobs owe.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::units::{MicroUsd, Micros};

/// What a job has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// Charged to it.
    pub spent: MicroUsd,
    /// Saved against the same machines all on demand, millionths of a dollar; below 0 where they cost more.
    pub saved: i64,
}

/// Where machines are offered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The region.
    pub region: String,
    /// The zone in it.
    pub zone: String,
}

/// What is offered in one place now, and who may be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Where.
    pub place: Place,
    /// Of a spot machine for an hour.
    pub spot_price: MicroUsd,
    /// Spot machines, those that are held among them.
    pub spot_available: u32,
    /// Of a machine on demand for an hour.
    pub on_demand_price: MicroUsd,
    /// Machines on demand; none when there is no end of them.
    pub on_demand_available: Option<u32>,
}

/// What a market has, as far as admission goes by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// By place.
    pub offers: Vec<Offered>,
    /// Fewest machines that do work.
    pub fewest: u32,
    /// Most machines that are held.
    pub most: u32,
    /// Length of a slot: machines are decided for so long.
    pub slot: Micros,
    /// Tokens that a machine passes in an hour; 0 while that was not measured.
    pub tokens_per_machine_hour: u64,
}

/// All of it, or what changed since it was told last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarketTold {
    /// Where it changed.
    pub ground: Option<Ground>,
    /// Of jobs whose account changed.
    pub bills: Vec<(JobId, Money)>,
}
