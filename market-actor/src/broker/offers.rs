//! What the pools offer now, and what machines of them cost.

use shared::units::{MicroUsd, Micros};

use super::Broker;
use super::kept::Price;
use super::purse::Cost;
use super::told::JobTold;
use crate::market::{Pool, Slot};
use crate::now::Now;
use crate::policy::tenant::Rules;
use crate::problem::offer::{Held, Offer, slot_price};
use crate::provider::{Kind, Sighting};

impl Broker {
    /// What all tenants and jobs at work allow.
    pub(super) fn rules(&self) -> Rules {
        let live = || self.jobs.iter().filter(|job| JobTold::is_live(job));
        let mut rules = self.terms.rules_of(live().map(|job| job.tenant.as_str()));
        let zones = live().map(|job| &job.zones);
        let named = zones.filter(|zones| !zones.is_empty());
        rules.within.extend(named.cloned());
        rules
    }

    /// The pools were looked at.
    pub(super) fn sighted(&mut self, sightings: Vec<Sighting>, now: Now) {
        if sightings.is_empty() {
            return;
        }
        self.sightings = sightings;
        self.note_prices();
        let rules = self.rules();
        let slot = self.joined(&rules, |one, kind| match kind {
            Kind::Spot => Some(one.spot_available.unwrap_or(0)),
            Kind::OnDemand => one.on_demand_available,
        });
        self.history.next(slot);
        self.slots_pass(now);
        if self.history.see(slot) {
            self.due = true;
        }
    }

    /// All pools that are allowed as one: as many machines as they have together, at the price of the cheapest that has one.
    /// `count` says how many there are of a kind, nothing where there is no end of them.
    fn joined(&self, rules: &Rules, count: impl Fn(&Sighting, Kind) -> Option<u32>) -> Slot {
        let mut slot = Slot {
            spot_price: self.terms.on_demand_price,
            spot_available: 0,
            on_demand_price: self.terms.on_demand_price,
            on_demand_available: Some(0),
        };
        let (mut spot, mut on_demand): (Option<MicroUsd>, Option<MicroUsd>) = (None, None);
        let cheaper = |least: Option<MicroUsd>, price: MicroUsd| {
            Some(least.map_or(price, |least| least.min(price)))
        };
        for one in self.sightings.iter().filter(|one| rules.allows(&one.pool)) {
            let spots = match rules.allows_spot(self.spot_price(one)) {
                true => count(one, Kind::Spot).unwrap_or(0),
                false => 0,
            };
            slot.spot_available = slot.spot_available.saturating_add(spots);
            if let Some(price) = one.spot_price.filter(|_| spots > 0) {
                spot = cheaper(spot, price);
            }
            let own = count(one, Kind::OnDemand);
            slot.on_demand_available = match (slot.on_demand_available, own) {
                (Some(all), Some(own)) => Some(all.saturating_add(own)),
                _ => None,
            };
            if let Some(price) = one.on_demand_price.filter(|_| own != Some(0)) {
                on_demand = cheaper(on_demand, price);
            }
        }
        slot.on_demand_price = on_demand.unwrap_or(slot.on_demand_price);
        slot.spot_price = spot.unwrap_or(slot.on_demand_price);
        slot
    }

    /// What spot of a pool costs for an hour, at most what it costs on demand where it does not say.
    pub(super) fn spot_price(&self, one: &Sighting) -> MicroUsd {
        let price = one.spot_price.or(one.on_demand_price);
        price.unwrap_or(self.terms.on_demand_price)
    }

    /// What can be had now: what was refused just now is not asked for again, and machines at risk are not counted on (BR-3).
    pub(super) fn offer(&self, rules: &Rules, now: Now) -> Offer {
        let held = self.standing();
        let slot = self.joined(rules, |one, kind| {
            let own = self.standing_in(&one.pool);
            let (there, own) = match kind {
                Kind::Spot => {
                    let risky = self.risky_in(&one.pool);
                    let there = one.spot_available.unwrap_or(0).saturating_sub(risky);
                    (Some(there.max(own.spot)), own.spot)
                }
                Kind::OnDemand => (one.on_demand_available, own.on_demand),
            };
            match self.is_refused(kind, &one.pool, now) {
                true => Some(there.unwrap_or(u32::MAX).min(own)),
                false => there,
            }
        });
        let mut offer = Offer::of(&slot, self.terms.slot);
        offer.spot_available = offer.spot_available.max(held.spot);
        let least = |limit: u32| limit.max(held.on_demand);
        offer.on_demand_available = offer.on_demand_available.map(least);
        offer
    }

    /// Whether a pool refused a kind not long ago.
    pub(super) fn is_refused(&self, kind: Kind, pool: &Pool, now: Now) -> bool {
        let until = self.refused.get(&(kind, pool.clone()));
        until.is_some_and(|until| now.steady < *until)
    }

    /// Machines that count, by kind.
    pub(super) fn standing(&self) -> Held {
        self.counted_by(|_| true)
    }

    /// Those of one pool.
    pub(super) fn standing_in(&self, pool: &Pool) -> Held {
        self.counted_by(|own| own == pool)
    }

    fn counted_by(&self, of: impl Fn(&Pool) -> bool) -> Held {
        let mut held = Held::default();
        for one in self.custody.standing() {
            if self.emptying.contains(&one.want.token) || !of(&one.want.pool) {
                continue;
            }
            match one.want.kind {
                Kind::Spot => held.spot += 1,
                Kind::OnDemand => held.on_demand += 1,
            }
        }
        held
    }

    fn risky_in(&self, pool: &Pool) -> u32 {
        let standing = self.custody.standing();
        let risky = standing
            .filter(|one| self.at_risk.contains_key(&one.want.token) && one.want.pool == *pool)
            .count();
        u32::try_from(risky).unwrap_or(u32::MAX)
    }

    /// Keeps what is seen of pools: of those that are shown, and of those where a machine is held.
    fn note_prices(&mut self) {
        for one in &self.sightings {
            let known = self.prices.iter().position(|known| known.pool == one.pool);
            match known.and_then(|at| self.prices.get_mut(at)) {
                Some(known) => {
                    known.spot = one.spot_price.or(known.spot);
                    known.on_demand = one.on_demand_price.or(known.on_demand);
                }
                None => self.prices.push(Price {
                    pool: one.pool.clone(),
                    spot: one.spot_price,
                    on_demand: one.on_demand_price,
                }),
            }
        }
        let (shown, held) = (&self.sightings, self.custody.held());
        self.prices.retain(|known| {
            let shown = shown.iter().any(|one| one.pool == known.pool);
            shown || held.values().any(|held| held.want.pool == known.pool)
        });
    }

    /// What a machine of a pool costs for an hour: as seen last of it, of others, or as the operator says.
    fn price_of(&self, pool: &Pool, kind: Kind) -> MicroUsd {
        let seen = self.prices.iter().find(|one| one.pool == *pool);
        let seen = seen.and_then(|one| match kind {
            Kind::Spot => one.spot,
            Kind::OnDemand => one.on_demand,
        });
        let last = self.history.latest().map(|slot| match kind {
            Kind::Spot => slot.spot_price,
            Kind::OnDemand => slot.on_demand_price,
        });
        seen.or(last).unwrap_or(self.terms.on_demand_price)
    }

    /// Money for some time of all machines that cost.
    pub(super) fn pay(&mut self, time: Micros) {
        if time.0 == 0 {
            return;
        }
        let held = self.custody.held().values();
        let machines: Vec<Cost> = held
            .filter(|held| held.id.is_some())
            .map(|held| Cost {
                kind: held.want.kind,
                hourly: self.price_of(&held.want.pool, held.want.kind),
                on_demand: self.price_of(&held.want.pool, Kind::OnDemand),
                works: held.serves(),
            })
            .collect();
        self.purse.pay(machines.into_iter(), time);
    }

    /// What machines cost for so long.
    pub(super) fn cost(&self, held: Held, time: Micros) -> MicroUsd {
        let Some(slot) = self.history.latest() else {
            return MicroUsd(0);
        };
        let of = |count: u32, hourly| u64::from(count).saturating_mul(slot_price(hourly, time).0);
        let spot = of(held.spot, slot.spot_price);
        MicroUsd(spot.saturating_add(of(held.on_demand, slot.on_demand_price)))
    }
}
