//! Selection over the episodes of a case, in their order: choose, play, replay all, learn.
//!
//! Before the first job, members are rehearsed on the market's recorded past: the same job, started at times that are over.
//! An episode teaches only once it is over: the choice at a start knows the episodes that ended before it, not those that
//! overlap with it.

use serde::{Deserialize, Serialize};

use super::{Case, Score};
use crate::problem::episode::Course;
use crate::select::pool::Member;
use crate::select::{Regime, Selection, SelectionError, Supply};

/// How a selection learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manner {
    /// What a round is worth after one more; 1 forgets nothing.
    pub keep: f64,
    /// Whether weights are kept by the supply of the last week.
    pub by_supply: bool,
    /// Seed of the draws.
    pub seed: u64,
}

/// How a selection did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// What its chances earn on average in each episode, millionths of a dollar.
    pub expected: Vec<f64>,
    /// The member that was drawn in each.
    pub drawn: Vec<usize>,
    /// The member that earns most over the second half, if it is played throughout.
    pub best: usize,
    /// Expected earnings over the second half as a share of that member's; 0 where it earns nothing.
    pub second_half: f64,
    /// Expected earnings over all as a share of those of the member that earns most over all.
    pub whole: f64,
}

/// Follows a selection; `scores` is by member, then by episode, `rehearsed` by member, then by rehearsal.
///
/// # Errors
/// When there is no member, or what is kept is no share.
pub fn follow(
    case: &Case,
    members: &[Member],
    scores: &[Vec<Score>],
    rehearsed: &[Vec<Score>],
    manner: Manner,
) -> Result<Learned, SelectionError> {
    let mut selection = Selection::new(members.to_vec(), manner.keep, manner.seed)?;
    let utility = |member: usize, episode: usize| scores[member][episode].utility as f64;
    let length = case.problem.hard_deadline as usize;
    let mut expected: Vec<f64> = Vec::new();
    let mut drawn = Vec::new();
    let mut taught = 0;
    let first = case.starts.first().copied().unwrap_or(0);
    for (at, &start) in case.rehearsals.iter().enumerate() {
        if start + length <= first {
            let utilities = rehearsed.iter().map(|scores| scores[at].utility as f64);
            teach(
                &mut selection,
                case,
                &regime(case, start, manner),
                start,
                &utilities.collect::<Vec<f64>>(),
            );
        }
    }
    for (episode, &start) in case.starts.iter().enumerate() {
        while taught < episode && case.starts[taught] + length <= start {
            let utilities: Vec<f64> = (0..members.len()).map(|m| utility(m, taught)).collect();
            let at = regime(case, case.starts[taught], manner);
            teach(&mut selection, case, &at, case.starts[taught], &utilities);
            taught += 1;
        }
        let regime = regime(case, start, manner);
        let chances = selection.chances(&regime);
        let mean = chances
            .iter()
            .enumerate()
            .map(|(m, c)| c * utility(m, episode));
        expected.push(mean.sum());
        drawn.push(selection.choose(&regime, episode as u64));
    }
    let (all, half) = (0..expected.len(), expected.len() / 2..expected.len());
    let of = |member: usize, range: &std::ops::Range<usize>| {
        range
            .clone()
            .map(|episode| utility(member, episode))
            .sum::<f64>()
    };
    let top = |range: &std::ops::Range<usize>| {
        (0..members.len())
            .map(|member| (of(member, range), member))
            .fold((f64::NEG_INFINITY, 0), |a, b| if b.0 > a.0 { b } else { a })
    };
    let (second, best) = top(&half);
    let earned: f64 = expected[half.clone()].iter().sum();
    let whole = share(expected.iter().sum(), top(&all).0);
    Ok(Learned {
        expected,
        drawn,
        best,
        second_half: share(earned, second),
        whole,
    })
}

/// A part of what the best one earned; 0 where that is nothing.
fn share(earned: f64, best: f64) -> f64 {
    if best > 0.0 { earned / best } else { 0.0 }
}

/// One episode is over: every member was replayed on it. The range reaches from on-demand at its dearest to the full
/// value, so it does not depend on what was earned.
fn teach(selection: &mut Selection, case: &Case, regime: &Regime, start: usize, utilities: &[f64]) {
    let value = case.problem.value.0 as f64;
    let price = Course::plain(&case.market, start).offer(0).on_demand_price;
    let slots = case.problem.slots_flat_out(case.problem.work, 0, None);
    let machines = f64::from(case.problem.fastest(None));
    let dearest = slots.map_or(value, |slots| f64::from(slots) * machines * price);
    selection.learn(regime, utilities, value - dearest, value);
}

/// The regime at a start: if asked for, by the supply of a week before it.
fn regime(case: &Case, start: usize, manner: Manner) -> Regime {
    let week = (7 * 24 * 3_600_000_000 / case.market.slot.0.max(1)) as usize;
    let past = &case.market.slots[start.saturating_sub(week)..start.min(case.market.slots.len())];
    Regime {
        pool: case.market.pool.clone(),
        supply: manner.by_supply.then(|| Supply::of(past)),
    }
}
