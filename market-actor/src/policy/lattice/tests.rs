//! The fast recursion against the slow one.

use super::*;
use crate::problem::tests::trial;
use crate::problem::throughput::Throughput;

/// The recursion of the head, written down.
fn slow(
    lattice: &Lattice,
    problem: &Problem,
    next: &Layer,
    tariff: &Tariff,
    done: f64,
) -> Vec<f64> {
    let mut values = Vec::new();
    for &before in lattice.actions() {
        values.push(done);
        for cell in 1..=lattice.cells {
            let work = cell as f64 * lattice.cell;
            let best = lattice
                .actions()
                .iter()
                .enumerate()
                .filter(|(action, _)| tariff.cost[*action].is_finite())
                .map(|(action, &n)| {
                    let same = if n == before {
                        tariff.same[action]
                    } else {
                        1.0
                    };
                    let left = work - same * problem.gain(before, n);
                    lattice.at(next, action, left) - tariff.cost[action]
                })
                .fold(f64::NEG_INFINITY, f64::max);
            values.push(best);
        }
    }
    values
}

#[test]
fn running_maxima_are_the_recursion() {
    let mut problem = trial(
        0.2,
        Throughput::Affine {
            alpha: 0.72,
            beta: 2.0,
        },
    );
    problem.fewest = 3;
    for rounding in [Rounding::Up, Rounding::Down, Rounding::Between] {
        let lattice = Lattice::new(&problem, 50.0, 77, rounding);
        let next = lattice.layer(1000.0, |m, left| f64::from(m).sin() * 9.0 - left * left);
        let mut cost: Vec<f64> = lattice
            .actions()
            .iter()
            .map(|&n| f64::from(n) * 1.3)
            .collect();
        cost[4] = f64::INFINITY;
        let mut same = vec![1.0; cost.len()];
        same[2] = 0.7;
        let tariff = Tariff { cost, same };
        let fast = lattice.before(&next, &tariff, 900.0);
        let slow = slow(&lattice, &problem, &next, &tariff, 900.0);
        for (a, b) in fast.values.iter().zip(&slow) {
            assert!((a - b).abs() < 1e-6, "{rounding:?}: {a} against {b}");
        }
    }
}

#[test]
fn almost_done_is_not_done() {
    let problem = trial(0.2, Throughput::per_machine(1.0));
    let lattice = Lattice::with_cell(&problem, 10.0, 1.0, Rounding::Between);
    let layer = lattice.layer(100.0, |_, left| -left);
    assert_eq!(lattice.at(&layer, 0, 0.0), 100.0);
    assert_eq!(lattice.at(&layer, 0, 0.2), -1.0);
    assert_eq!(lattice.at(&layer, 0, 1.5), -1.5);
    assert_eq!(lattice.at(&layer, 0, 99.0), -10.0);
}

#[test]
fn of_equals_the_nearest_counts() {
    let actions = [0, 1, 2, 3];
    assert_eq!(best(&actions, &[5.0, 7.0, 7.0, 7.0], 3), (3, 0.0));
    assert_eq!(
        best(&actions, &[5.0, 7.0, 1.0, f64::NEG_INFINITY], 3),
        (1, 2.0)
    );
    assert_eq!(best(&actions, &[f64::NEG_INFINITY; 4], 0), (0, 0.0));
}

#[test]
fn nothing_is_not_held_by_a_tie() {
    let actions = [0, 2, 3];
    // One of two machines left: what runs is as near as nothing.
    assert_eq!(best(&actions, &[7.0, 7.0, 7.0], 1), (1, 0.0));
    assert_eq!(best(&actions, &[7.0, 7.0, 7.0], 0), (1, 0.0));
    assert_eq!(best(&actions, &[7.0, 6.0, 7.0], 0), (2, 0.0));
    // Where it is better, it is held.
    assert_eq!(best(&actions, &[7.1, 7.0, 7.0], 3).0, 0);
}
