//! The safety net under every policy: no wish may make the deadline unreachable.
//!
//! - NET-1: while flat out on demand meets the soft deadline at the beginning, and on-demand machines do not run out, it is
//!   met at the end.
//!
//! A wish passes when, after the progress that is certain in this slot, flat out from the next slot on still ends in time.
//! Certain is all of it, or nothing when the job's spot machines may vanish inside a slot. Else this slot takes the least
//! number that passes ([`Net::Least`]) or locks the job at the fastest number to the end ([`Net::Lock`], after the net of
//! "Can't Be Late"): simpler, and dearer.

use serde::{Deserialize, Serialize};

use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::episode::filled;
use crate::problem::offer::Held;
use crate::utility::value;

/// What happens when a wish does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Net {
    /// The fewest machines that pass, not fewer than wished.
    Least,
    /// The fastest number, spot first, and so to the end.
    Lock,
}

/// What becomes of `wish`. `margin` slots are kept in reserve.
#[must_use]
pub fn guard(situation: &Situation<'_>, wish: Decision, net: Net, margin: u32) -> Decision {
    let problem = situation.problem;
    let limit = situation.offer.on_demand_available;
    let slots_left = problem
        .soft_deadline
        .saturating_sub(situation.slot + 1)
        .saturating_sub(margin);
    if situation.slot < problem.soft_deadline && passes(situation, wish.held, slots_left) {
        return wish;
    }
    if let Some(late) = late(situation) {
        return late;
    }
    let reason = Reason::SafetyNet {
        slots_left,
        slots_needed: after(situation, wish.held, limit).unwrap_or(u32::MAX),
    };
    let spot = certain_spot(situation);
    let fastest = problem.fastest(limit.map(|limit| limit.saturating_add(spot)));
    let from = match net {
        Net::Least => wish
            .held
            .count()
            .clamp(problem.fewest, fastest.max(problem.fewest)),
        Net::Lock => fastest,
    };
    for count in from..=fastest {
        let ways = ways(situation, count);
        if let Some(held) = ways
            .into_iter()
            .find(|&held| passes(situation, held, slots_left))
        {
            return Decision { held, reason };
        }
    }
    // Nothing passes any more: the way that changes least.
    let [cheapest, _, kept] = ways(situation, fastest);
    let held = if kept.count() == fastest {
        kept
    } else {
        cheapest
    };
    Decision { held, reason }
}

/// A job that is locked: the fastest number, the cheapest way that still ends in time.
#[must_use]
pub fn locked(situation: &Situation<'_>) -> Decision {
    let problem = situation.problem;
    let slots_left = problem.soft_deadline.saturating_sub(situation.slot + 1);
    let fastest = problem.fastest(situation.offer.on_demand_available);
    let [cheapest, on_demand, kept] = ways(situation, fastest);
    let held = [cheapest, kept]
        .into_iter()
        .find(|&held| held.count() == fastest && passes(situation, held, slots_left))
        .unwrap_or(on_demand);
    Decision {
        held,
        reason: Reason::Locked,
    }
}

/// Ways to hold `count` machines that may be promised, the cheapest first: by price, all on demand, spot no more than before.
fn ways(situation: &Situation<'_>, count: u32) -> [Held; 3] {
    let most = certain_spot(situation);
    let with = |spot: u32| {
        let mut offer = situation.offer;
        offer.spot_available = spot.min(most);
        offer.fill_most(count)
    };
    let cheapest = with(most);
    let limit = situation.offer.on_demand_available.unwrap_or(u32::MAX);
    let spot = situation.held.spot.min(most).min(count);
    let kept = Held {
        spot,
        on_demand: (count - spot).min(limit),
    };
    let all = if most == 0 && cheapest.count() < count {
        // Not enough on demand: what may vanish is better than nothing.
        situation.offer.fill_most(count)
    } else {
        cheapest
    };
    [all, with(0), kept]
}

/// Slots that flat out takes after `held` in this slot, on as many on-demand machines as there are now.
fn after(situation: &Situation<'_>, held: Held, limit: Option<u32>) -> Option<u32> {
    let problem = situation.problem;
    let before = situation.held;
    let mut gain = problem.gain(before.count(), held.count());
    if before.count() == held.count() && before.spot != held.spot {
        gain *= problem.reconfigure.replace;
    }
    let mut left = held;
    if problem.reclaims && held.spot > 0 {
        gain = 0.0;
        left = Held::default();
    }
    let fastest = problem.fastest(limit);
    let mut share = problem.share(left.count(), fastest);
    if left.count() == fastest && left.spot > 0 {
        // Spot that is exchanged for on-demand.
        share = share.min(problem.reconfigure.replace);
    }
    problem.slots_flat_out_with(situation.remaining() - gain, share, limit)
}

/// Whether flat out after `held` ends within `slots_left`. A stock-out of on-demand machines is taken to end, but a quarter
/// of the time is kept in reserve.
fn passes(situation: &Situation<'_>, held: Held, slots_left: u32) -> bool {
    let limit = situation.offer.on_demand_available;
    let within = |limit, most| after(situation, held, limit).is_some_and(|slots| slots <= most);
    within(limit, slots_left)
        || (limit.is_some() && within(None, slots_left - slots_left.div_ceil(4)))
}

/// Spot that counts towards a promise.
fn certain_spot(situation: &Situation<'_>) -> u32 {
    if situation.problem.reclaims {
        0
    } else {
        situation.offer.spot_available
    }
}

/// What to do when not even flat out meets the soft deadline: all there is while finishing pays, else nothing. Nothing to
/// say when it does meet it.
fn late(situation: &Situation<'_>) -> Option<Decision> {
    let problem = situation.problem;
    let offer = &situation.offer;
    let limit = offer.on_demand_available;
    let held = situation.held.count();
    let needed = problem.slots_flat_out(situation.remaining(), held, limit);
    if needed.is_some_and(|slots| situation.slot + slots <= problem.soft_deadline) {
        return None;
    }
    let all = limit.map(|limit| limit.saturating_add(offer.spot_available));
    let fastest = problem.fastest(all);
    let slots = needed.or_else(|| problem.slots_flat_out(situation.remaining(), held, all));
    let machines = f64::from(fastest);
    let worth = slots.map_or(0.0, |slots| {
        let price = if offer.cheap_spot() > 0 && limit == Some(0) {
            offer.spot_price
        } else {
            offer.on_demand_price
        };
        value(problem, situation.slot.saturating_add(slots)) - f64::from(slots) * machines * price
    });
    if worth > 0.0 {
        return Some(filled(offer, fastest, Reason::Late { worth }));
    }
    // Nothing can be had now, but later it may: on-demand that has run out comes back.
    let hope = slots.is_none() && situation.slot < problem.hard_deadline;
    let reason = if hope {
        super::pace::waits(situation)
    } else {
        Reason::GivesUp
    };
    Some(filled(offer, 0, reason))
}
