//! A market as a series of equal slots: what one pool of machines costs and how many of it there are.

use serde::{Deserialize, Serialize};
use shared::units::{MicroUsd, Micros};

/// Where machines of one kind come from: they share a price and a capacity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Pool {
    /// `aws`, `gcp`, `local`, or the name of a trace.
    pub provider: String,
    /// `us-east-1`; empty where there is none.
    pub region: String,
    /// `us-east-1a`; empty where there is none.
    pub zone: String,
    /// `p3.2xlarge`.
    pub machine: String,
}

/// What a pool offers for one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Of one spot machine, for an hour.
    pub spot_price: MicroUsd,
    /// Most spot machines that live through the whole slot.
    pub spot_available: u32,
    /// Of one on-demand machine, for an hour.
    pub on_demand_price: MicroUsd,
    /// Most on-demand machines; nothing when there is no end of them.
    pub on_demand_available: Option<u32>,
}

/// A pool over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Market {
    /// Whose.
    pub pool: Pool,
    /// When the first slot begins, since 1970-01-01 UTC; 0 where the source has no dates.
    pub start: Micros,
    /// How long each slot is.
    pub slot: Micros,
    /// In order of time.
    pub slots: Vec<Slot>,
}
