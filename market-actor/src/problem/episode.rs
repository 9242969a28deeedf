//! A job lives through a market: decisions become progress, cost and a record for each slot.
//!
//! - EP-1: what is held never exceeds what is offered, and its number is 0 or in `[fewest, most]`; a decision beyond is cut.
//! - EP-2: the spent money is the sum over the records, in integers.
//! - EP-3: nothing is held after the work is done, nor after the hard deadline.
//!
//! **A reclaim inside a slot.** A slot of the market says how many spot machines live through it. A [`Reclaim`] says that
//! more were offered at its start and were taken after some share of it. With n machines before, n' after (0 when fewer
//! than `fewest` are left) and a share f before, the slot brings
//! `mu * f * H(n) + shrink * (1 - f) * H(n') - lost * H(n)`, never below 0; machines that vanish are paid up to f.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;

use super::Problem;
use super::decision::{Decision, Reason, Situation};
use super::offer::{Held, Offer, slot_price};
use super::throughput::Throughput;
use crate::market::Market;
use crate::utility::value;

/// Spot machines that were there when a slot began and did not live through it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reclaim {
    /// Spot machines offered at the slot's start.
    pub offered: u32,
    /// Share of the slot that passes before the excess is taken.
    pub after: f64,
}

/// What a job goes through: a part of a market, and what else happens in it.
#[derive(Clone, Debug)]
pub struct Course<'a> {
    /// The market; after its last slot there is on-demand only.
    pub market: &'a Market,
    /// Index of the job's first slot.
    pub first: usize,
    /// Reclaims inside slots, by index in the market.
    pub reclaims: &'a BTreeMap<usize, Reclaim>,
    /// Throughput curves that hold from a slot of the job on, in rising order.
    pub curves: &'a [(u32, Throughput)],
}

/// One slot of an episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Slots since the job began.
    pub slot: u32,
    /// What the slot offered.
    pub offer: Offer,
    /// What was held, and why.
    pub decision: Decision,
    /// Spot machines that vanished inside the slot.
    pub reclaimed: u32,
    /// Whether the machines changed, so that a part of the slot did not compute.
    pub reconfigured: bool,
    /// Work that the slot brought.
    pub gained: f64,
    /// What it cost.
    pub cost: MicroUsd,
    /// The part of it for on-demand machines.
    pub on_demand_cost: MicroUsd,
    /// The part of it that brought no work: changes and reclaims.
    pub waste: MicroUsd,
}

/// How an episode ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Slots until the work was done; nothing when it was not.
    pub completed: Option<u32>,
    /// Whether the soft deadline was missed.
    pub missed: bool,
    /// Work done.
    pub progress: f64,
    /// What was paid.
    pub spent: MicroUsd,
    /// What finishing at that time was worth.
    pub value: MicroUsd,
    /// `value - spent`, millionths of a dollar.
    pub utility: i64,
    /// Slots in which the machines changed.
    pub reconfigurations: u32,
    /// Spot machines lost inside slots.
    pub reclaimed: u32,
    /// Each slot up to the end.
    pub records: Vec<Record>,
}

/// No reclaims.
static NEVER: BTreeMap<usize, Reclaim> = BTreeMap::new();

impl<'a> Course<'a> {
    /// A market as it is, from its slot `first` on.
    #[must_use]
    pub fn plain(market: &'a Market, first: usize) -> Self {
        Self {
            market,
            first,
            reclaims: &NEVER,
            curves: &[],
        }
    }

    /// What a slot of the job offers at its start.
    #[must_use]
    pub fn offer(&self, slot: u32) -> Offer {
        let at = self.first + slot as usize;
        let mut offer = self.lives_through(slot);
        if let Some(reclaim) = self.reclaims.get(&at) {
            offer.spot_available = offer.spot_available.max(reclaim.offered);
        }
        offer
    }

    /// What a slot of the job offers up to its end.
    #[must_use]
    pub fn lives_through(&self, slot: u32) -> Offer {
        let length = self.market.slot;
        let at = self.first + slot as usize;
        if let Some(slot) = self.market.slots.get(at) {
            return Offer::of(slot, length);
        }
        let (price, limit) = self.market.slots.last().map_or((0.0, None), |last| {
            (
                slot_price(last.on_demand_price, length).0 as f64,
                last.on_demand_available,
            )
        });
        Offer {
            spot_price: price,
            spot_available: 0,
            on_demand_price: price,
            on_demand_available: limit,
        }
    }
}

/// Where a job stands when an episode is taken up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Slots since the job began.
    pub slot: u32,
    /// Work done.
    pub progress: f64,
    /// Machines of the slot before that still live.
    pub held: Held,
    /// Spot machines taken from it, by slot before this one.
    pub losses: Vec<u32>,
    /// Slots in a row without spot.
    pub waited: u32,
}

/// Plays a job through a course; `decide` answers each slot until the work is done or the hard deadline has passed.
pub fn play(
    problem: &Problem,
    course: &Course<'_>,
    decide: impl FnMut(&Situation<'_>) -> Decision,
) -> Outcome {
    play_from(problem, course, Standing::default(), decide)
}

/// The same from where a job stands; slots are counted from its begin, and the records are those of the slots played.
pub fn play_from(
    problem: &Problem,
    course: &Course<'_>,
    standing: Standing,
    mut decide: impl FnMut(&Situation<'_>) -> Decision,
) -> Outcome {
    let mut known = problem.clone();
    let mut curves = course.curves.iter().peekable();
    let Standing {
        slot: first,
        mut progress,
        mut held,
        mut losses,
        mut waited,
    } = standing;
    let mut records: Vec<Record> = Vec::new();
    let mut completed = None;
    for slot in first..problem.hard_deadline {
        while let Some((_, curve)) = curves.next_if(|(from, _)| *from <= slot) {
            known.throughput = curve.clone();
        }
        let offer = course.offer(slot);
        let at = course.first + slot as usize;
        losses.push(held.spot.saturating_sub(offer.spot_available));
        let situation = Situation {
            problem: &known,
            slot,
            progress,
            held,
            offer,
            at,
            past: &course.market.slots[..at.min(course.market.slots.len())],
            length: course.market.slot,
            losses: &losses,
            waited,
        };
        let mut decision = decide(&situation);
        decision.held = cut(&known, &offer, decision.held);
        let record = pass(&known, course, slot, held, decision);
        held = record.decision.held;
        held.spot -= record.reclaimed;
        if known.allowed(held.count()) != held.count() {
            held = Held::default();
        }
        if let Some(last) = losses.last_mut() {
            *last += record.reclaimed;
        }
        waited = if record.decision.held.spot == 0 {
            waited + 1
        } else {
            0
        };
        progress += record.gained;
        records.push(record);
        if known.done(progress) {
            completed = Some(slot + 1);
            break;
        }
    }
    outcome(problem, completed, progress, records)
}

/// EP-1: what of `wish` can be held.
pub(crate) fn cut(problem: &Problem, offer: &Offer, wish: Held) -> Held {
    let limit = offer.on_demand_available.unwrap_or(u32::MAX);
    let spot = wish.spot.min(offer.spot_available).min(problem.most);
    let on_demand = wish.on_demand.min(limit).min(problem.most - spot);
    if problem.allowed(spot + on_demand) == spot + on_demand {
        Held { spot, on_demand }
    } else {
        Held::default()
    }
}

/// One slot with what is held in it.
pub(crate) fn pass(
    problem: &Problem,
    course: &Course<'_>,
    slot: u32,
    before: Held,
    decision: Decision,
) -> Record {
    let held = decision.held;
    let offer = course.offer(slot);
    let count = held.count();
    let same = before.count() == count;
    let exchanged = same && before.spot != held.spot;
    let mut share = problem.share(before.count(), count);
    if exchanged {
        share *= problem.reconfigure.replace;
    }
    let full = problem.throughput.at(count);
    let at = course.first + slot as usize;
    let reclaimed = held
        .spot
        .saturating_sub(course.lives_through(slot).spot_available);
    let after = course
        .reclaims
        .get(&at)
        .map_or(1.0, |reclaim| reclaim.after.clamp(0.0, 1.0));
    let mut gained = share * full;
    let mut spot_cost = f64::from(held.spot) * offer.spot_price;
    if reclaimed > 0 {
        let left = problem.allowed(count - reclaimed);
        let rest = problem.reconfigure.shrink * (1.0 - after) * problem.throughput.at(left);
        gained = (share * after * full + rest - problem.reconfigure.lost * full).max(0.0);
        spot_cost -= f64::from(reclaimed) * offer.spot_price * (1.0 - after);
    }
    let on_demand_cost =
        MicroUsd((f64::from(held.on_demand) * offer.on_demand_price).round() as u64);
    let cost = MicroUsd((spot_cost.round() as u64).saturating_add(on_demand_cost.0));
    let idle = if full > 0.0 {
        (1.0 - gained / full).clamp(0.0, 1.0)
    } else {
        1.0
    };
    Record {
        slot,
        offer,
        reclaimed,
        reconfigured: (!same || exchanged) && (count > 0 || before.count() > 0),
        gained,
        cost,
        on_demand_cost,
        waste: MicroUsd((cost.0 as f64 * idle).round() as u64),
        decision,
    }
}

/// How it ended.
pub(crate) fn outcome(
    problem: &Problem,
    completed: Option<u32>,
    progress: f64,
    records: Vec<Record>,
) -> Outcome {
    let costs = records.iter().map(|record| record.cost.0);
    let spent = MicroUsd(costs.fold(0, u64::saturating_add));
    let worth = completed.map_or(0.0, |slots| value(problem, slots));
    let worth = MicroUsd(worth.round() as u64);
    Outcome {
        completed,
        missed: completed.is_none_or(|slots| slots > problem.soft_deadline),
        progress,
        spent,
        value: worth,
        utility: worth.less(spent),
        reconfigurations: records.iter().filter(|r| r.reconfigured).count() as u32,
        reclaimed: records.iter().map(|record| record.reclaimed).sum(),
        records,
    }
}

/// Cuts the slots of a fine market into slots of `ticks` each, with what vanishes inside them: a slot offers what its first
/// tick offers, holds the least of its ticks, and its price is that of its first tick. A rest of fewer ticks is left out.
#[must_use]
pub fn coarsen(fine: &Market, ticks: usize) -> (Market, BTreeMap<usize, Reclaim>) {
    let mut reclaims = BTreeMap::new();
    let mut slots = Vec::new();
    for (at, part) in fine.slots.chunks_exact(ticks.max(1)).enumerate() {
        let mut slot = part[0];
        let offered = slot.spot_available;
        let least = part.iter().map(|tick| tick.spot_available).min();
        slot.spot_available = least.unwrap_or(0);
        slot.on_demand_available = part
            .iter()
            .filter_map(|tick| tick.on_demand_available)
            .min();
        if let Some(tick) = part.iter().position(|tick| tick.spot_available < offered) {
            let after = tick as f64 / part.len() as f64;
            reclaims.insert(at, Reclaim { offered, after });
        }
        slots.push(slot);
    }
    let market = Market {
        pool: fine.pool.clone(),
        start: fine.start,
        slot: shared::units::Micros(fine.slot.0 * ticks.max(1) as u64),
        slots,
    };
    (market, reclaims)
}

/// How often each reason stood, in the order of the words.
#[must_use]
pub fn reasons(records: &[Record]) -> BTreeMap<&'static str, u32> {
    let mut counts = BTreeMap::new();
    for record in records {
        *counts.entry(record.decision.reason.word()).or_insert(0) += 1;
    }
    counts
}

/// A decision without a choice: a number of machines by the cheapest fill.
#[must_use]
pub fn filled(offer: &Offer, count: u32, reason: Reason) -> Decision {
    Decision {
        held: offer.fill_most(count),
        reason,
    }
}

#[cfg(test)]
pub(crate) mod tests;
