//! The safety net under every policy: no wish may make the deadline unreachable.
//!
//! - NET-1: while flat out on demand meets the soft deadline at the beginning, and on-demand machines do not run out, it is
//!   met at the end.
//!
//! A wish passes when, after the progress that is certain in this slot, flat out from the next slot on still ends in time.
//! Certain is all of it, or nothing when the job's spot machines may vanish inside a slot. Else this slot takes the least
//! number that passes ([`Net::Least`]) or all that is useful ([`Net::FlatOut`], that of "Can't Be Late").

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
    /// The fastest number.
    FlatOut,
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
    let needed = after(situation, wish.held);
    if needed.is_some_and(|slots| slots <= slots_left) && situation.slot < problem.soft_deadline {
        return wish;
    }
    if let Some(late) = late(situation) {
        return late;
    }
    let reason = Reason::SafetyNet {
        slots_left,
        slots_needed: needed.unwrap_or(u32::MAX),
    };
    let fastest = problem.fastest(limit.map(|limit| {
        limit.saturating_add(certain_spot(situation))
    }));
    if net == Net::Least {
        for count in wish.held.count().max(problem.fewest)..fastest {
            let held = safest(situation, count);
            if held.count() == count && after(situation, held).is_some_and(|slots| slots <= slots_left)
            {
                return Decision { held, reason };
            }
        }
    }
    Decision {
        held: safest(situation, fastest),
        reason,
    }
}

/// Slots that flat out takes after `held` in this slot.
fn after(situation: &Situation<'_>, held: Held) -> Option<u32> {
    let problem = situation.problem;
    let before = situation.held;
    let mut gain = problem.gain(before.count(), held.count());
    if before.count() == held.count() && before.spot != held.spot {
        gain *= problem.reconfigure.replace;
    }
    let mut count = held.count();
    if problem.reclaims && held.spot > 0 {
        gain = 0.0;
        count = 0;
    }
    let limit = situation.offer.on_demand_available;
    // Machines that change on the way to flat out cost the share of growing or of an exchange.
    problem.slots_flat_out(situation.remaining() - gain, count, limit)
}

/// Spot that counts towards a promise.
fn certain_spot(situation: &Situation<'_>) -> u32 {
    if situation.problem.reclaims {
        0
    } else {
        situation.offer.spot_available
    }
}

/// `count` machines without those that may vanish.
fn safest(situation: &Situation<'_>, count: u32) -> Held {
    let mut offer = situation.offer;
    offer.spot_available = certain_spot(situation);
    let held = offer.fill_most(count);
    if situation.problem.allowed(held.count()) == held.count() && held.count() > 0 {
        held
    } else {
        situation.offer.fill_most(count)
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
