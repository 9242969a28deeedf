//! What the policy wants.

use std::collections::BTreeSet;

use shared::ids::JobId;
use shared::units::Micros;

use super::told::{Decided, JobTold, Unasked};
use super::{Broker, Effect, say, stretch};
use crate::market::Slot;
use crate::now::Now;
use crate::problem::MOST_SLOTS;
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::offer::{Held, Offer, slot_price};
use crate::select::pool::Library;

/// What was asked of a policy, and what it said.
struct Wish {
    decision: Decision,
    policy: String,
    pressing: Option<JobId>,
}

impl Broker {
    /// Asks the policy, and remembers what it wants.
    pub(super) fn decide(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let Some(slot) = self.history.latest() else {
            return;
        };
        let rules = self.rules();
        let losses = self.stretch.as_ref().map_or(&[][..], |own| &own.losses);
        // Before all that decides, also where no policy is asked.
        let offer = rules.less(self.offer(&rules, now), losses, self.terms.slot);
        let wish = self.wanted(&offer, now);
        let (policy, pressing) = match &wish {
            Ok(wish) => (Some(wish.policy.clone()), wish.pressing),
            Err(_) => (None, None),
        };
        let (target, reason, unasked) = match wish {
            // A cluster's work goes on when it is late: as cheaply as it can.
            Ok(Wish { decision, .. }) if decision.reason == Reason::GivesUp => {
                let fewest = offer.fill_most(self.terms.fewest);
                (fewest, Some(decision.reason), Some(Unasked::Late))
            }
            Ok(Wish { decision, .. }) => (decision.held, Some(decision.reason), None),
            Err(unasked) => (self.fallback(&offer, &unasked), None, Some(unasked)),
        };
        let nowhere = matches!(unasked, Some(Unasked::NoPool { .. }));
        if let Some(why) = unasked.as_ref().filter(|_| nowhere && !self.nowhere) {
            say(effects, true, why.to_string());
        }
        self.nowhere = nowhere;
        let target = self.hold_back(target, &slot);
        let target = self.afford(target, effects);
        let held = self.standing();
        let (done, left) = (self.meter.done(), self.meter.left());
        let rate = self.meter.rate(self.terms.slot);
        let (number, spent) = (self.history.number(), self.spent());
        let Some(stretch) = &mut self.stretch else {
            return;
        };
        self.changed |= stretch.target != target;
        stretch.target = target;
        effects.push(Effect::Decided(Box::new(Decided {
            at: now.wall,
            slot: stretch.slot(number),
            progress: done - stretch.before,
            remaining: left,
            rate,
            policy,
            pressing,
            held,
            offer,
            target,
            reason,
            note: unasked.map(|unasked| unasked.to_string()),
            spent,
        })));
    }

    /// What a policy cannot say: without work nothing, otherwise what stands, or the fewest machines.
    fn fallback(&self, offer: &Offer, why: &Unasked) -> Held {
        let held = self.standing();
        if *why == Unasked::NoWork {
            Held::default()
        } else if (self.terms.fewest..=self.terms.most).contains(&held.count()) {
            match held.spot <= offer.spot_available {
                true => held,
                // The rules of a tenant that came take spot away.
                false => offer.fill_most(held.count()),
            }
        } else {
            offer.fill_most(self.terms.fewest)
        }
    }

    /// The policy's wish, or why it is not asked. Work is counted in slots of a machine: prices are of those too.
    fn wanted(&mut self, offer: &Offer, now: Now) -> Result<Wish, Unasked> {
        let rules = self.rules();
        let allowed = self.sightings.iter().find(|one| rules.allows(&one.pool));
        let live = self.jobs.iter().any(JobTold::is_live);
        if live && allowed.is_none() && !self.sightings.is_empty() {
            let known = self.sightings.iter().map(|one| one.pool.region.clone());
            let known: BTreeSet<String> = known.collect();
            return Err(Unasked::NoPool {
                known: known.into_iter().collect(),
            });
        }
        let pool = allowed.map_or_else(|| self.pool(), |one| one.pool.clone());
        let (held, length) = (self.standing(), self.terms.slot);
        let price = self.history.latest().map(|slot| slot.on_demand_price);
        let price = slot_price(price.unwrap_or(self.terms.on_demand_price), length);
        let Some(stretch) = self.stretch.as_mut().filter(|_| live) else {
            return Err(Unasked::NoWork);
        };
        let rate = self.meter.rate(length);
        if rate <= 0.0 {
            return Err(Unasked::NoRate);
        }
        let slot = stretch.slot(self.history.number());
        let whole = u32::try_from(self.terms.deadline.0 / length.0.max(1)).unwrap_or(u32::MAX);
        let left = u64::from(whole.saturating_sub(slot));
        let within = Micros(left.saturating_mul(length.0));
        let demand = self.meter.pressing(&self.jobs, within, now.wall);
        let progress = (self.meter.done() - stretch.before).max(0.0) / rate;
        stretch.work = progress;
        // A deadline within this slot is one of this slot.
        let ahead = (demand.within.0 / length.0.max(1)).max(u64::from(demand.within.0 > 0));
        let soft = u64::from(slot).saturating_add(ahead);
        let soft = soft.clamp(1, u64::from(MOST_SLOTS / 2)) as u32;
        let work = progress + demand.work / rate;
        let problem = stretch::problem(&self.terms, work, soft, price);
        problem.check()?;
        let slots = self.history.slots();
        let market = stretch::market(slots, length, pool.clone());
        let at = slots.len() - 1;
        let situation = Situation {
            problem: &problem,
            slot,
            progress,
            held,
            offer: *offer,
            at,
            past: &slots[..at],
            length,
            losses: &stretch.losses,
            waited: stretch.waited,
        };
        let (member, safety) = (stretch.member, self.terms.safety);
        let memory = &mut stretch.memory;
        let decision = member.source.with(&market, &Library::new(), |foresight| {
            let policy = &member.policy;
            policy.decide_under(&rules, &pool, &situation, foresight, memory, safety)
        });
        Ok(Wish {
            decision,
            policy: member.name(),
            pressing: demand.job,
        })
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
}
