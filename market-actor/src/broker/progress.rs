//! Work that jobs did, in tokens of steps that count.
//!
//! ```text
//! done = sum over jobs of steps * tokens of a step
//! ```
//!
//! - PR-1: a job that the coordinator does not show any more has done what it had: the sum does not fall with it, nor over a restart.
//! - PR-2: a job that goes on from an older state has done that many steps fewer. Its step and its tokens fall together; in a snapshot
//!   of an older coordinator the tokens came with its next step: so a step's size is taken only from tokens that are new.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::ids::JobId;

use super::told::JobTold;

/// Jobs that are not shown any more and still known one by one; more are known by their sum. One of them may be shown again.
const MOST_GONE: usize = 512;

/// What a job showed last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    step: u64,
    tokens: u64,
    /// Tokens of a step; 0 before the first.
    each: f64,
}

impl Known {
    fn done(&self) -> f64 {
        self.each * self.step as f64
    }
}

/// All that was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    jobs: BTreeMap<JobId, Known>,
    /// Of jobs that are known by their sum.
    gone: f64,
}

impl Progress {
    /// Takes in what jobs show.
    pub(super) fn see(&mut self, jobs: &[JobTold]) {
        for job in jobs {
            let known = self.jobs.entry(job.id).or_default();
            if job.step > 0 && (job.tokens != known.tokens || known.each == 0.0) {
                known.each = job.tokens as f64 / job.step as f64;
            }
            (known.step, known.tokens) = (job.step, job.tokens);
        }
        let shown: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
        let hidden = self.jobs.keys().filter(|id| !shown.contains(*id)).copied();
        let hidden: Vec<JobId> = hidden.collect();
        for id in hidden.iter().take(hidden.len().saturating_sub(MOST_GONE)) {
            self.gone += self.jobs.remove(id).map_or(0.0, |known| known.done());
        }
    }

    /// Tokens of all jobs.
    pub(super) fn done(&self) -> f64 {
        self.gone + self.jobs.values().map(Known::done).sum::<f64>()
    }

    /// Tokens of a step of a job; of one without a step those of the others, or one.
    pub(super) fn each(&self, job: JobId) -> f64 {
        match self.jobs.get(&job) {
            Some(known) if known.each > 0.0 => known.each,
            _ => self.usual(),
        }
    }

    /// Jobs that are known one by one.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    fn usual(&self) -> f64 {
        let steps: f64 = self.jobs.values().map(|known| known.step as f64).sum();
        let tokens: f64 = self.jobs.values().map(Known::done).sum();
        if steps > 0.0 && tokens > 0.0 {
            tokens / steps
        } else {
            1.0
        }
    }
}
