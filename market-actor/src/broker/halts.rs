//! Budgets: what happens before they are passed (BR-4).

use shared::ids::JobId;
use shared::units::{MicroUsd, Micros};

use super::kept::Halt;
use super::told::JobTold;
use super::{Broker, Effect, UNHEARD, say};
use crate::custody;
use crate::money::{Budget, Verdict};
use crate::now::Now;
use crate::problem::offer::Held;

impl Broker {
    /// Whether the cluster's budget is gone while machines are still wanted.
    pub(super) fn is_over_budget(&self) -> bool {
        let wanted = self
            .stretch
            .as_ref()
            .is_some_and(|own| own.target.count() > 0);
        let over = self
            .terms
            .budget
            .is_some_and(|budget| self.spent() >= budget.cap);
        wanted && over && !self.halts.all
    }

    /// What of the target the cluster's budget pays: what is left of the slot, and the grace after it, in which machines are emptied
    /// when the next slot is not paid.
    pub(super) fn afford(&mut self, target: Held, now: Now, effects: &mut Vec<Effect>) -> Held {
        let Some(budget) = self.terms.budget else {
            self.lift();
            return target;
        };
        // Fewer machines, or what is left of a slot, may be paid: what was paused wants more than that.
        if self.halts.all && !self.fits_again(budget, now) {
            return Held::default();
        }
        self.lift();
        if target == Held::default() {
            return target;
        }
        let time = self.history.left().plus(self.terms.grace);
        let next = self.cost(target, time, now);
        let (left, next) = match budget.verdict(self.spent(), next) {
            Verdict::Within { .. } => return target,
            Verdict::NearCap { left } => {
                let what = format!("{:.2} USD of the budget are left", left.dollars());
                say(effects, false, what);
                return target;
            }
            Verdict::Pause { left, next } => (left, next),
        };
        let purpose = "what is left of the slot, and emptying machines after it,";
        self.halt(target, (left, next), purpose, effects);
        Held::default()
    }

    /// The cluster's budget does not pay the target: all jobs are paused. `money` is what is left, and what is needed for `purpose`.
    pub(super) fn halt(
        &mut self,
        target: Held,
        money: (MicroUsd, MicroUsd),
        purpose: &str,
        effects: &mut Vec<Effect>,
    ) {
        let (left, next) = money;
        self.halts.all = true;
        self.halts.of = self.terms.budget.map(|budget| Halt {
            cap: budget.cap,
            target,
        });
        self.changed = true;
        let what = format!(
            "{purpose} costs {:.2} USD and {:.2} of the budget are left: all jobs are paused, their state is \
             kept; raise market.budget_usd and resume them",
            next.dollars(),
            left.dollars()
        );
        say(effects, true, what);
        for job in self.jobs.iter().filter(|job| JobTold::is_live(job)) {
            effects.push(Effect::Pause(job.id));
        }
    }

    /// Whether the budget pays a whole slot of what it did not pay, and emptying it after that: prices have fallen.
    fn fits_again(&self, budget: Budget, now: Now) -> bool {
        self.halts.of.is_none_or(|halt| {
            let whole = self.terms.slot.plus(self.terms.grace);
            let whole = self.cost(halt.target, whole, now);
            !matches!(budget.verdict(self.spent(), whole), Verdict::Pause { .. })
        })
    }

    /// A process begins: a budget that was raised or taken away meanwhile pauses nothing any more.
    pub(super) fn halt_anew(&mut self) {
        let cap = self.terms.budget.map(|budget| budget.cap);
        let more = |halt: Halt| cap.is_none_or(|cap| cap > halt.cap);
        if self.halts.of.is_none_or(more) {
            self.lift();
        }
    }

    /// Nothing is paused by the cluster's budget any more.
    pub(super) fn lift(&mut self) {
        self.changed |= self.halts.all;
        self.halts.all = false;
        self.halts.of = None;
    }

    /// The coordinator does not answer.
    pub(super) fn unheard(&mut self, now: Now) {
        if self.heard {
            self.unheard = now.steady;
        }
        self.heard = false;
        self.meter.interrupted();
        self.emptying.unheard();
        self.forget_told();
        self.custody.unheard(now);
    }

    /// Releases what costs beyond the budget or beyond its grace while nobody is there to save anything first (BR-4).
    pub(super) fn give_up_unheard(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let bound = Micros(self.terms.grace.0.saturating_mul(UNHEARD));
        if self.heard || now.steady.since(self.unheard) < bound {
            return;
        }
        let cap = self.terms.budget.map(|budget| budget.cap);
        let over = cap.is_some_and(|cap| self.spent() >= cap);
        let late = self.emptying.late(now, self.terms.grace);
        let held = self.custody.held().iter();
        let gone = held.filter(|(token, held)| {
            let told = matches!(held.stage, custody::Stage::Releasing { .. });
            !told && (over || late.contains(*token))
        });
        let gone: Vec<_> = gone.map(|(token, _)| token.clone()).collect();
        if gone.is_empty() {
            return;
        }
        let what = format!(
            "the coordinator was not heard for {:.0} s: {} machines beyond the budget or their grace are released, what they did since \
             the last checkpoints is done again",
            now.steady.since(self.unheard).seconds(),
            gone.len()
        );
        say(effects, true, what);
        for token in gone {
            self.emptying.end(&token);
            let cause = "the coordinator is not heard and its budget or grace is over".into();
            self.machine(custody::Event::Release { token, cause }, now, effects);
        }
        self.changed = true;
    }

    /// Pauses again what is halted and at work all the same: the first time it may not have been heard. Jobs whose own budget ends
    /// are halted, and those that have no place beside others (BR-9).
    pub(super) fn halt_again(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.tell_apart(effects);
        let open: Vec<JobId> = self.jobs.iter().map(|job| job.id).collect();
        self.halts.jobs.retain(|id| open.contains(id));
        self.halts.paused.retain(|id| open.contains(id));
        for job in &self.jobs {
            if job.paused && self.halts.jobs.contains(&job.id) {
                self.changed |= self.halts.paused.insert(job.id);
            } else if job.is_live() && self.halts.paused.remove(&job.id) {
                // It was resumed: what pauses it again is said again.
                self.halts.jobs.remove(&job.id);
                self.changed = true;
            }
        }
        let target = self.stretch.as_ref().map(|own| own.target);
        let next = self.cost(target.unwrap_or_default(), self.history.left(), now);
        let mut paused = Vec::new();
        for job in self.jobs.iter().filter(|job| JobTold::is_live(job)) {
            let own = job.budget.and_then(|cap| self.own(job, cap, next));
            if let Some((spent, cap)) = own
                && !self.halts.jobs.contains(&job.id)
            {
                let what = format!(
                    "job {} has cost {:.2} USD of its budget of {:.2} and would pass it: it is paused, its state is kept; submit it \
                     under another name with init_from its adapter and a larger budget, or cancel it",
                    job.name,
                    spent.dollars(),
                    cap.dollars()
                );
                say(effects, true, what);
                paused.push(job.id);
            }
            let halted = self.halts.all || own.is_some() || self.is_apart(job.id);
            let pause = Effect::Pause(job.id);
            if halted && !effects.contains(&pause) {
                effects.push(pause);
            }
        }
        self.changed |= !paused.is_empty();
        self.halts.jobs.extend(paused);
    }

    /// What a job has cost and may cost, where its share of what comes next would pass its budget.
    fn own(&self, job: &JobTold, cap: MicroUsd, next: MicroUsd) -> Option<(MicroUsd, MicroUsd)> {
        let share = self.meter.share(job.id);
        let part = |money: MicroUsd| MicroUsd((money.0 as f64 * share) as u64);
        let charged = self.purse.of(job.id).spent();
        let spent = MicroUsd(charged.0.saturating_add(part(self.purse.pending()).0));
        let budget = Budget {
            cap,
            warn_per_mille: 1000,
        };
        let verdict = budget.verdict(spent, part(next));
        let passes = spent >= cap || matches!(verdict, Verdict::Pause { .. });
        passes.then_some((spent, cap))
    }
}
