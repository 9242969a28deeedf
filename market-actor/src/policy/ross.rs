//! A randomised policy: spot only, but for one drawn interval on demand.
//!
//! After ROSS (arXiv 2601.14612; read in its abstract and a review). With K the on-demand price over the spot price: a
//! warm-up takes spot only while (time left) / (work left, flat out) is above `(1 + 2 sqrt K) / (1 + sqrt K)`. Then one
//! interval of `work left / (1 + sqrt K)` is drawn uniformly in the time left; in it the job runs flat out, spot first,
//! outside it on spot only. An adversary who knows the policy but not the seed cannot time the market against it before the interval
//! shows. The draw is keyed by the seed, the market's slot in which the job began and the slot of the job: a replay draws the same,
//! whatever was seen before the job, and another job draws anew. The safety net stands under it.

use serde::{Deserialize, Serialize};
use shared::random::{Domain, Stream};

use super::Memory;
use super::ending::usual;
use super::pace::maximal;
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::episode::filled;

/// A drawn interval, in slots of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// First slot.
    pub from: u32,
    /// Slot after the last.
    pub until: u32,
}

/// What to hold now; the interval is drawn once, into `memory`.
pub fn decide(situation: &Situation<'_>, seed: u64, memory: &mut Memory) -> Decision {
    let problem = situation.problem;
    let spot = maximal(situation, 1.0);
    let fastest = problem.fastest(situation.offer.on_demand_available);
    let rate = problem.throughput.at(fastest);
    if rate <= 0.0 {
        return spot;
    }
    let compute = situation.remaining() / rate;
    let time = f64::from(situation.slots_left());
    let interval = match memory.interval {
        Some(interval) => interval,
        None => {
            let root = ratio(situation).sqrt();
            if time > compute * (1.0 + 2.0 * root) / (1.0 + root) {
                return spot;
            }
            let length = (compute / (1.0 + root)).ceil();
            let room = (time - length).max(0.0) as u64;
            let [.., a, b, c, d] = memory.begun.to_be_bytes();
            let begun = u32::from_be_bytes([a, b, c, d]);
            let place = [situation.slot, 2, begun];
            let start = Stream::new(seed, Domain::Policy, place).below(0, room + 1) as u32;
            let from = situation.slot + start;
            let until = from + length as u32;
            *memory.interval.insert(Interval { from, until })
        }
    };
    if !(interval.from..interval.until).contains(&situation.slot) {
        return spot;
    }
    let reason = Reason::Drawn {
        from: interval.from,
        until: interval.until,
    };
    filled(&situation.offer, fastest, reason)
}

/// On-demand price over the usual price of spot, at least 1.
fn ratio(situation: &Situation<'_>) -> f64 {
    let offer = &situation.offer;
    let (work, unit) = usual(situation);
    let spot = if work > 0.0 {
        let problem = situation.problem;
        let per_machine = problem.throughput.at(problem.most) / f64::from(problem.most);
        unit * per_machine
    } else {
        offer.spot_price
    };
    if spot > 0.0 {
        (offer.on_demand_price / spot).max(1.0)
    } else {
        1.0
    }
}
