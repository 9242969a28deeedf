//! Policies against the optimum over many starts of one market.
//!
//! Everything here is a function of a [`Case`] and an index, so a shell may spread episodes over threads as it likes and put
//! the results back in order: they are the same for any number.

pub mod cell;
pub mod earning;
pub mod learn;
pub mod run;
pub mod sites;
pub mod table;

use serde::{Deserialize, Serialize};

use crate::market::Market;
use crate::policy::Safety;
use crate::problem::Problem;
use crate::select::pool::Library;

/// One job, started at many times of one market.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is called in tables.
    pub name: String,
    /// The market.
    pub market: Market,
    /// What forecasters thought at its slots.
    pub library: Library,
    /// The job.
    pub problem: Problem,
    /// Index of the first slot of each episode.
    pub starts: Vec<usize>,
    /// Starts on record before the first episode, on which members are rehearsed before any job comes: a market has a past.
    pub rehearsals: Vec<usize>,
    /// Work of a cell of the oracle's grid.
    pub cell: f64,
    /// The net under all policies.
    pub safety: Safety,
}

/// One policy in one episode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Utility, millionths of a dollar.
    pub utility: i64,
    /// Paid, millionths of a dollar.
    pub spent: u64,
    /// Of that, brought no work.
    pub waste: u64,
    /// Whether the soft deadline was missed.
    pub missed: bool,
    /// Slots in which the machines changed.
    pub reconfigurations: u32,
}

/// The best of one episode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimum {
    /// The oracle's plan, carried out.
    pub found: Score,
    /// No plan earns more.
    pub bound: f64,
}

/// One policy over all episodes of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Policy.
    pub name: String,
    /// Mean utility over the mean utility of the oracle's plan.
    pub share: f64,
    /// Mean paid, dollars.
    pub cost: f64,
    /// Share of what was paid that brought no work.
    pub waste: f64,
    /// Episodes that missed the soft deadline.
    pub missed: usize,
    /// Mean slots in which the machines changed.
    pub reconfigurations: f64,
    /// 5th percentile of utility minus that of the oracle's plan, dollars.
    pub tail: f64,
}

/// The `share` quantile of numbers by nearest rank; 0 of none.
#[must_use]
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    values
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

impl Summary {
    /// Sums up; `scores` and `best` are of the same episodes in the same order.
    #[must_use]
    pub fn of(name: &str, scores: &[Score], best: &[Optimum]) -> Self {
        let count = scores.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Score) -> f64| scores.iter().map(of).sum::<f64>() / count;
        let top: f64 = best.iter().map(|best| best.found.utility as f64).sum();
        let earned: f64 = scores.iter().map(|score| score.utility as f64).sum();
        let paid = mean(&|score| score.spent as f64);
        let behind = scores
            .iter()
            .zip(best)
            .map(|(score, best)| (score.utility - best.found.utility) as f64 / 1e6)
            .collect();
        Self {
            name: name.to_owned(),
            share: if top > 0.0 { earned / top } else { 0.0 },
            cost: paid / 1e6,
            waste: if paid > 0.0 {
                mean(&|score| score.waste as f64) / paid
            } else {
                0.0
            },
            missed: scores.iter().filter(|score| score.missed).count(),
            reconfigurations: mean(&|score| f64::from(score.reconfigurations)),
            tail: quantile(behind, 0.05),
        }
    }
}

#[cfg(test)]
mod tests;
