//! Policies that follow a line of progress: on-demand only, maximal spot, uniform progress, buying ahead.
//!
//! Even pace is `t * L / d`. Uniform progress is that of Wu et al., "Can't Be Late", NSDI'24: (1) behind the line and idle, go
//! on demand; (2) take spot whenever there is some; (3) once on demand, stay until progress is at the line of two
//! changeovers later. Theirs holds all N machines or none; here spot is elastic. Buying ahead stands for the
//! prediction-free algorithm of Kong et al., whose rules could not be read: it is ours.

use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::episode::filled;
use crate::problem::offer::Held;

/// The least constant number of on-demand machines that meets the deadline.
#[must_use]
pub fn on_demand(situation: &Situation<'_>) -> Decision {
    let problem = situation.problem;
    let slots = f64::from(problem.soft_deadline.saturating_sub(1));
    let enough =
        |&count: &u32| problem.done(problem.gain(0, count) + slots * problem.throughput.at(count));
    let machines = (problem.fewest..=problem.most)
        .find(enough)
        .unwrap_or_else(|| problem.fastest(None));
    let limit = situation.offer.on_demand_available.unwrap_or(u32::MAX);
    Decision {
        held: Held {
            spot: 0,
            on_demand: problem.allowed(machines.min(limit)),
        },
        reason: Reason::EvenPace { machines },
    }
}

/// All spot that costs at most `limit` of on-demand, nothing else.
#[must_use]
pub fn maximal(situation: &Situation<'_>, limit: f64) -> Decision {
    let count = cheap(situation, limit);
    if count == 0 {
        return filled(&situation.offer, 0, waits(situation));
    }
    let reason = Reason::CheapSpot {
        price: situation.offer.spot_price,
        limit: limit * situation.offer.on_demand_price,
    };
    filled(&situation.offer, count, reason)
}

/// Uniform progress; `mixed` tops spot up with on-demand to what the line needs.
#[must_use]
pub fn uniform(situation: &Situation<'_>, mixed: bool) -> Decision {
    let problem = situation.problem;
    let slot = f64::from(situation.slot);
    let spot = cheap(situation, 1.0);
    let changeover = 1.0 - problem.reconfigure.grow;
    let until = problem.even_pace(slot + 2.0 * changeover);
    let line = problem.even_pace(slot);
    if mixed {
        let target = problem.even_pace(slot + 1.0);
        let needed = problem.least_for(situation.progress, target, situation.held.count());
        if spot >= needed && spot > 0 {
            return maximal(situation, 1.0);
        }
        return filled(
            &situation.offer,
            needed.max(spot),
            Reason::KeepsPace { target },
        );
    }
    if spot > 0 {
        return maximal(situation, 1.0);
    }
    let count = problem.fastest(situation.offer.on_demand_available);
    if situation.held.on_demand > 0 && situation.progress < until {
        return filled(&situation.offer, count, Reason::StaysOnDemand { until });
    }
    if situation.progress < line {
        return filled(&situation.offer, count, Reason::KeepsPace { target: line });
    }
    filled(&situation.offer, 0, waits(situation))
}

/// Buys ahead while spot costs at most `sigma` of on-demand, else keeps the line with as few machines as it takes.
#[must_use]
pub fn buy_ahead(situation: &Situation<'_>, sigma: f64) -> Decision {
    let problem = situation.problem;
    let target = problem.even_pace(f64::from(situation.slot) + 1.0);
    let before = situation.held.count();
    let needed = problem.least_for(situation.progress, target, before);
    let ahead = cheap(situation, sigma);
    let (count, reason) = if ahead >= needed && ahead > 0 {
        let reason = Reason::CheapSpot {
            price: situation.offer.spot_price,
            limit: sigma * situation.offer.on_demand_price,
        };
        (ahead, reason)
    } else {
        (needed, Reason::KeepsPace { target })
    };
    let covered = situation.progress + problem.throughput.at(before) >= target;
    if count.abs_diff(before) == 1 && covered && before > 0 {
        return filled(
            &situation.offer,
            before,
            Reason::StaysPut { instead_of: count },
        );
    }
    filled(&situation.offer, count, reason)
}

/// Spot machines at a price of at most `limit` of on-demand (and below it) that the job may hold.
fn cheap(situation: &Situation<'_>, limit: f64) -> u32 {
    let offer = &situation.offer;
    if offer.spot_price <= limit * offer.on_demand_price {
        situation.problem.allowed(offer.cheap_spot())
    } else {
        0
    }
}

/// The reason to hold nothing.
#[must_use]
pub fn waits(situation: &Situation<'_>) -> Reason {
    let limit = situation.offer.on_demand_available;
    let needed =
        situation
            .problem
            .slots_flat_out(situation.remaining(), situation.held.count(), limit);
    Reason::Waits {
        slots_left: situation.slots_left(),
        slots_needed: needed.unwrap_or(u32::MAX),
    }
}
