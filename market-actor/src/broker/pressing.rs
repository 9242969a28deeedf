//! For whose deadline the plan is made: of those that can be met that which needs most.
//!
//! Whether a deadline can be met is asked of all machines that can be had, by the time that is left to the instant. The plan is made
//! in whole slots, and of no more work than the net can promise, which is on demand: more would make it give up for all.

use shared::ids::JobId;
use shared::units::{MicroUsd, Micros};

use super::told::Unasked;
use super::work::Demand;
use super::{Broker, Effect, say, stretch};
use crate::problem::offer::{Held, Offer};
use crate::problem::{MOST_SLOTS, Problem};

/// A late job counts as in time again below this share of what all machines can do: a rate that sways is no news.
const AGAIN: f64 = 0.9;

/// Where the work stands when a policy is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Slots since the work began.
    pub(super) slot: u32,
    /// And until its deadline.
    pub(super) whole: u32,
    /// Work done since then, in slots of a machine.
    pub(super) progress: f64,
    /// Tokens that a machine does in a slot.
    pub(super) rate: f64,
    pub(super) held: Held,
    pub(super) offer: Offer,
    /// On demand, of a machine for a slot.
    pub(super) price: MicroUsd,
}

/// What the plan is made of.
#[derive(Clone, Debug)]
pub(super) struct Pressed {
    pub(super) problem: Problem,
    pub(super) job: Option<JobId>,
    /// The slot under way, and the work done, from where the problem counts.
    pub(super) slot: u32,
    pub(super) progress: f64,
    /// Whether it counts from now on, so that nothing remembered of slots is of it.
    pub(super) anew: bool,
    /// Whether what can be promised is too little, but spot that is there besides is not.
    pub(super) hopes: bool,
}

/// Whether a demand can be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    InTime,
    /// On so many machines, all that can be had, it would need so much more time.
    Late {
        machines: u32,
        short: Micros,
    },
}

impl Broker {
    /// Chooses among demands, who needs most first. Where no deadline can be met any more, that of all says what the work is still worth.
    pub(super) fn press(
        &mut self,
        demands: &[Demand],
        place: &Place,
        effects: &mut Vec<Effect>,
    ) -> Result<Pressed, Unasked> {
        let (mut chosen, mut whole) = (None, None);
        for demand in demands {
            let (pressed, fit) = self.weigh(demand, place)?;
            match (demand.job, fit) {
                (Some(id), Fit::Late { machines, short }) => {
                    self.late.insert(id);
                    if self.told_late.insert(id) {
                        say(effects, true, self.lateness(id, machines, short));
                    }
                }
                (None, Fit::Late { .. }) => whole = Some(pressed),
                (job, Fit::InTime) => {
                    if let Some(id) = job {
                        self.late.remove(&id);
                    }
                    chosen.get_or_insert(pressed);
                }
            }
        }
        chosen.or(whole).ok_or(Unasked::NoSteps)
    }

    /// The problem of a demand, and whether it can be met on all machines that can be had. What its share in the tokens makes more than
    /// can be promised is as much as that: a job that alone would be done in time is to be helped as far as can be.
    fn weigh(&self, demand: &Demand, place: &Place) -> Result<(Pressed, Fit), Unasked> {
        let length = self.terms.slot.0.max(1);
        // A deadline within this slot is one of this slot.
        let ahead = (demand.within.0 / length).max(u64::from(demand.within.0 > 0));
        let end = u64::from(place.slot).saturating_add(ahead);
        let anew = end > u64::from(MOST_SLOTS / 2);
        let (slot, progress) = match anew {
            true => (0, 0.0),
            false => (place.slot, place.progress),
        };
        // The deadline of all stays where it is once it is over, as what the work is worth falls from there on.
        let over = demand.job.is_none() && ahead == 0 && !anew;
        let soft = match over {
            true => u64::from(place.whole),
            false => u64::from(slot).saturating_add(ahead),
        };
        let soft = soft.clamp(1, u64::from(MOST_SLOTS / 2)) as u32;
        let (work, own) = (demand.work / place.rate, demand.own / place.rate);
        let planned = |work| stretch::problem(&self.terms, work, soft, place.price);
        let whole = planned(progress + work);
        let sure = place.offer.on_demand_available;
        let all = sure.map(|count| count.saturating_add(place.offer.spot_available));
        let all = match whole.fastest(all) {
            // What has run out comes back.
            0 => whole.fastest(None),
            count => count,
        };
        let sure = match whole.fastest(sure) {
            0 => all,
            count => count,
        };
        let before = place.held.count();
        let time = demand.within.0 as f64 / length as f64;
        let within = |count| {
            let computes = time - 1.0 + whole.share(before, count);
            computes.max(0.0) * whole.throughput.at(count)
        };
        let most = match demand.job.is_some_and(|id| self.late.contains(&id)) {
            true => AGAIN * within(all),
            false => within(all),
        };
        let (problem, fit) = if own > most {
            let slots = (own - most) / whole.throughput.at(all).max(f64::MIN_POSITIVE);
            let short = Micros((slots * length as f64) as u64);
            let machines = all;
            (whole.clone(), Fit::Late { machines, short })
        } else {
            let more = f64::from(soft.saturating_sub(slot + 1));
            let promised = whole.gain(before, sure) + more * whole.throughput.at(sure);
            (planned(progress + promised.min(work)), Fit::InTime)
        };
        problem.check()?;
        let pressed = Pressed {
            problem,
            job: demand.job,
            slot,
            progress,
            anew,
            hopes: fit == Fit::InTime && own > within(sure),
        };
        Ok((pressed, fit))
    }

    fn lateness(&self, id: JobId, machines: u32, short: Micros) -> String {
        let job = self.jobs.iter().find(|job| job.id == id);
        let name = job.map_or_else(String::new, |job| job.name.to_string());
        format!(
            "job {name} ({id}) cannot be done by its deadline any more: alone on the {machines} machines that can be had it would be \
             {short} late. It goes on with what other deadlines hold; cancel it and submit it with a later deadline"
        )
    }
}
