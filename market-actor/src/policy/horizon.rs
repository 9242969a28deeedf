//! Committed-horizon control: plan the next slots exactly, carry out the first, plan again.
//!
//! Each slot, the best path over a window of `window` slots (this one is observed, the rest is foresight) is found by the
//! dynamic programme of [`super::lattice`]; what follows the window is an [`Ending`], or the deadline itself. With a
//! commitment of v the last v plans each say a number for this slot, and their mean is rounded and carried out (Chen et al.,
//! SIGMETRICS'16; v = 1 is receding-horizon control, v = window averages fixed-horizon control). The window's objective and
//! the endings are ours: those of Kong et al. could not be read.

use serde::{Deserialize, Serialize};

use super::Memory;
use super::ending::{Ending, ending};
use super::expectation::Expectation;
use super::foresight::Foresight;
use super::lattice::{Lattice, Layer, Rounding, best};
use super::tariff::{tariff, tariffs};
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::episode::filled;
use crate::problem::offer::Offer;

/// Settings of the planner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Horizon {
    /// Slots of a plan, this one included.
    pub window: u32,
    /// Plans whose mean is carried out.
    pub commitment: u32,
    /// What follows a window that ends before the deadline.
    pub ending: Ending,
    /// 0 plans with the mean of the forecast capacity, 1 with its low quantile.
    pub caution: f64,
    /// Whether the capacity of a slot ahead may come out at its low quantile, its mean or its high one, with chances of
    /// .3, .4 and .3 (Swanson's rule), slots apart from each other; otherwise at one number for sure.
    #[serde(default)]
    pub spread: bool,
    /// Cells of the grid over the whole work.
    pub cells: u32,
}

/// A plan that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Slot of the job it was made in.
    pub made: u32,
    /// Machines by slot from then on.
    pub counts: Vec<u32>,
}

impl Horizon {
    /// Receding horizon over `window` slots with the ending that did best in the trial.
    #[must_use]
    pub const fn track(window: u32) -> Self {
        Self {
            window,
            commitment: 1,
            ending: Ending::Track { rho: 0.6 },
            caution: 0.0,
            spread: false,
            cells: 288,
        }
    }

    /// Receding horizon over `window` slots with the cost to go.
    #[must_use]
    pub const fn cost_to_go(window: u32) -> Self {
        Self {
            ending: Ending::CostToGo,
            ..Self::track(window)
        }
    }

    /// Receding horizon over `window` slots, with what the chain expects after it.
    #[must_use]
    pub fn chain(window: u32) -> Self {
        Self {
            ending: Ending::Chain(Expectation::default()),
            cells: 144,
            ..Self::track(window)
        }
    }

    /// What to hold now. The plan is kept in `memory`.
    pub fn decide(
        &self,
        situation: &Situation<'_>,
        foresight: &dyn Foresight,
        memory: &mut Memory,
    ) -> Decision {
        let (plan, expected, margin) = self.plan(situation, foresight);
        let window = plan.counts.len() as u32;
        let first = plan.counts.first().copied().unwrap_or(0);
        let span = self.commitment.max(1);
        memory
            .plans
            .retain(|plan| plan.made + span > situation.slot && plan.made < situation.slot);
        memory.plans.push(plan);
        if span == 1 {
            let reason = Reason::Planned {
                window,
                expected,
                margin,
            };
            return filled(&situation.offer, first, reason);
        }
        let said: Vec<u32> = memory
            .plans
            .iter()
            .filter_map(|plan| plan.counts.get((situation.slot - plan.made) as usize))
            .copied()
            .collect();
        let mean = said.iter().map(|&n| f64::from(n)).sum::<f64>() / said.len().max(1) as f64;
        let problem = situation.problem;
        // Below the least number the nearer of it and nothing counts.
        let mut count = problem.allowed(mean.round() as u32);
        if count == 0 && mean >= f64::from(problem.fewest) / 2.0 {
            count = problem.fewest;
        }
        let reason = Reason::Averaged {
            plans: said.len() as u32,
            mean,
        };
        filled(&situation.offer, count, reason)
    }

    /// The best path from here, its expected utility from here on, and how much better its first step is than any
    /// other.
    #[must_use]
    pub fn plan(&self, situation: &Situation<'_>, foresight: &dyn Foresight) -> (Plan, f64, f64) {
        let (lattice, layers, offers) = self.layers(situation, foresight);
        let problem = situation.problem;
        let costs = tariffs(problem, &lattice, Some(situation.held), &offers);
        let (mut held, mut left) = (situation.held.count(), situation.remaining());
        let mut counts = Vec::with_capacity(offers.len());
        let mut first = (0.0, 0.0);
        for (at, cost) in costs.iter().enumerate() {
            if problem.done(problem.work - left) {
                break;
            }
            let worths = lattice.worths(&layers[at + 1], cost, held, left);
            let (action, margin) = best(lattice.actions(), &worths, held);
            if at == 0 {
                first = (worths[action], margin);
            }
            left = lattice.left(cost, held, action, left);
            held = lattice.actions()[action];
            counts.push(held);
        }
        let plan = Plan {
            made: situation.slot,
            counts,
        };
        (plan, first.0, first.1)
    }

    /// What this slot is worth with at most 0, 1, .. `most` spot machines, millionths of a dollar: what a job would pay
    /// for its share of a pool. Never falls.
    #[must_use]
    pub fn worth_of_spot(
        &self,
        situation: &Situation<'_>,
        foresight: &dyn Foresight,
        most: u32,
    ) -> Vec<f64> {
        let (lattice, layers, _) = self.layers(situation, foresight);
        let mut top = f64::NEG_INFINITY;
        (0..=most)
            .map(|spot| {
                let offer = Offer {
                    spot_available: spot,
                    ..situation.offer
                };
                let cost = tariff(situation.problem, &lattice, Some(situation.held), &offer);
                let held = situation.held.count();
                let worths = lattice.worths(&layers[1], &cost, held, situation.remaining());
                top = worths.iter().copied().fold(top, f64::max);
                top
            })
            .collect()
    }

    /// The lattice, its layers from this slot to the window's end, and the offers they were made of. The first layer is
    /// not computed: this slot is decided exactly, from what is really left.
    fn layers(
        &self,
        situation: &Situation<'_>,
        foresight: &dyn Foresight,
    ) -> (Lattice, Vec<Layer>, Vec<Offer>) {
        let problem = situation.problem;
        let cell = problem.work / f64::from(self.cells.max(1));
        let lattice = Lattice::with_cell(problem, situation.remaining(), cell, Rounding::Between);
        let ahead = self.window.min(situation.slots_left()).saturating_sub(1);
        let mut offers = vec![situation.offer];
        let views = foresight.look(situation, ahead);
        offers.extend(views.iter().map(|view| view.offer(self.caution)));
        let end = situation.slot + offers.len() as u32;
        let last = offers[offers.len() - 1];
        let (layer, done) = ending(situation, &lattice, end, &last, self.ending);
        let costs = tariffs(problem, &lattice, Some(situation.held), &offers);
        let mut layers = vec![layer];
        for (cost, view) in costs[1..].iter().zip(&views).rev() {
            let next = &layers[layers.len() - 1];
            let mut layer = lattice.before(next, cost, done);
            if self.spread {
                let sure = std::mem::replace(&mut layer, next.zeros());
                layer.add(0.4, &sure);
                for caution in [1.0, -1.0] {
                    let cost = tariff(problem, &lattice, None, &view.offer(caution));
                    layer.add(0.3, &lattice.before(next, &cost, done));
                }
            }
            layers.push(layer);
        }
        layers.push(layers[layers.len() - 1].clone());
        layers.reverse();
        (lattice, layers, offers)
    }
}
