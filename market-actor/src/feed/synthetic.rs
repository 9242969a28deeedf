//! Markets made from a seed: zones with a daily pattern, bursts of demand, losses that hit several zones, price spikes.
//!
//! For zone z and slot t of length s hours, with the hour of day h:
//!
//! ```text
//! daily(t)   = cos(2 pi (h - peak) / 24)                      demand, 1 at its peak
//! burst(t)   in {0, 1}: enters with chance 1 - exp(-rate s), leaves with 1 - exp(-s / length)
//! x(t)       = rho x(t-1) + sqrt(1 - rho^2) e(t),  rho = exp(-s / memory),  e normal
//! loss(t)    in {0, 1}: enters with an event of the zone, or of the region with chance `share`; leaves as a burst does
//! capacity   = round(most * clamp(level - daily_swing daily - burst_depth burst + noise x, 0, 1) * (1 - depth loss))
//! spike(t)   as burst; its height in ln is drawn on entry, exponential with mean `height`
//! ln price   = ln(base on_demand) + daily_swing daily + burst_rise burst + noise y + spike height, y as x
//! price      = clamp(exp(..), floor on_demand, cap on_demand)
//! ```
//!
//! A two-state chain that drives a rate is a Markov-modulated process (Fischer and Meier-Hellstern, "The Markov-modulated
//! Poisson process (MMPP) cookbook", Performance Evaluation 18, 1993). Chances are of whole slots, so a market of half
//! the slot length is another draw of the same kind, not the same market. The numbers are ours: they are chosen to look
//! like the public traces (`docs/market.md`), not fitted to one.
//!
//! SY-1: a longer market begins with the shorter one of the same parameters. SY-2: price and capacity are in range.

use serde::{Deserialize, Serialize};
use shared::random::{Domain, Stream};
use shared::units::{MicroUsd, Micros};

use super::region_of;
use crate::market::{Market, Pool, Slot};

/// What a synthetic market is like. Hours, shares of 1, and multiples of the on-demand price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Synthetic {
    /// Everything follows from it.
    pub seed: u64,
    /// Zones of one region, at most 26.
    pub zones: u32,
    /// Slots.
    pub slots: u32,
    /// How long each is.
    pub slot: Micros,
    /// Hour of day, UTC, at which demand is greatest.
    pub peak_hour: f64,
    /// Most spot machines of a zone.
    pub most: u32,
    /// Share of `most` that is there on average, without bursts and losses.
    pub level: f64,
    /// How far the day moves capacity, as a share of `most`.
    pub capacity_daily_swing: f64,
    /// Standard deviation of the rest, as a share of `most`.
    pub capacity_noise: f64,
    /// Hours over which the rest forgets.
    pub memory_hours: f64,
    /// Bursts of demand an hour.
    pub bursts_per_hour: f64,
    /// Mean hours of a burst.
    pub burst_hours: f64,
    /// What a burst takes, as a share of `most`.
    pub burst_depth: f64,
    /// How far a burst raises ln(price).
    pub burst_rise: f64,
    /// Losses an hour of each zone alone.
    pub zone_losses_per_hour: f64,
    /// Losses an hour of the region.
    pub region_losses_per_hour: f64,
    /// Chance that a loss of the region hits a zone.
    pub region_loss_share: f64,
    /// Mean hours until what was lost is back.
    pub loss_hours: f64,
    /// Share of its machines that a hit zone loses.
    pub loss_depth: f64,
    /// Of one on-demand machine, for an hour.
    pub on_demand_price: MicroUsd,
    /// Most on-demand machines; nothing when there is no end of them.
    pub on_demand_available: Option<u32>,
    /// Usual spot price over the on-demand price.
    pub price_base: f64,
    /// How far the day moves ln(price).
    pub price_daily_swing: f64,
    /// Standard deviation of the rest of ln(price).
    pub price_noise: f64,
    /// Price spikes an hour.
    pub spikes_per_hour: f64,
    /// Mean hours of a spike.
    pub spike_hours: f64,
    /// Mean height of a spike in ln(price).
    pub spike_height: f64,
    /// Least spot price over the on-demand price.
    pub price_floor: f64,
    /// Greatest spot price over the on-demand price.
    pub price_cap: f64,
}

impl Default for Synthetic {
    /// Three zones of 16 machines at a third of the on-demand price, a week in half hours.
    fn default() -> Self {
        Self {
            seed: 1,
            zones: 3,
            slots: 336,
            slot: Micros(1_800_000_000),
            peak_hour: 18.0,
            most: 16,
            level: 0.6,
            capacity_daily_swing: 0.2,
            capacity_noise: 0.12,
            memory_hours: 3.0,
            bursts_per_hour: 0.06,
            burst_hours: 3.0,
            burst_depth: 0.5,
            burst_rise: 0.1,
            zone_losses_per_hour: 0.02,
            region_losses_per_hour: 0.02,
            region_loss_share: 0.7,
            loss_hours: 1.0,
            loss_depth: 0.8,
            on_demand_price: MicroUsd(3_060_000),
            on_demand_available: None,
            price_base: 0.33,
            price_daily_swing: 0.05,
            price_noise: 0.06,
            spikes_per_hour: 0.02,
            spike_hours: 2.0,
            spike_height: 0.5,
            price_floor: 0.1,
            price_cap: 1.5,
        }
    }
}

/// What a number is drawn for.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Purpose {
    CapacityNoise = 1,
    PriceNoise = 2,
    Burst = 3,
    ZoneLoss = 4,
    RegionLoss = 5,
    RegionHit = 6,
    Recovery = 7,
    Spike = 8,
    SpikeHeight = 9,
}

/// The region's own place among the zones.
const REGION: u32 = u32::MAX;

/// A zone between two slots.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    capacity_rest: f64,
    price_rest: f64,
    burst: bool,
    lost: bool,
    spike: Option<f64>,
}

impl Synthetic {
    /// The markets of all zones, `a` first. A function of the parameters.
    #[must_use]
    pub fn markets(&self) -> Vec<Market> {
        (0..self.zones.min(26))
            .map(|zone| self.market(zone))
            .collect()
    }

    fn market(&self, number: u32) -> Market {
        let letter = char::from(b'a' + (number % 26) as u8);
        let zone = format!("synthetic-1{letter}");
        let mut state = Zone::default();
        let slots = (0..self.slots).map(|at| {
            state = self.next(number, at, state);
            self.slot(at, state)
        });
        let slots = slots.collect();
        Market {
            pool: Pool {
                provider: "synthetic".to_owned(),
                region: region_of(&zone),
                zone,
                machine: format!("seed-{}", self.seed),
            },
            start: Micros(0),
            slot: self.slot,
            slots,
        }
    }

    fn hours(&self) -> f64 {
        self.slot.seconds() / 3600.0
    }

    /// 1 at the hour of greatest demand, -1 twelve hours later.
    fn daily(&self, at: u32) -> f64 {
        let hour = f64::from(at) * self.hours();
        (std::f64::consts::TAU * (hour - self.peak_hour) / 24.0).cos()
    }

    fn next(&self, zone: u32, at: u32, before: Zone) -> Zone {
        let hours = self.hours();
        let enters = |rate: f64| 1.0 - (-rate * hours).exp();
        let leaves = |length: f64| 1.0 - (-hours / length.max(1e-9)).exp();
        let chance = |purpose, limit: f64| self.uniform(zone, purpose, at) < limit;
        let stays = |on: bool, purpose, rate, length| {
            if on {
                !chance(purpose, leaves(length))
            } else {
                chance(purpose, enters(rate))
            }
        };
        let own = chance(Purpose::ZoneLoss, enters(self.zone_losses_per_hour));
        let region =
            self.uniform(REGION, Purpose::RegionLoss, at) < enters(self.region_losses_per_hour);
        let hit = own || region && chance(Purpose::RegionHit, self.region_loss_share);
        let still = before.lost && !chance(Purpose::Recovery, leaves(self.loss_hours));
        let spiking = stays(
            before.spike.is_some(),
            Purpose::Spike,
            self.spikes_per_hour,
            self.spike_hours,
        );
        let height =
            || -self.spike_height * (1.0 - self.uniform(zone, Purpose::SpikeHeight, at)).ln();
        Zone {
            capacity_rest: self.rest(before.capacity_rest, zone, Purpose::CapacityNoise, at),
            price_rest: self.rest(before.price_rest, zone, Purpose::PriceNoise, at),
            burst: stays(
                before.burst,
                Purpose::Burst,
                self.bursts_per_hour,
                self.burst_hours,
            ),
            lost: hit || still,
            spike: spiking.then(|| before.spike.unwrap_or_else(height)),
        }
    }

    /// The first value is drawn from where the process settles.
    fn rest(&self, before: f64, zone: u32, purpose: Purpose, at: u32) -> f64 {
        let draw = f64::from(self.stream(zone, purpose, at).normal(0));
        if at == 0 {
            return draw;
        }
        let rho = (-self.hours() / self.memory_hours.max(1e-9)).exp();
        rho * before + (1.0 - rho * rho).sqrt() * draw
    }

    fn slot(&self, at: u32, zone: Zone) -> Slot {
        let daily = self.daily(at);
        let of = |on: bool, size: f64| if on { size } else { 0.0 };
        let share =
            self.level - self.capacity_daily_swing * daily - of(zone.burst, self.burst_depth)
                + self.capacity_noise * zone.capacity_rest;
        let kept = 1.0 - of(zone.lost, self.loss_depth);
        let machines = f64::from(self.most) * share.clamp(0.0, 1.0) * kept.clamp(0.0, 1.0);
        let log = self.price_base.max(1e-9).ln()
            + self.price_daily_swing * daily
            + of(zone.burst, self.burst_rise)
            + self.price_noise * zone.price_rest
            + zone.spike.unwrap_or_default();
        let price = log.exp().min(self.price_cap).max(self.price_floor);
        let on_demand = self.on_demand_price;
        Slot {
            spot_price: MicroUsd((price * on_demand.0 as f64).round() as u64),
            spot_available: machines.round() as u32,
            on_demand_price: on_demand,
            on_demand_available: self.on_demand_available,
        }
    }

    fn uniform(&self, zone: u32, purpose: Purpose, at: u32) -> f64 {
        self.stream(zone, purpose, at).uniform64(0)
    }

    fn stream(&self, zone: u32, purpose: Purpose, at: u32) -> Stream {
        Stream::new(self.seed, Domain::Market, [zone, purpose as u32, at])
    }
}

#[cfg(test)]
mod tests;
