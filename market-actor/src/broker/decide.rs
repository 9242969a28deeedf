//! What the policy wants.

use std::collections::BTreeSet;

use shared::ids::JobId;
use shared::units::Micros;

use super::pressing::Place;
use super::thought::{Answer, Found, Matter, Question, Waiting, Wondering};
use super::told::{Decided, JobTold, Unasked};
use super::{Broker, Effect, say};
use crate::market::Slot;
use crate::money::Verdict;
use crate::now::Now;
use crate::policy::Memory;
use crate::policy::tenant::Rules;
use crate::problem::decision::{Decision, Reason};
use crate::problem::offer::{Held, Offer, slot_price};

/// What is wanted, and who said so.
struct Wish {
    held: Held,
    reason: Option<Reason>,
    policy: Option<String>,
    pressing: Option<JobId>,
    unasked: Option<Unasked>,
}

impl Broker {
    /// Asks the policy how many machines, or says itself where there is nothing to ask. TH-1
    pub(super) fn decide(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let rules = self.rules();
        let live = self.jobs.iter().filter(|job| job.is_live());
        let live: BTreeSet<JobId> = live.map(|job| job.id).collect();
        self.late.retain(|id| live.contains(id));
        self.told_late.retain(|id| live.contains(id));
        // Before all that decides, also where no policy is asked.
        self.leave(&rules);
        let rules = Rules {
            // That is done with, pool by pool: a policy sees all of them as one.
            leave: None,
            ..rules
        };
        let offer = rules.less(self.offer(&rules, now), &[], self.terms.slot);
        match self.wondering(&rules, &offer, now, effects) {
            Err(unasked) => {
                // What is still being thought of is of work that is not there any more, or cannot be planned.
                self.waiting = None;
                let held = self.fallback(&offer, &unasked);
                let wish = Wish {
                    held,
                    reason: None,
                    policy: None,
                    pressing: None,
                    unasked: Some(unasked),
                };
                self.hold_to(wish, offer, now, effects);
            }
            Ok(_) if self.waiting.is_some() => self.due = true,
            Ok((wondering, (pressing, hopes))) => {
                let Some(stretch) = &self.stretch else {
                    return;
                };
                let (first, member) = (stretch.first, wondering.member);
                let number = self.think(Matter::Wish(Box::new(wondering)), effects);
                self.waiting = Some(Waiting {
                    number,
                    first,
                    offer,
                    member,
                    pressing,
                    hopes,
                });
            }
        }
    }

    /// Hands out a question; its number.
    pub(super) fn think(&mut self, matter: Matter, effects: &mut Vec<Effect>) -> u64 {
        self.questions += 1;
        let number = self.questions;
        effects.push(Effect::Think(Box::new(Question { number, matter })));
        number
    }

    /// Something was thought out.
    pub(super) fn thought(&mut self, answer: Answer, now: Now, effects: &mut Vec<Effect>) {
        match answer.found {
            Found::Replay(utilities) => self.replayed(answer.number, &utilities),
            Found::Wish(decision, memory) => {
                let awaited = self.waiting.take_if(|own| own.number == answer.number);
                // TH-2
                if let Some(awaited) = awaited {
                    // BR-8: it is asked again when the coordinator is heard.
                    if !self.heard {
                        self.due = true;
                        return;
                    }
                    self.wished(awaited, decision, memory, now, effects);
                }
            }
        }
    }

    fn wished(
        &mut self,
        awaited: Waiting,
        decision: Decision,
        memory: Memory,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let own = self.stretch.as_mut();
        let Some(stretch) =
            own.filter(|own| own.first == awaited.first && own.member == awaited.member)
        else {
            self.due = true;
            return;
        };
        stretch.memory = memory;
        let (offer, reason) = (awaited.offer, decision.reason);
        // A cluster's work goes on when it is late: as cheaply as it can, so on all machines where they cost nothing.
        let (held, unasked) = match reason {
            Reason::GivesUp => {
                let all = self.terms.fill(&offer, self.terms.most);
                let held = match offer.cost(all) > 0.0 {
                    true => self.terms.fill(&offer, self.terms.fewest),
                    false => all,
                };
                (held, Some(Unasked::Late))
            }
            // Nothing else would be in time.
            _ if awaited.hopes => (self.terms.fill(&offer, self.terms.most), None),
            _ => (decision.held, None),
        };
        // BR-10
        let unmeasured = self.jobs.iter().any(|job| job.is_unmeasured(now.wall));
        let held = match unmeasured && held.count() < self.terms.fewest {
            true => self.terms.fill(&offer, self.terms.fewest),
            false => held,
        };
        let wish = Wish {
            held,
            reason: Some(reason),
            policy: Some(awaited.member.name()),
            pressing: awaited.pressing,
            unasked,
        };
        self.hold_to(wish, offer, now, effects);
    }

    /// Remembers what is wanted, as far as it is paid.
    fn hold_to(&mut self, wish: Wish, offer: Offer, now: Now, effects: &mut Vec<Effect>) {
        let Some(slot) = self.history.latest() else {
            return;
        };
        let unasked = wish.unasked;
        let nowhere = matches!(unasked, Some(Unasked::NoPool { .. }));
        if let Some(why) = unasked.as_ref().filter(|_| nowhere && !self.nowhere) {
            say(effects, true, why.to_string());
        }
        self.nowhere = nowhere;
        let target = self.hold_back(wish.held, &slot);
        let target = self.afford(target, now, effects);
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
            policy: wish.policy,
            pressing: wish.pressing,
            late: self.late.iter().copied().collect(),
            held,
            offer,
            target,
            reason: wish.reason,
            note: unasked.map(|unasked| unasked.to_string()),
            spent,
        })));
    }

    /// What was wanted before is held while a policy thinks: it must not pass the budget meanwhile, nor while machines are
    /// emptied. BR-4
    pub(super) fn afford_meanwhile(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let (Some(budget), Some(_)) = (self.terms.budget, &self.waiting) else {
            return;
        };
        let target = self.target();
        let next = self.cost(target, self.terms.grace, now);
        if self.halts.all || target.count() == 0 {
            return;
        }
        if let Verdict::Pause { left, next } = budget.verdict(self.spent(), next) {
            self.halt(target, (left, next), "emptying machines", effects);
            if let Some(stretch) = &mut self.stretch {
                stretch.target = Held::default();
            }
        }
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
                false => self.terms.fill(offer, held.count()),
            }
        } else {
            self.terms.fill(offer, self.terms.fewest)
        }
    }

    /// What a policy is asked, whose deadline presses and whether that rests on spot, or why none is asked. Work is counted
    /// in slots of a machine: prices are of those too.
    fn wondering(
        &mut self,
        rules: &Rules,
        offer: &Offer,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> Result<(Wondering, (Option<JobId>, bool)), Unasked> {
        let allowed = self.sightings.iter().find(|one| rules.allows(&one.pool));
        let live = self.jobs.iter().any(JobTold::is_live);
        if live && allowed.is_none() && !self.sightings.is_empty() {
            return Err(self.no_pool());
        }
        let pool = allowed.map_or_else(|| self.pool(), |one| one.pool.clone());
        let (held, length) = (self.standing(), self.terms.slot);
        let price = self.history.latest().map(|slot| slot.on_demand_price);
        let price = slot_price(price.unwrap_or(self.terms.on_demand_price), length);
        let whole = self.whole();
        let Some(stretch) = self.stretch.as_mut().filter(|_| live) else {
            return Err(Unasked::NoWork);
        };
        let rate = self.meter.rate(length);
        if rate <= 0.0 {
            return Err(Unasked::NoRate);
        }
        let slot = stretch.slot(self.history.number());
        let left = u64::from(whole.saturating_sub(slot));
        let within = Micros(left.saturating_mul(length.0));
        let progress = (self.meter.done() - stretch.before).max(0.0) / rate;
        // Of a job that stood still for very long almost nothing is left of a rate: what it says is no number that can be kept.
        if !progress.is_finite() {
            return Err(Unasked::NoRate);
        }
        stretch.work = progress;
        let (member, first) = (stretch.member, stretch.first);
        let (losses, waited) = (stretch.losses.clone(), stretch.waited);
        let memory = stretch.memory.clone();
        let demands = self.meter.demands(&self.jobs, within, now.wall);
        let place = Place {
            slot,
            whole,
            progress,
            rate,
            held,
            offer: *offer,
            price,
        };
        let pressed = self.press(&demands, &place, effects)?;
        let awaited = (pressed.job, pressed.hopes);
        let wondering = Wondering {
            member,
            problem: pressed.problem,
            slot: pressed.slot,
            progress: pressed.progress,
            held,
            offer: *offer,
            slots: self.history.slots().to_vec(),
            length,
            losses,
            waited,
            rules: rules.clone(),
            pool,
            memory: match pressed.anew {
                true => Memory::since(first),
                false => memory,
            },
            safety: self.terms.safety,
        };
        Ok((wondering, awaited))
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
