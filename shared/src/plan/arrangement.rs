//! How the jobs of one replica train together: which share a pass, which alternate, in which order passes go.
//!
//! The coordinator computes it, the first stage carries it out from its next round on. It changes no result, so it may be
//! out of date: jobs that it names and that are not there are passed over, and those that it does not name are packed
//! behind as if there were none.
//!
//! A *unit* is one part of one hybrid task. Buckets go one after another; within a bucket go the first parts of its hybrid
//! tasks, then the second ones, and so on. That is the order in which their passes enter the pipeline.
//!
//! | id | invariant |
//! | --- | --- |
//! | AR-1 | a job is in one hybrid task |
//! | AR-2 | a hybrid task has 1 to [`MOST_PARTS`] parts |
//! | AR-3 | a stage holds at least one pass |

use std::collections::BTreeSet;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::ids::JobId;

/// Most parts of a step.
pub const MOST_PARTS: u32 = 4096;

/// Jobs that share passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HybridTask<Job = JobId> {
    /// The jobs, in the order of their rows in a pass.
    pub jobs: Vec<Job>,
    /// Parts that the step of each of them is cut into; part k of all of them is one pass.
    pub parts: u32,
}

/// How jobs train together. The one without buckets leaves all to the first stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrangement<Job = JobId> {
    /// Buckets of hybrid tasks, in the order of the pipeline's template.
    pub buckets: Vec<Vec<HybridTask<Job>>>,
    /// Most rows of a pass, beside the first stage's own bound; a longer one is cut in two or more.
    pub pass_rows: Option<u64>,
    /// Rows above which a sequence passes in chunks, beside the first stage's own bound.
    pub chunk_rows: Option<u64>,
    /// Passes that each stage may hold at once, forward and not yet back, as far as its own budget of activations lets it:
    /// how far forward passes go ahead of backward ones. A stage that is not named holds one for each stage from it to the
    /// last.
    pub ahead: Vec<u32>,
    /// Rows of one job's step in a round where others have shorter steps: a longer step is spread over rounds. None: as the
    /// first stage's own passes are full.
    pub turn_rows: Option<u64>,
}

impl<Job> Default for Arrangement<Job> {
    fn default() -> Self {
        Self {
            buckets: Vec::new(),
            pass_rows: None,
            chunk_rows: None,
            ahead: Vec::new(),
            turn_rows: None,
        }
    }
}

impl<Job> Arrangement<Job> {
    /// Rounds of whole steps, however long, and nothing else: for measurements that count rounds.
    #[must_use]
    pub fn of_whole_steps() -> Self {
        Self {
            turn_rows: Some(u64::MAX),
            ..Self::default()
        }
    }

    /// All hybrid tasks, by bucket.
    pub fn hybrid_tasks(&self) -> impl Iterator<Item = &HybridTask<Job>> {
        self.buckets.iter().flatten()
    }

    /// Units in the order of their passes: hybrid task and number of the part.
    pub fn units(&self) -> impl Iterator<Item = (&HybridTask<Job>, u32)> {
        self.buckets.iter().flat_map(|bucket| {
            let most = bucket.iter().map(|task| task.parts).max().unwrap_or(0);
            (0..most).flat_map(move |part| {
                let has = move |task: &&HybridTask<Job>| part < task.parts;
                bucket.iter().filter(has).map(move |task| (task, part))
            })
        })
    }

    /// The same with other names for jobs; those that have none are left out.
    #[must_use]
    pub fn renamed<Other>(&self, name: impl Fn(&Job) -> Option<Other>) -> Arrangement<Other> {
        let task = |task: &HybridTask<Job>| HybridTask {
            jobs: task.jobs.iter().filter_map(&name).collect(),
            parts: task.parts,
        };
        let bucket = |bucket: &Vec<HybridTask<Job>>| {
            let tasks = bucket.iter().map(task);
            tasks.filter(|task| !task.jobs.is_empty()).collect()
        };
        let buckets = self.buckets.iter().map(bucket);
        Arrangement {
            buckets: buckets
                .filter(|bucket: &Vec<_>| !bucket.is_empty())
                .collect(),
            pass_rows: self.pass_rows,
            chunk_rows: self.chunk_rows,
            ahead: self.ahead.clone(),
            turn_rows: self.turn_rows,
        }
    }
}

impl<Job: Ord + Display> Arrangement<Job> {
    /// What is wrong with one that another process made, if anything. AR-1, AR-2, AR-3
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if let Some(stage) = self.ahead.iter().position(|passes| *passes == 0) {
            return Some(format!(
                "stage {stage} may hold 0 passes: with fewer than 1 nothing would pass"
            ));
        }
        let mut seen = BTreeSet::new();
        for task in self.hybrid_tasks() {
            if !(1..=MOST_PARTS).contains(&task.parts) {
                return Some(format!(
                    "a hybrid task has {} parts: 1 to {MOST_PARTS} are possible",
                    task.parts
                ));
            }
            if let Some(job) = task.jobs.iter().find(|job| !seen.insert(*job)) {
                return Some(format!(
                    "job {job} is arranged twice: a job is in one hybrid task"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(jobs: &[u64], parts: u32) -> HybridTask {
        HybridTask {
            jobs: jobs.iter().copied().map(JobId).collect(),
            parts,
        }
    }

    fn arrangement(buckets: Vec<Vec<HybridTask>>) -> Arrangement {
        Arrangement {
            buckets,
            ..Arrangement::default()
        }
    }

    #[test]
    fn hybrid_tasks_of_a_bucket_take_turns_and_buckets_follow_each_other() {
        let two = arrangement(vec![
            vec![task(&[1], 2), task(&[2], 3)],
            vec![task(&[3], 2)],
        ]);
        let order: Vec<(u64, u32)> = two.units().map(|(task, k)| (task.jobs[0].0, k)).collect();
        let expected = [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2), (3, 0), (3, 1)];
        assert_eq!(order, expected);
        let left = two.renamed(|job| (job.0 == 2).then_some("b"));
        assert_eq!(left.buckets.len(), 1);
        assert_eq!(
            (&left.buckets[0][0].jobs[..], left.units().count()),
            (&["b"][..], 3)
        );
    }

    #[test]
    fn ar_1_ar_2_what_cannot_be_is_named() {
        assert_eq!(arrangement(vec![vec![task(&[1, 2], 1)]]).fault(), None);
        let twice = arrangement(vec![vec![task(&[1, 2], 1)], vec![task(&[2], 1)]]);
        assert!(twice.fault().is_some_and(|fault| fault.contains("j2")));
        for parts in [0, MOST_PARTS + 1] {
            let wrong = arrangement(vec![vec![task(&[1], parts)]]);
            assert!(wrong.fault().is_some_and(|fault| fault.contains("4096")));
        }
    }
}
