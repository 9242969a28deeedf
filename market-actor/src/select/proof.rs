//! A forecaster is used only where it beats persistence by utility: errors are no money.
//!
//! A policy was replayed on past episodes of one market, once with each forecaster. A forecaster beats the first one when it
//! earned more on average and by more than chance: the statistic of Diebold and Mariano on the differences of utility, with
//! the variance of Newey and West because episodes overlap ([`crate::forecast::choice`]). Of those that beat the first the
//! one that earned most is used, otherwise the first.

use serde::{Deserialize, Serialize};

use crate::forecast::choice::statistic;

/// Fewest episodes that prove anything.
pub const FEWEST: usize = 12;

/// How a forecaster compares with the first by what was earned with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Earned {
    /// Mean over the episodes, less that of the first.
    pub more: f64,
    /// Diebold and Mariano's.
    pub statistic: f64,
    /// Whether it earned more, by more than was asked for.
    pub beats: bool,
}

/// Which forecaster is used, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its place; 0 is the first.
    pub chosen: usize,
    /// One for each but the first; none with fewer than [`FEWEST`] episodes.
    pub comparisons: Vec<Earned>,
}

/// Chooses by the utilities of past episodes, by forecaster, the first being the one to beat; all of the same episodes in
/// their order. `lags` is the number of further episodes that one overlaps with, `needed` what the statistic must exceed:
/// [`NEEDED`](crate::forecast::choice::NEEDED) for 5 % on one side.
#[must_use]
pub fn by_utility(utilities: &[Vec<f64>], lags: usize, needed: f64) -> Verdict {
    let mut verdict = Verdict {
        chosen: 0,
        comparisons: Vec::new(),
    };
    let Some((first, others)) = utilities.split_first() else {
        return verdict;
    };
    if first.len() < FEWEST {
        return verdict;
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
    let mut top = 0.0;
    for (at, other) in others.iter().enumerate() {
        let more = mean(other) - mean(first);
        let statistic = statistic(other, first, lags);
        let beats = more > 0.0 && statistic > needed;
        if beats && more > top {
            (verdict.chosen, top) = (at + 1, more);
        }
        verdict.comparisons.push(Earned {
            more,
            statistic,
            beats,
        });
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::choice::NEEDED;

    fn series(of: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..24).map(of).collect()
    }

    #[test]
    fn what_earns_more_by_more_than_chance_is_used() {
        let base = series(|at| (at % 5) as f64);
        let luck = series(|at| (at % 5) as f64 + if at == 7 { 6.0 } else { 0.0 });
        let good = series(|at| (at % 5) as f64 + 0.2 + 0.1 * (at % 2) as f64);
        let worse = series(|at| (at % 5) as f64 - 1.0);
        let all = [base, luck, good, worse];
        let verdict = by_utility(&all, 2, NEEDED);
        assert_eq!(verdict.chosen, 2);
        let beats: Vec<bool> = verdict.comparisons.iter().map(|c| c.beats).collect();
        assert_eq!(beats, [false, true, false]);
        assert!(verdict.comparisons[0].more > 0.2);
        // Without a need for evidence luck would do, were it ahead.
        assert_eq!(by_utility(&all[..2], 2, NEEDED).chosen, 0);
        assert_eq!(by_utility(&all[..2], 2, 0.0).chosen, 1);
    }

    #[test]
    fn a_few_episodes_prove_nothing() {
        let all = [vec![0.0; FEWEST - 1], vec![1.0; FEWEST - 1]];
        let verdict = by_utility(&all, 0, NEEDED);
        assert_eq!((verdict.chosen, verdict.comparisons.len()), (0, 0));
        let all = [vec![0.0; FEWEST], vec![1.0; FEWEST]];
        assert_eq!(by_utility(&all, 0, NEEDED).chosen, 1);
        assert_eq!(by_utility(&[], 0, NEEDED).chosen, 0);
    }
}
