//! What is done so that as many machines stand as are wanted.

use std::cmp::Reverse;

use shared::ids::NodeName;

use super::{Broker, Effect};
use crate::custody;
use crate::now::Now;
use crate::problem::offer::Held;
use crate::provider::{Kind, Want};

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

    /// The next request.
    fn want(&mut self, kind: Kind, now: Now) -> Option<Want> {
        let pool = self.next(kind, now)?.pool.clone();
        self.made += 1;
        let token = NodeName::new(format!("m-{}-{}", self.run, self.made)).ok()?;
        Some(Want { token, pool, kind })
    }

    /// Lets go of machines of a kind beyond `wanted`, first those that are where they may not be (BR-9, BR-11), then those that serve
    /// least: not yet, or without a stage; while `all` others serve (BR-2). One without a stage serves as well: it takes the seat of who
    /// goes.
    fn give_up(&mut self, kind: Kind, wanted: u32, all: u32, now: Now, effects: &mut Vec<Effect>) {
        let counted: Vec<&custody::Held> = self
            .custody
            .standing()
            .filter(|held| !self.emptying.contains(&held.want.token))
            .collect();
        let allowed = |held: &custody::Held| self.counts(&held.want);
        let serves = |held: &&&custody::Held| held.serves() && allowed(held);
        let mut serving = counted.iter().filter(serves).count() as u32;
        let mut own: Vec<([bool; 3], Reverse<NodeName>, NodeName)> = counted
            .iter()
            .filter(|held| held.want.kind == kind)
            .map(|held| {
                let token = held.want.token.clone();
                let place = [allowed(held), held.serves(), self.works(held)];
                (place, Reverse(token.clone()), token)
            })
            .collect();
        own.sort();
        let elsewhere = own.iter().filter(|([allowed, ..], ..)| !allowed).count();
        let surplus = elsewhere + (own.len() - elsewhere).saturating_sub(wanted as usize);
        for ([allowed, serves, _], _, token) in own.into_iter().take(surplus) {
            // Who is elsewhere is not among those that serve.
            if serves && all > 0 && serving < all + u32::from(allowed) {
                continue;
            }
            if !serves {
                let event = custody::Event::Release {
                    token,
                    cause: "it is not wanted any more".into(),
                };
                self.machine(event, now, effects);
                continue;
            }
            serving -= u32::from(allowed);
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
