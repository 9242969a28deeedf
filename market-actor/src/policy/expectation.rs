//! The best in expectation over a chain of market states, up to the deadline.
//!
//! Where a forecast is one path, this plans against all of them: `W_t(s, m, i)` adds the state s of [`super::chain`] to the
//! lattice, and what follows a slot is the mean over the next states. It knows that spot which is away may come back, so
//! it waits as long as waiting is worth it, and no longer:
//!
//! ```text
//! W_t(s, m, i) = max over n of  -cost_s(n) + sum over s' of P(s -> s') W_{t+1}(s', n, i - share(m, n) H(n))
//! ```
//!
//! At the deadline stands the on-demand finish ([`Finish`]). The present slot is taken as it is.

use serde::{Deserialize, Serialize};

use super::chain::{Chain, Classes};
use super::lattice::{Lattice, Layer, Rounding, Tariff, best};
use super::tariff::tariff;
use crate::problem::decision::{Decision, Reason, Situation};
use crate::problem::episode::filled;
use crate::problem::offer::Offer;
use crate::utility::{Finish, value};

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// Slots of the past that the chain is fitted on.
    pub memory: u32,
    /// Most classes of capacity.
    pub capacities: u32,
    /// Most classes of price.
    pub prices: u32,
    /// Cells of the grid over the whole work.
    pub cells: u32,
}

impl Default for Expectation {
    fn default() -> Self {
        Self {
            memory: 1440,
            capacities: 4,
            prices: 3,
            cells: 96,
        }
    }
}

impl Expectation {
    /// What to hold now.
    #[must_use]
    pub fn decide(&self, situation: &Situation<'_>) -> Decision {
        let (lattice, next) = self.next(situation);
        let held = situation.held.count();
        let cost = tariff(
            situation.problem,
            &lattice,
            Some(situation.held),
            &situation.offer,
        );
        let worths = lattice.worths(&next, &cost, held, situation.remaining());
        let (action, margin) = best(lattice.actions(), &worths, held);
        let reason = Reason::Planned {
            window: situation.slots_left(),
            expected: worths[action],
            margin,
        };
        filled(&situation.offer, lattice.actions()[action], reason)
    }

    /// The lattice, and what is expected after this slot.
    #[must_use]
    pub fn next(&self, situation: &Situation<'_>) -> (Lattice, Layer) {
        let problem = situation.problem;
        let cell = problem.work / f64::from(self.cells.max(1));
        let lattice = Lattice::with_cell(problem, situation.remaining(), cell, Rounding::Between);
        let next = self.follow(situation, &lattice, situation.slot + 1, &situation.offer);
        (lattice, next)
    }

    /// What is expected from slot `from` of the job on, by machines before and work left, when the slot before offered
    /// `last`.
    #[must_use]
    pub fn follow(
        &self,
        situation: &Situation<'_>,
        lattice: &Lattice,
        from: u32,
        last: &Offer,
    ) -> Layer {
        let problem = situation.problem;
        let (capacities, prices) = (self.capacities as usize, self.prices as usize);
        let chain = Chain::fit(situation, self.memory, capacities, prices);
        let end = problem.soft_deadline;
        let done = value(problem, end);
        let finish = Finish::new(problem, last.on_demand_price, last.on_demand_available);
        let finish = lattice.layer(done, |held, left| finish.worth(end, left, held));
        let prices = chain.price.means.len();
        let states = chain.capacity.means.len() * prices;
        let costs: Vec<Tariff> = (0..states)
            .map(|state| {
                let offer = chain.offer(state / prices, state % prices, last);
                tariff(problem, lattice, None, &offer)
            })
            .collect();
        let mut layers = vec![finish; states];
        for _ in from..end {
            let means = expect(&chain, &layers);
            layers = means
                .iter()
                .zip(&costs)
                .map(|(mean, cost)| lattice.before(mean, cost, done))
                .collect();
        }
        let count = f64::from(last.spot_available.min(problem.most));
        let (capacity, price) = (chain.capacity.of(count), chain.price.of(last.spot_price));
        let column: Vec<Layer> = layers
            .chunks(prices)
            .map(|row| mean(&chain.price, price, row.iter()))
            .collect();
        mean(&chain.capacity, capacity, column.iter())
    }
}

/// For each state the mean layer of the states that follow it.
fn expect(chain: &Chain, layers: &[Layer]) -> Vec<Layer> {
    let prices = chain.price.means.len();
    let mut by_price: Vec<Layer> = Vec::with_capacity(layers.len());
    for row in layers.chunks(prices) {
        by_price.extend((0..prices).map(|from| mean(&chain.price, from, row.iter())));
    }
    (0..layers.len())
        .map(|state| {
            let (from, price) = (state / prices, state % prices);
            let column = by_price.iter().skip(price).step_by(prices);
            mean(&chain.capacity, from, column)
        })
        .collect()
}

fn mean<'a>(classes: &Classes, from: usize, layers: impl Iterator<Item = &'a Layer>) -> Layer {
    let mut sum: Option<Layer> = None;
    for (chance, layer) in classes.next[from].iter().zip(layers) {
        sum.get_or_insert_with(|| layer.zeros()).add(*chance, layer);
    }
    sum.expect("a chain has a state")
}
