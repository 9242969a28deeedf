//! Budgets: what happens before they are passed (BR-4).

use shared::ids::JobId;
use shared::units::MicroUsd;

use super::told::JobTold;
use super::{Broker, Effect, say};
use crate::money::{Budget, Verdict};
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

    /// What of the target the cluster's budget pays.
    pub(super) fn afford(&mut self, target: Held, effects: &mut Vec<Effect>) -> Held {
        let Some(budget) = self.terms.budget else {
            self.halts.all = false;
            return target;
        };
        if target == Held::default() {
            return target;
        }
        let next = self.cost(target, self.history.left());
        let (left, next) = match budget.verdict(self.spent(), next) {
            Verdict::Within { .. } => {
                self.lift();
                return target;
            }
            Verdict::NearCap { left } => {
                self.lift();
                let what = format!("{:.2} USD of the budget are left", left.dollars());
                say(effects, false, what);
                return target;
            }
            Verdict::Pause { left, next } => (left, next),
        };
        if !self.halts.all {
            self.halts.all = true;
            self.changed = true;
            let what = format!(
                "what is left of the slot costs {:.2} USD and {:.2} of the budget are left: all jobs are paused, their state is \
                 kept; raise market.budget_usd and resume them",
                next.dollars(),
                left.dollars()
            );
            say(effects, true, what);
            for job in self.jobs.iter().filter(|job| JobTold::is_live(job)) {
                effects.push(Effect::Pause(job.id));
            }
        }
        Held::default()
    }

    fn lift(&mut self) {
        self.changed |= self.halts.all;
        self.halts.all = false;
    }

    /// Pauses again what is halted and at work all the same: the first time it may not have been heard. Jobs whose own budget ends
    /// are halted.
    pub(super) fn halt_again(&mut self, effects: &mut Vec<Effect>) {
        let open: Vec<JobId> = self.jobs.iter().map(|job| job.id).collect();
        self.halts.jobs.retain(|id| open.contains(id));
        let target = self.stretch.as_ref().map(|own| own.target);
        let next = self.cost(target.unwrap_or_default(), self.history.left());
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
            let halted = self.halts.all || own.is_some();
            if halted {
                effects.push(Effect::Pause(job.id));
            }
        }
        self.changed |= !paused.is_empty();
        self.halts.jobs.extend(paused);
    }

    /// What a job has cost and may cost, where its share of what comes next would pass its budget.
    fn own(&self, job: &JobTold, cap: MicroUsd, next: MicroUsd) -> Option<(MicroUsd, MicroUsd)> {
        let share = self.meter.share(job.id);
        let part = |money: MicroUsd| MicroUsd((money.0 as f64 * share) as u64);
        let charged = self.purse.of(&job.name).spent();
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
