//! From offers to what the lattice takes: costs by number of machines.

use super::lattice::{Lattice, Tariff};
use crate::problem::Problem;
use crate::problem::offer::{Held, Offer};

/// Costs of one slot after `before` (not known: no exchange is counted).
#[must_use]
pub fn tariff(problem: &Problem, lattice: &Lattice, before: Option<Held>, offer: &Offer) -> Tariff {
    let fills: Vec<Option<Held>> = lattice.actions().iter().map(|&n| offer.fill(n)).collect();
    let same = fills
        .iter()
        .map(|fill| match (before, fill) {
            (Some(before), Some(fill))
                if before.count() == fill.count() && before.spot != fill.spot =>
            {
                problem.reconfigure.replace
            }
            _ => 1.0,
        })
        .collect();
    Tariff {
        cost: fills
            .iter()
            .map(|fill| fill.map_or(f64::INFINITY, |held| offer.cost(held)))
            .collect(),
        same,
    }
}

/// Costs of slots in a row, from `held` machines; by an unchanged number spot is exchanged where the fills differ.
#[must_use]
pub fn tariffs(
    problem: &Problem,
    lattice: &Lattice,
    held: Option<Held>,
    offers: &[Offer],
) -> Vec<Tariff> {
    let mut costs: Vec<Tariff> = Vec::with_capacity(offers.len());
    for (at, offer) in offers.iter().enumerate() {
        let mut cost = tariff(problem, lattice, held.filter(|_| at == 0), offer);
        if at > 0 && problem.reconfigure.replace < 1.0 {
            for (same, &count) in cost.same.iter_mut().zip(lattice.actions()) {
                let (before, after) = (offers[at - 1].fill(count), offer.fill(count));
                if let (Some(before), Some(after)) = (before, after)
                    && before.spot != after.spot
                {
                    *same = problem.reconfigure.replace;
                }
            }
        }
        costs.push(cost);
    }
    costs
}
