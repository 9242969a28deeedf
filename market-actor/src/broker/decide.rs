//! What the policy wants, and what is done so that it stands.

use std::cmp::Reverse;

use shared::ids::NodeName;
use shared::units::{MicroUsd, Micros};

use super::told::{Decided, JobTold};
use super::{Broker, Effect, cost, say};
use crate::custody;
use crate::market::{Market, Pool, Slot};
use crate::money::Verdict;
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::offer::{Held, Offer, slot_price};
use crate::problem::throughput::Throughput;
use crate::problem::{MOST_SLOTS, Problem, Reconfigure};
use crate::provider::{Kind, Want};
use crate::select::pool::Library;

impl Broker {
    /// Asks the policy, and remembers what it wants.
    pub(super) fn decide(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        let slot = self.now_offered();
        let (target, reason, note) = match self.wanted(now) {
            // A cluster's work goes on when it is late: as cheaply as it can.
            Ok(Decision {
                reason: reason @ Reason::GivesUp,
                ..
            }) => {
                let note =
                    "the deadline cannot be met at a gain: the fewest machines until it is done";
                (self.fewest(), Some(reason), Some(note.to_owned()))
            }
            Ok(decision) => (decision.held, Some(decision.reason), None),
            Err(note) => (self.fallback(), None, Some(note)),
        };
        let target = self.hold_back(target, &slot);
        let target = self.afford(target, &slot, effects);
        let held = self.standing();
        let offer = self.offer(now);
        let rate = self.meter.rate(self.terms.slot);
        if let Some(plan) = &mut self.plan {
            plan.target = target;
            let decided = Decided {
                at: now,
                slot: (self.slots.len() - 1 - plan.first) as u32,
                progress: self.meter.done() - plan.before,
                remaining: self.meter.left(),
                rate,
                held,
                offer,
                target,
                reason,
                note,
                spent: self.spent,
            };
            effects.push(Effect::Decided(Box::new(decided)));
        }
    }

    /// What a policy cannot say: there is no work, or nothing was measured yet. Then what stands stays.
    fn fallback(&self) -> Held {
        let held = self.standing();
        if self.plan.is_none() {
            Held::default()
        } else if (self.terms.fewest..=self.terms.most).contains(&held.count()) {
            held
        } else {
            self.fewest()
        }
    }

    /// The fewest machines, as cheap as they are.
    fn fewest(&self) -> Held {
        let slot = self.now_offered();
        Offer::of(&slot, self.terms.slot).fill_most(self.terms.fewest)
    }

    /// What is offered now; history has the least of each slot.
    fn now_offered(&self) -> Slot {
        self.latest.unwrap_or(self.slots[self.slots.len() - 1])
    }

    /// The policy's wish, or why it is not asked.
    fn wanted(&mut self, now: Micros) -> Result<Decision, String> {
        let held = self.standing();
        let offer = self.offer(now);
        let rate = self.meter.rate(self.terms.slot);
        let length = self.terms.slot;
        let left = self.meter.left();
        let terms = self.terms.clone();
        let Some(plan) = &mut self.plan else {
            return Err("no job wants a machine".into());
        };
        if rate <= 0.0 {
            return Err("no rate was measured yet: the fewest machines".into());
        }
        let at = self.slots.len() - 1;
        let progress = (self.meter.done() - plan.before).max(0.0);
        let soft = (terms.deadline.0 / length.0.max(1)).clamp(1, u64::from(MOST_SLOTS / 2));
        let soft = soft as u32;
        let share = 1.0 - (terms.change.0 as f64 / length.0.max(1) as f64).min(0.9);
        let work = progress + left;
        let price = slot_price(self.slots[at].on_demand_price, length).0 as f64;
        let problem = Problem {
            work,
            soft_deadline: soft,
            hard_deadline: soft + soft / 2 + 1,
            fewest: terms.fewest,
            most: terms.most,
            throughput: Throughput::per_machine(rate),
            reconfigure: Reconfigure {
                grow: share,
                shrink: share,
                replace: share,
                lost: 0.0,
            },
            value: MicroUsd((terms.worth * work / rate * price).min(1e18) as u64),
            reclaims: true,
        };
        problem.check().map_err(|error| error.to_string())?;
        let market = Market {
            pool: Pool {
                provider: String::new(),
                region: String::new(),
                zone: String::new(),
                machine: String::new(),
            },
            start: Micros(0),
            slot: length,
            slots: self.slots.clone(),
        };
        let situation = Situation {
            problem: &problem,
            slot: (at - plan.first) as u32,
            progress,
            held,
            offer,
            at,
            past: &self.slots[..at],
            length,
            losses: &plan.losses,
            waited: plan.waited,
        };
        let pool = self
            .sightings
            .first()
            .map_or_else(|| market.pool.clone(), |one| one.pool.clone());
        let memory = &mut plan.memory;
        Ok(terms
            .member
            .source
            .with(&market, &Library::new(), |foresight| {
                terms.member.policy.decide_under(
                    &terms.rules,
                    &pool,
                    &situation,
                    foresight,
                    memory,
                    terms.safety,
                )
            }))
    }

    /// What can be had now: kinds that were refused just now are not asked for, and machines at risk are not counted on (BR-3).
    fn offer(&self, now: Micros) -> Offer {
        let held = self.standing();
        let mut offer = Offer::of(&self.now_offered(), self.terms.slot);
        let standing = self.custody.standing();
        let risky = standing
            .filter(|one| self.at_risk.contains(&one.want.token))
            .count() as u32;
        offer.spot_available = offer.spot_available.saturating_sub(risky).max(held.spot);
        if self.is_refused(Kind::Spot, now) {
            offer.spot_available = offer.spot_available.min(held.spot);
        }
        if self.is_refused(Kind::OnDemand, now) {
            let limit = offer.on_demand_available.unwrap_or(u32::MAX);
            offer.on_demand_available = Some(limit.min(held.on_demand));
        }
        offer
    }

    fn is_refused(&self, kind: Kind, now: Micros) -> bool {
        self.refused.get(&kind).is_some_and(|until| now < *until)
    }

    /// BR-5: on-demand that works is kept while spot has not been cheaper for long enough.
    fn hold_back(&self, target: Held, slot: &Slot) -> Held {
        let held = self.standing();
        let lured = target.on_demand < held.on_demand && target.spot > held.spot;
        if !lured || self.cheaper >= self.terms.hysteresis || slot.spot_available == 0 {
            return target;
        }
        let kept = held.on_demand.min(target.count());
        Held {
            spot: target.count() - kept,
            on_demand: kept,
        }
    }

    /// BR-4.
    fn afford(&mut self, target: Held, slot: &Slot, effects: &mut Vec<Effect>) -> Held {
        let Some(budget) = &self.terms.budget else {
            return target;
        };
        if target == Held::default() {
            return target;
        }
        let next = cost(target, slot, self.terms.slot);
        let verdict = budget.verdict(self.spent, next);
        if let Verdict::NearCap { left } = verdict {
            say(
                effects,
                false,
                format!("{:.2} USD of the budget are left", left.dollars()),
            );
        }
        let Verdict::Pause { left, next } = verdict else {
            return target;
        };
        let what = format!(
            "the next slot costs {:.2} USD and {:.2} of the budget are left: all jobs are paused, their state is kept; raise \
             market.budget_usd and resume them",
            next.dollars(),
            left.dollars()
        );
        say(effects, true, what);
        for job in self.jobs.iter().filter(|job| JobTold::is_live(job)) {
            effects.push(Effect::Pause(job.id));
        }
        Held::default()
    }

    /// Machines that count, by kind.
    pub(super) fn standing(&self) -> Held {
        let mut held = Held::default();
        for one in self.custody.standing() {
            if self.emptied.contains_key(&one.want.token) {
                continue;
            }
            match one.want.kind {
                Kind::Spot => held.spot += 1,
                Kind::OnDemand => held.on_demand += 1,
            }
        }
        held
    }

    /// Asks for what is missing and gives up what is too much.
    pub(super) fn reconcile(&mut self, now: Micros, effects: &mut Vec<Effect>) {
        let target = self
            .plan
            .as_ref()
            .map_or_else(Held::default, |plan| plan.target);
        if self.slots.is_empty() || !self.heard {
            return;
        }
        let held = self.standing();
        for (kind, wanted, have) in [
            (Kind::Spot, target.spot, held.spot),
            (Kind::OnDemand, target.on_demand, held.on_demand),
        ] {
            if self.is_refused(kind, now) {
                continue;
            }
            for _ in have..wanted {
                if let Some(want) = self.want(kind) {
                    self.machine(custody::Event::Acquire(want), now, effects);
                }
            }
        }
        for (kind, wanted) in [
            (Kind::OnDemand, target.on_demand),
            (Kind::Spot, target.spot),
        ] {
            self.give_up(kind, wanted, target.count(), now, effects);
        }
    }

    /// The next request, from the cheapest pool that has one.
    fn want(&mut self, kind: Kind) -> Option<Want> {
        let allowed = || {
            self.sightings
                .iter()
                .filter(|one| self.terms.rules.allows(&one.pool))
        };
        let best = match kind {
            Kind::Spot => allowed()
                .filter(|one| one.spot_available != Some(0))
                .min_by_key(|one| (one.spot_price, one.pool.clone())),
            Kind::OnDemand => allowed()
                .filter(|one| one.on_demand_available != Some(0))
                .min_by_key(|one| (one.on_demand_price, one.pool.clone())),
        };
        let pool = best?.pool.clone();
        self.made += 1;
        let token = NodeName::new(format!("m-{}-{}", self.run, self.made)).ok()?;
        Some(Want { token, pool, kind })
    }

    /// Lets go of machines of a kind beyond `wanted`, those that serve least first, while `all` others serve (BR-2).
    fn give_up(
        &mut self,
        kind: Kind,
        wanted: u32,
        all: u32,
        now: Micros,
        effects: &mut Vec<Effect>,
    ) {
        let serves = |held: &custody::Held| matches!(held.stage, custody::Stage::Serving { .. });
        let counted: Vec<&custody::Held> = self
            .custody
            .standing()
            .filter(|held| !self.emptied.contains_key(&held.want.token))
            .collect();
        let mut serving = counted.iter().filter(|held| serves(held)).count() as u32;
        let mut own: Vec<(bool, Reverse<NodeName>, NodeName)> = counted
            .iter()
            .filter(|held| held.want.kind == kind)
            .map(|held| {
                let token = held.want.token.clone();
                (serves(held), Reverse(token.clone()), token)
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
            self.emptied.insert(token.clone(), (now, None));
            effects.push(Effect::Drain {
                node: self.node_of(&token),
                deadline: None,
            });
        }
    }
}
