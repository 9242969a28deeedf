//! What follows the last slot of a plan: the deadline, or a guess at what is still to be paid.

use serde::{Deserialize, Serialize};

use super::expectation::Expectation;
use super::lattice::{Lattice, Layer};
use crate::problem::Problem;
use crate::problem::decision::Situation;
use crate::problem::offer::Offer;
use crate::utility::{Finish, value};

/// What work that is left at the end of a window is taken to cost, when the deadline lies beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Work ahead of an even pace earns `rho` of its on-demand price, work behind costs the whole.
    Track {
        /// Share of the on-demand price.
        rho: f64,
    },
    /// Cost to go: as much as the mean spot capacity of the past gives, at the mean spot price, the rest on demand.
    CostToGo,
    /// What [`Expectation`] expects from there, given what the window's last slot offers.
    Chain(Expectation),
}

/// The layer after the last slot of a plan that ends before slot `end` of the job, and what being done is worth in it
/// and in all layers before the deadline.
#[must_use]
pub fn ending(
    situation: &Situation<'_>,
    lattice: &Lattice,
    end: u32,
    last: &Offer,
    ending: Ending,
) -> (Layer, f64) {
    let problem = situation.problem;
    let full = value(problem, end);
    if end >= problem.soft_deadline {
        let finish = Finish::new(problem, last.on_demand_price, last.on_demand_available);
        let layer = lattice.layer(full, |held, left| finish.worth(end, left, held));
        return (layer, full);
    }
    // Slots are paid whole: what is left, however little, costs at least one slot of the fewest machines.
    let least = f64::from(problem.fewest) * last.spot_price.min(last.on_demand_price);
    match ending {
        Ending::Track { rho } => {
            let line = problem.work - problem.even_pace(f64::from(end));
            let price = of_work(problem, last.on_demand_price);
            let ahead = full + rho * price * line;
            let layer = lattice.layer(ahead, |_, left| {
                let worth = if left <= line {
                    full + rho * price * (line - left)
                } else {
                    full - price * (left - line)
                };
                worth.min(ahead - least)
            });
            (layer, ahead)
        }
        Ending::Chain(expectation) => {
            let layer = expectation.follow(situation, lattice, end, last);
            (layer, full)
        }
        Ending::CostToGo => {
            let (work, price) = usual(situation);
            let cheap = work * f64::from(problem.soft_deadline - end);
            let dear = of_work(problem, last.on_demand_price);
            let layer = lattice.layer(full, |_, left| {
                let cost = left.min(cheap) * price.min(dear) + (left - cheap).max(0.0) * dear;
                full - cost.max(least)
            });
            (layer, full)
        }
    }
}

/// What a unit of work costs flat out, at a price of a machine for a slot.
fn of_work(problem: &Problem, price: f64) -> f64 {
    let machines = problem.fastest(None);
    match machines {
        0 => price,
        _ => price * f64::from(machines) / problem.throughput.at(machines),
    }
}

/// Work that spot below the on-demand price would have brought in a slot of the past on average, and what one unit of it
/// would have cost, millionths of a dollar.
#[must_use]
pub fn usual(situation: &Situation<'_>) -> (f64, f64) {
    let problem = situation.problem;
    let (mut work, mut money) = (0.0, 0.0);
    for slot in situation.past {
        let offer = Offer::of(slot, situation.length);
        let count = problem.allowed(offer.cheap_spot());
        work += problem.throughput.at(count);
        money += f64::from(count) * offer.spot_price;
    }
    if work == 0.0 {
        return (0.0, of_work(problem, situation.offer.on_demand_price));
    }
    (work / situation.past.len() as f64, money / work)
}
