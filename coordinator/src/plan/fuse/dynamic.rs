//! The dynamic programme over runs.

use super::{Fusion, Objective, PASSES, RUNS};
use crate::plan::mix::Mix;
use crate::plan::pipeline::Timing;

const NEVER: u64 = u64::MAX / 4;

/// What every feasible run takes: `runs[first][length - 1]`.
struct Runs(Vec<Vec<Timing>>);

impl Runs {
    fn new(fusion: &Fusion<'_>, order: &[usize]) -> Self {
        let jobs = order.len();
        let longest = (RUNS / jobs.max(1)).clamp(8, jobs.max(8));
        let mut runs = Vec::with_capacity(jobs);
        for first in 0..jobs {
            let mut mixes = vec![Mix::default(); fusion.loads.len()];
            let mut row = Vec::new();
            for job in order[first..].iter().take(longest) {
                for (mix, loads) in mixes.iter_mut().zip(fusion.loads) {
                    mix.push(&loads[*job]);
                }
                // A longer run needs more memory still. A job alone is let in: whether it fits is not ours to say.
                if !row.is_empty() && !fusion.fits(&mixes) {
                    break;
                }
                row.push(fusion.timing(&mixes));
            }
            runs.push(row);
        }
        Self(runs)
    }

    fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

/// Least sum of `charge` over partitions into runs with a warm-up of at most `bound`, where one run pays its drain.
///
/// `best[end][paid]`; the answer is the ends of the runs, and the cost.
fn cheapest(
    runs: &Runs,
    bound: u64,
    charge: impl Fn(&Timing) -> u64,
    drains: bool,
) -> Option<(u64, Vec<usize>)> {
    let jobs = runs.0.len();
    let mut best = vec![[(NEVER, 0usize, false); 2]; jobs + 1];
    best[0][0].0 = 0;
    for first in 0..jobs {
        let [unpaid, paid] = [best[first][0].0, best[first][1].0];
        for (at, timing) in runs.0[first].iter().enumerate() {
            if timing.warm > bound {
                break;
            }
            let (end, cost) = (first + at + 1, charge(timing));
            let mut offer = |state: usize, cost: u64, was: bool| {
                if cost < best[end][state].0 {
                    best[end][state] = (cost, first, was);
                }
            };
            if unpaid < NEVER {
                let cost = unpaid.saturating_add(cost);
                offer(0, cost, false);
                offer(1, cost.saturating_add(timing.drain), false);
            }
            if paid < NEVER {
                offer(1, paid.saturating_add(cost), true);
            }
        }
    }
    let mut state = usize::from(drains);
    let total = best[jobs][state].0;
    if total >= NEVER {
        return None;
    }
    let (mut ends, mut end) = (Vec::new(), jobs);
    while end > 0 {
        let (_, first, was) = best[end][state];
        ends.push(end);
        state = usize::from(was);
        end = first;
    }
    ends.reverse();
    Some((total, ends))
}

/// The best partition of the jobs in this order.
pub(super) fn partition(
    fusion: &Fusion<'_>,
    order: &[usize],
    objective: Objective,
) -> Vec<Vec<usize>> {
    if order.is_empty() {
        return Vec::new();
    }
    let runs = Runs::new(fusion, order);
    let ends = match objective {
        Objective::Average => cheapest(&runs, u64::MAX, |t| fusion.average_of(t), false),
        Objective::Step => bounded(fusion, &runs),
    };
    let ends = ends.map_or_else(|| (1..=order.len()).collect(), |(_, ends)| ends);
    let mut groups = Vec::new();
    let mut first = 0;
    for end in ends {
        groups.push(order[first..end].to_vec());
        first = end;
    }
    groups
}

/// Lowers the bound on the warm-up below that of the answer before, until it cannot help.
///
/// Exact: let the best partition have warm-up w and sum s. While the bound is at least w, the answer's sum is at most s;
/// when its warm-up is at most w too, it is as good, else the next bound is still at least w. Sums grow as the bound
/// falls, and no partition has a smaller warm-up than the largest job alone: that ends it.
fn bounded(fusion: &Fusion<'_>, runs: &Runs) -> Option<(u64, Vec<usize>)> {
    let charge = |timing: &Timing| fusion.micro_batches.saturating_mul(timing.beat);
    let warm = |ends: &[usize]| {
        let firsts = std::iter::once(0).chain(ends.iter().copied());
        let of = |(first, end): (usize, &usize)| runs.0[first][end - first - 1].warm;
        firsts.zip(ends).map(of).max().unwrap_or(0)
    };
    let single = |row: &Vec<Timing>| row.first().map_or(0, |timing| timing.warm);
    let lowest = runs.0.iter().map(single).max().unwrap_or(0);
    let most = (PASSES / runs.count().max(1)).clamp(8, 4096);
    let (mut best, mut bound) = (None::<(u64, Vec<usize>)>, u64::MAX);
    for _ in 0..most {
        let Some((sum, ends)) = cheapest(runs, bound, charge, true) else {
            break;
        };
        let warmest = warm(&ends);
        if best.as_ref().is_none_or(|best| sum + warmest < best.0) {
            best = Some((sum + warmest, ends));
        }
        let beaten = best.as_ref().is_some_and(|best| sum + lowest >= best.0);
        if beaten || warmest <= lowest {
            break;
        }
        bound = warmest - 1;
    }
    best
}
