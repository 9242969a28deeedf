//! The best that could have been done, knowing all prices and capacities: what policies are measured by.
//!
//! The dynamic programme of [`crate::policy::lattice`] over the real course, once with work left rounded up (a plan that can
//! be carried out: its replay is [`Oracle::found`]) and once rounded down ([`Oracle::bound`], which no plan passes). The
//! optimum lies between the two: the grid's error is not estimated but known for each episode.
//!
//! Reclaims inside slots are left out: the oracle knows what lives through and holds no more. (It could gain a little by
//! machines that live for a part of a slot; its figure is then the optimum of the game without them.)

use crate::policy::lattice::{Lattice, Layer, Rounding, Tariff, best};
use crate::policy::tariff::{tariff, tariffs};
use crate::problem::Problem;
use crate::problem::decision::Reason;
use crate::problem::episode::{Course, Outcome, filled, play};
use crate::utility::value;

/// Most memory of one search, bytes: a machine for work has more, and a job of days on a hundred machines takes less.
pub const MOST_BYTES: u64 = 2 << 30;

/// The optimum of one episode.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// The best plan found, carried out.
    pub found: Outcome,
    /// No plan earns more, millionths of a dollar.
    pub bound: f64,
}

/// Bytes that [`solve`] takes on a grid with cells of `cell` work: who calls it sees to it that they are at most [`MOST_BYTES`].
#[must_use]
pub fn bytes(problem: &Problem, cell: f64) -> u64 {
    let layers = u64::from(problem.hard_deadline).saturating_add(1);
    let actions = u64::from(problem.most.saturating_sub(problem.fewest)).saturating_add(2);
    // A number that is none, or too large for one, is the largest.
    let cells = (problem.work / cell).ceil().max(1.0) as u64;
    let numbers = layers.saturating_mul(actions);
    let numbers = numbers.saturating_mul(cells.saturating_add(1));
    numbers.saturating_mul(size_of::<f64>() as u64)
}

/// Finds the optimum on a grid with cells of `cell` work.
///
/// Takes `hard_deadline * actions * work / cell` steps, twice, and as many numbers of 8 bytes once: [`bytes`] says how much.
#[must_use]
pub fn solve(problem: &Problem, course: &Course<'_>, cell: f64) -> Oracle {
    let offers: Vec<_> = (0..problem.hard_deadline)
        .map(|slot| course.lives_through(slot))
        .collect();
    let layers = |rounding| {
        let lattice = Lattice::with_cell(problem, problem.work, cell, rounding);
        let costs = tariffs(problem, &lattice, None, &offers);
        (backwards(problem, &lattice, &costs), lattice)
    };
    let (upper, lattice) = layers(Rounding::Down);
    let bound = lattice.at(&upper[0], 0, problem.work);
    drop(upper);
    let (layers, lattice) = layers(Rounding::Up);
    let course = Course {
        reclaims: &std::collections::BTreeMap::new(),
        ..course.clone()
    };
    let found = play(problem, &course, |situation| {
        let slot = situation.slot as usize;
        let cost = tariff(problem, &lattice, Some(situation.held), &situation.offer);
        let held = situation.held.count();
        let worths = lattice.worths(&layers[slot + 1], &cost, held, situation.remaining());
        let (action, margin) = best(lattice.actions(), &worths, held);
        let reason = Reason::Planned {
            window: problem.hard_deadline - situation.slot,
            expected: worths[action],
            margin,
        };
        filled(&situation.offer, lattice.actions()[action], reason)
    });
    Oracle { found, bound }
}

fn backwards(problem: &Problem, lattice: &Lattice, costs: &[Tariff]) -> Vec<Layer> {
    let end = problem.hard_deadline;
    let mut layers = vec![lattice.layer(value(problem, end), |_, _| 0.0)];
    for slot in (0..end).rev() {
        let next = &layers[layers.len() - 1];
        layers.push(lattice.before(next, &costs[slot as usize], value(problem, slot)));
    }
    layers.reverse();
    layers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::decision::Decision;
    use crate::problem::episode::tests::market;
    use crate::problem::tests::trial;
    use crate::problem::throughput::Throughput;

    /// Every path of decisions, tried.
    fn brute(problem: &Problem, course: &Course<'_>, path: &mut Vec<u32>) -> i64 {
        if path.len() == problem.hard_deadline as usize {
            let outcome = play(problem, course, |situation| Decision {
                held: situation
                    .offer
                    .fill(path[situation.slot as usize])
                    .unwrap_or_default(),
                reason: Reason::GivesUp,
            });
            return outcome.utility;
        }
        let mut top = i64::MIN;
        for count in problem.actions() {
            path.push(count);
            top = top.max(brute(problem, course, path));
            path.pop();
        }
        top
    }

    #[test]
    fn the_optimum_is_that_of_trying_everything() {
        let mut problem = trial(
            0.5,
            Throughput::Affine {
                alpha: 0.7,
                beta: 0.4,
            },
        );
        problem.most = 4;
        problem.fewest = 2;
        problem.soft_deadline = 4;
        problem.hard_deadline = 6;
        for (work, prices) in [
            (
                6.0,
                [(0.2, 1), (0.9, 4), (0.2, 3), (1.4, 4), (0.3, 4), (0.1, 4)],
            ),
            (
                4.1,
                [(0.5, 0), (0.4, 2), (0.6, 4), (0.1, 0), (0.1, 0), (0.1, 4)],
            ),
            (
                9.0,
                [(0.5, 4), (0.4, 4), (0.6, 4), (0.9, 4), (0.1, 3), (0.1, 4)],
            ),
        ] {
            problem.work = work;
            let market = market(&prices, 1.0);
            let course = Course::plain(&market, 0);
            let exact = brute(&problem, &course, &mut Vec::new());
            let oracle = solve(&problem, &course, 0.001);
            assert!(oracle.found.utility <= exact, "a plan beat the optimum");
            assert!(oracle.bound >= exact as f64 - 1.0, "the bound is none");
            assert!(
                exact - oracle.found.utility <= 1,
                "{exact} {}",
                oracle.found.utility
            );
            assert!(
                oracle.bound - exact as f64 <= 20_000.0,
                "{} {exact}",
                oracle.bound
            );
        }
    }
}
