//! What is done so that as many machines stand as are wanted.

use std::cmp::Reverse;

use shared::ids::NodeName;

use super::{Broker, Effect};
use crate::custody;
use crate::now::Now;
use crate::problem::offer::Held;
use crate::provider::{Kind, Sighting, Want};

impl Broker {
    /// Asks for what is missing and gives up what is too much.
    pub(super) fn reconcile(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let target = self.stretch.as_ref().map(|stretch| stretch.target);
        let target = target.unwrap_or_default();
        if self.history.is_empty() || !self.heard {
            return;
        }
        let held = self.standing();
        for (kind, wanted, have) in [
            (Kind::Spot, target.spot, held.spot),
            (Kind::OnDemand, target.on_demand, held.on_demand),
        ] {
            for _ in have..wanted {
                let Some(want) = self.want(kind, now) else {
                    break;
                };
                self.machine(custody::Event::Acquire(want), now, effects);
            }
        }
        for (kind, wanted) in [
            (Kind::OnDemand, target.on_demand),
            (Kind::Spot, target.spot),
        ] {
            self.give_up(kind, wanted, target.count(), now, effects);
        }
    }

    /// The next request: of the cheapest pool that has one more. A pool that took one away not long ago comes after all others, but
    /// those whose spot is dearer than a machine on demand (BR-7).
    fn want(&mut self, kind: Kind, now: Now) -> Option<Want> {
        let rules = self.rules();
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
            let fits = kind == Kind::OnDemand || rules.allows_spot(self.spot_price(one));
            more && fits && rules.allows(&one.pool) && !self.is_refused(kind, &one.pool, now)
        };
        let price = |one: &&Sighting| match kind {
            Kind::Spot => one.spot_price,
            Kind::OnDemand => one.on_demand_price,
        };
        let free: Vec<&Sighting> = self.sightings.iter().filter(free).collect();
        let steady = |one: &&Sighting| {
            let on_demand = one.on_demand_price.unwrap_or(self.terms.on_demand_price);
            let fair = kind == Kind::OnDemand || self.spot_price(one) <= on_demand;
            fair && !self.is_avoided(kind, &one.pool, now)
        };
        let cheapest = |one: &&Sighting| (price(one), one.pool.clone());
        let others = free.iter().copied().filter(steady).min_by_key(cheapest);
        let best = others.or_else(|| free.iter().copied().min_by_key(cheapest))?;
        let pool = best.pool.clone();
        self.made += 1;
        let token = NodeName::new(format!("m-{}-{}", self.run, self.made)).ok()?;
        Some(Want { token, pool, kind })
    }

    /// Lets go of machines of a kind beyond `wanted`, those that serve least first, while `all` others serve (BR-2).
    fn give_up(&mut self, kind: Kind, wanted: u32, all: u32, now: Now, effects: &mut Vec<Effect>) {
        let counted: Vec<&custody::Held> = self
            .custody
            .standing()
            .filter(|held| !self.emptying.contains(&held.want.token))
            .collect();
        let mut serving = counted.iter().filter(|held| held.serves()).count() as u32;
        let mut own: Vec<(bool, Reverse<NodeName>, NodeName)> = counted
            .iter()
            .filter(|held| held.want.kind == kind)
            .map(|held| {
                let token = held.want.token.clone();
                (held.serves(), Reverse(token.clone()), token)
            })
            .collect();
        own.sort();
        let surplus = (own.len() as u32).saturating_sub(wanted);
        for (serves, _, token) in own.into_iter().take(surplus as usize) {
            if serves && all > 0 && serving <= all {
                break;
            }
            if !serves {
                let event = custody::Event::Release {
                    token,
                    cause: "it is not wanted any more".into(),
                };
                self.machine(event, now, effects);
                continue;
            }
            serving -= 1;
            self.emptying.begin(token.clone(), None, now);
            self.changed = true;
            let node = self.node_of(&token);
            effects.push(Effect::Drain { node, until: None });
        }
    }

    /// What is wanted.
    #[must_use]
    pub fn target(&self) -> Held {
        let stretch = self.stretch.as_ref();
        stretch.map(|stretch| stretch.target).unwrap_or_default()
    }
}
