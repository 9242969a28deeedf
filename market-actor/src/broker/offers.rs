//! What the pools offer now, and what machines of them cost.

use shared::units::{MicroUsd, Micros};

use super::Broker;
use super::kept::Price;
use super::purse::Cost;
use crate::custody::{self, Stage};
use crate::market::{Pool, Slot};
use crate::now::Now;
use crate::policy::tenant::Rules;
use crate::problem::offer::{Held, Offer, slot_price};
use crate::provider::{Kind, Sighting};

impl Broker {
    /// The pools were looked at.
    pub(super) fn sighted(&mut self, sightings: Vec<Sighting>, now: Now) {
        if sightings.is_empty() {
            return;
        }
        self.sightings = sightings;
        self.note_prices();
        self.place();
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

    /// What can be had now: what was refused just now is not asked for again, spot of a pool that is left alone is none (BR-11), and
    /// machines at risk are not counted on (BR-3). Of a pool that took spot away just now no more is offered than stands there, where another comes first (BR-7): its price would be that of
    /// machines that are not asked for. On demand the others cost no more, so all is offered.
    pub(super) fn offer(&self, rules: &Rules, now: Now) -> Offer {
        let held = self.standing();
        let steady = self.steady(Kind::Spot, now);
        let others = steady.iter().any(|one| one.spot_available.is_some());
        let is_left = |kind: Kind, pool: &Pool| {
            let behind = others && kind == Kind::Spot;
            self.is_refused(kind, pool, now) || behind && self.is_avoided(kind, pool, now)
        };
        let slot = self.joined(rules, |one, kind| {
            if kind == Kind::Spot && self.is_left_alone(&one.pool) {
                return Some(0);
            }
            let own = self.standing_in(&one.pool);
            let (there, own) = match kind {
                Kind::Spot => {
                    let risky = self.risky_in(&one.pool);
                    let there = one.spot_available.unwrap_or(0).saturating_sub(risky);
                    (Some(there.max(own.spot)), own.spot)
                }
                Kind::OnDemand => (one.on_demand_available, own.on_demand),
            };
            match is_left(kind, &one.pool) {
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

    /// Pools that have one more machine of a kind than stand there.
    pub(super) fn free(&self, kind: Kind, now: Now) -> Vec<&Sighting> {
        let rules = &self.rules();
        let free = |one: &&Sighting| {
            let own = self.standing_in(&one.pool);
            let more = match kind {
                // What was not looked at is tried.
                Kind::Spot => one.spot_available.is_none_or(|there| own.spot < there),
                Kind::OnDemand => {
                    let there = one.on_demand_available;
                    there.is_none_or(|there| own.on_demand < there)
                }
            };
            let spot = rules.allows_spot(self.spot_price(one)) && !self.is_left_alone(&one.pool);
            let fits = kind == Kind::OnDemand || spot;
            more && fits && rules.allows(&one.pool) && !self.is_refused(kind, &one.pool, now)
        };
        self.sightings.iter().filter(free).collect()
    }

    /// Those of them that took none away not long ago and cost no more than a machine on demand does anywhere: they are asked before
    /// the others (BR-7).
    pub(super) fn steady(&self, kind: Kind, now: Now) -> Vec<&Sighting> {
        let most = self.history.latest().map(|slot| slot.on_demand_price);
        let most = most.unwrap_or(self.terms.on_demand_price);
        let steady = |one: &&Sighting| {
            let price = match kind {
                Kind::Spot => self.spot_price(one),
                Kind::OnDemand => one.on_demand_price.unwrap_or(self.terms.on_demand_price),
            };
            price <= most && !self.is_avoided(kind, &one.pool, now)
        };
        self.free(kind, now).into_iter().filter(steady).collect()
    }

    /// The pool that is asked next: the cheapest of those that come first.
    pub(super) fn next(&self, kind: Kind, now: Now) -> Option<&Sighting> {
        let price = |one: &&Sighting| match kind {
            Kind::Spot => one.spot_price,
            Kind::OnDemand => one.on_demand_price,
        };
        let cheapest = |one: &&Sighting| (price(one), one.pool.clone());
        let first = self.steady(kind, now).into_iter().min_by_key(cheapest);
        first.or_else(|| self.free(kind, now).into_iter().min_by_key(cheapest))
    }

    /// Whether a pool refused a kind not long ago.
    pub(super) fn is_refused(&self, kind: Kind, pool: &Pool, now: Now) -> bool {
        let until = self.refused.get(&(kind, pool.clone()));
        until.is_some_and(|until| now.steady < *until)
    }

    /// Machines that count, by kind: where they may be (BR-9, BR-11).
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
            let pool = &one.want.pool;
            if self.emptying.contains(&one.want.token) || !of(pool) || !self.counts(&one.want) {
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
        self.pay_where(time, Self::works);
    }

    /// The same of a time in which nobody watched: what was to be held then is believed to have worked.
    pub(super) fn pay_unwatched(&mut self, time: Micros) {
        let wanted = self.target().count() > 0;
        self.pay_where(time, |own, held| {
            let stays = matches!(held.stage, Stage::Booting { .. });
            wanted && stays && !own.emptying.contains(&held.want.token)
        });
    }

    fn pay_where(&mut self, time: Micros, works: impl Fn(&Self, &custody::Held) -> bool) {
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
                works: works(self, held),
            })
            .collect();
        self.purse.pay(machines.into_iter(), time);
    }

    /// What machines cost for so long: those that stand what their pools do, the dearest first, and what is missing what the pool does
    /// that is asked next.
    pub(super) fn cost(&self, held: Held, time: Micros, now: Now) -> MicroUsd {
        let Some(slot) = self.history.latest() else {
            return MicroUsd(0);
        };
        let of = |kind: Kind, count: u32, usual: MicroUsd| {
            let standing = self.custody.standing().filter(|one| {
                let counts = !self.emptying.contains(&one.want.token);
                one.want.kind == kind && counts && self.counts(&one.want)
            });
            let prices = standing.map(|one| self.price_of(&one.want.pool, kind));
            let mut prices: Vec<MicroUsd> = prices.collect();
            prices.sort_unstable_by(|a, b| b.cmp(a));
            let next = self.next(kind, now);
            let next = next.map_or(usual, |one| self.price_of(&one.pool, kind));
            prices.resize(count as usize, next);
            let each = prices.into_iter().map(|hourly| slot_price(hourly, time).0);
            each.fold(0, u64::saturating_add)
        };
        let spot = of(Kind::Spot, held.spot, slot.spot_price);
        let on_demand = of(Kind::OnDemand, held.on_demand, slot.on_demand_price);
        MicroUsd(spot.saturating_add(on_demand))
    }
}
