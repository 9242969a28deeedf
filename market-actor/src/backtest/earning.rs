//! One policy with several forecasters over the episodes of a case: at each start the one is used that the episodes which
//! are over by then speak for ([`by_utility`]), the first where none is proven.

use serde::{Deserialize, Serialize};

use super::{Case, Score};
use crate::select::proof::by_utility;

/// How a policy did whose forecaster is chosen by utility.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// What was earned in each episode, millionths of a dollar.
    pub earned: Vec<f64>,
    /// The forecaster that was used in each.
    pub used: Vec<usize>,
}

/// Follows the choice; `scores` is by forecaster, then by episode, `rehearsed` by forecaster, then by rehearsal.
#[must_use]
pub fn judged(case: &Case, scores: &[&[Score]], rehearsed: &[&[Score]], needed: f64) -> Judged {
    let length = case.problem.hard_deadline as usize;
    let lags = |starts: &[usize]| {
        let step = starts.windows(2).map(|two| two[1] - two[0]).min();
        step.map_or(0, |step| length.div_ceil(step.max(1)).saturating_sub(1))
    };
    let lags = lags(&case.starts).max(lags(&case.rehearsals));
    let mut done = Judged {
        earned: Vec::new(),
        used: Vec::new(),
    };
    for (episode, &start) in case.starts.iter().enumerate() {
        let over = |starts: &[usize]| starts.partition_point(|from| from + length <= start);
        let (past, before) = (over(&case.rehearsals), over(&case.starts));
        let known: Vec<Vec<f64>> = scores
            .iter()
            .zip(rehearsed)
            .map(|(scores, rehearsed)| {
                let all = rehearsed[..past].iter().chain(&scores[..before]);
                all.map(|score| score.utility as f64).collect()
            })
            .collect();
        let used = by_utility(&known, lags, needed).chosen;
        done.used.push(used);
        done.earned.push(scores[used][episode].utility as f64);
    }
    done
}
