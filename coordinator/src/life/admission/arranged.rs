//! How the jobs of a replica train together, asked of the planner for the replica as it stands, and what its first stage
//! is told of the answer.
//!
//! The planner's answer has hybrid tasks, the number C of micro-batches and the order of buckets. A first stage is told
//! these, and two bounds on rows that follow: of a pass, an eighth more than the largest that was planned, since a real step
//! is not the typical one; of a chunk, the largest part of a job, so that a sequence is cut where one pass of it would be
//! longer than planned. With `plan.align` off, sequences are cut by the first stage's own bound only.
//!
//! **Steps close one after another.** The planner times one step and starts the next when all is done. The engine does not
//! wait so: a job's next rows go in once its own step is closed, and rows of others are under way meanwhile. With one
//! bucket all steps would close with its last passes, and the pipeline would drain every round. So on several stages the
//! jobs of a hybrid task are *dealt* into runs of about equal rows that follow each other, each with as many parts fewer: the
//! passes stay as large and as many, and in each run the steps of other jobs close. So many runs are made that 2 S of them
//! follow each other in a round of S stages, where jobs allow: S to be on their way, S to hide what the stages say to each
//! other about a step. That is a matter of order: with `plan.order` off none are dealt.
//!
//! What a first stage is not told: how far forward passes go ahead (the template's third rule). Stages go as far as 1F1B and
//! their budgets of activations let them, which needs no plan and waits for no pass that is late.

use shared::ids::JobId;
use shared::plan::arrangement::{self, HybridTask};

use super::Gate;
use crate::plan::align::{self, Chunk};
use crate::plan::answer::Replica;
use crate::plan::arrange::{Arrangement, arrange};
use crate::plan::order::buckets::longest_first;
use crate::plan::snapshot::{BLOCK, Task};

/// What a first stage is told.
type Orders = arrangement::Arrangement<JobId>;

/// Levels of co-scheduling, each of which can be switched off to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Jobs share passes.
    pub fuse: bool,
    /// Passes go in the order of the pipeline's template.
    pub order: bool,
    /// Sequences are cut where parts of the plan are full.
    pub align: bool,
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            fuse: true,
            order: true,
            align: true,
        }
    }
}

/// An answer of the planner, and what is needed to tell it.
struct Told<'a> {
    arrangement: &'a Arrangement,
    stages: usize,
    jobs: &'a [JobId],
    /// What each micro-batch has of each job.
    chunks: &'a [Vec<Chunk>],
    order: bool,
    align: bool,
}

impl Told<'_> {
    fn orders(&self) -> Orders {
        let plan = self.arrangement;
        let parts = u32::try_from(plan.micro_batches).unwrap_or(u32::MAX);
        let task = |task: &usize| HybridTask {
            jobs: plan.hybrid_tasks[*task].clone(),
            parts,
        };
        let bucket = |bucket: &usize| plan.buckets[*bucket].iter().map(task).collect();
        let buckets = plan.template.buckets.iter().map(bucket).collect();
        let largest = |job: usize| self.rows(job).max().unwrap_or(0);
        let rows = |task: &Vec<usize>| task.iter().map(|job| largest(*job)).sum::<u64>();
        let pass = plan.hybrid_tasks.iter().map(rows).max();
        let chunk = (0..self.jobs.len()).map(largest).max();
        let orders = arrangement::Arrangement {
            buckets: self.dealt(buckets),
            pass_rows: pass.map(|rows| rows + rows / 8),
            chunk_rows: chunk.filter(|_| self.align),
            turn_rows: None,
        };
        orders.renamed(|job| self.jobs.get(*job).copied())
    }

    /// Rows of each part of a job.
    fn rows(&self, job: usize) -> impl Iterator<Item = u64> {
        let parts = self.chunks.get(job).into_iter().flatten();
        parts.map(Chunk::rows)
    }

    /// Hybrid tasks of each bucket as runs that follow each other.
    fn dealt(&self, buckets: Vec<Vec<HybridTask<usize>>>) -> Vec<Vec<HybridTask<usize>>> {
        let runs = (2 * self.stages).div_ceil(buckets.len().max(1));
        if !self.order || self.stages < 2 || runs < 2 {
            return buckets;
        }
        let mut dealt = Vec::new();
        for bucket in buckets {
            let mut own = vec![Vec::new(); runs];
            for task in bucket {
                let sizes = task.jobs.iter();
                let sizes: Vec<u64> = sizes.map(|job| self.rows(*job).sum()).collect();
                let blocks = usize::try_from(sizes.iter().sum::<u64>() / BLOCK);
                let count = runs.min(sizes.len()).min(blocks.unwrap_or(runs)).max(1);
                let parts = task.parts.div_ceil(count as u32);
                for (at, run) in longest_first(&sizes, count).into_iter().enumerate() {
                    let jobs = run.into_iter().map(|at| task.jobs[at]).collect();
                    own[at].push(HybridTask { jobs, parts });
                }
            }
            dealt.extend(own.into_iter().filter(|bucket| !bucket.is_empty()));
        }
        dealt
    }
}

/// What the first stage of a replica of a plan is told, where these levels were on; the default while there is nothing to
/// arrange.
#[must_use]
pub fn of_answer(replica: &Replica, levels: Levels) -> Orders {
    let arrangement = replica.arrangement.as_ref();
    arrangement.map_or_else(Orders::default, |arrangement| {
        let told = Told {
            arrangement,
            stages: replica.seats.len(),
            jobs: &replica.jobs,
            chunks: &replica.chunks,
            order: levels.order,
            align: levels.align,
        };
        told.orders()
    })
}

impl Gate {
    /// How these jobs train together on a replica; nothing when they would not fit, or nothing is known of them.
    #[must_use]
    pub fn arranged(&self, replica: u32, jobs: &[JobId]) -> Option<Orders> {
        let pipeline = self.pipeline(replica)?;
        let tasks = &self.snapshot.tasks;
        let jobs: Vec<JobId> = jobs
            .iter()
            .filter(|job| tasks.contains_key(job))
            .copied()
            .collect();
        let chosen: Vec<&Task> = jobs.iter().map(|job| &tasks[job]).collect();
        let arrangement = arrange(&pipeline, &chosen, &self.snapshot.options)?;
        let cut = match self.align {
            true => align::cut,
            false => align::whole,
        };
        let parts = |task: &&Task| cut(task, arrangement.micro_batches);
        let chunks: Vec<Vec<Chunk>> = chosen.iter().map(parts).collect();
        let told = Told {
            arrangement: &arrangement,
            stages: pipeline.len(),
            jobs: &jobs,
            chunks: &chunks,
            order: self.snapshot.options.order,
            align: self.align,
        };
        let turn_rows = self.turn_rows(&pipeline, &chosen);
        Some(Orders {
            turn_rows,
            ..told.orders()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::align::Piece;
    use crate::plan::order::template::Template;

    /// Jobs of so many rows in one hybrid task each list, in C parts, and each list a bucket.
    fn told(tasks: &[Vec<u32>], parts: u64, stages: usize) -> (Orders, Vec<u64>) {
        told_with(tasks, parts, stages, true)
    }

    fn told_with(tasks: &[Vec<u32>], parts: u64, stages: usize, order: bool) -> (Orders, Vec<u64>) {
        let (mut hybrid_tasks, mut rows) = (Vec::new(), Vec::new());
        for task in tasks {
            let first = rows.len();
            rows.extend(task.iter().copied().map(u64::from));
            hybrid_tasks.push((first..rows.len()).collect::<Vec<_>>());
        }
        let arrangement = Arrangement {
            micro_batches: parts,
            buckets: (0..tasks.len()).map(|task| vec![task]).collect(),
            hybrid_tasks,
            template: Template {
                buckets: (0..tasks.len()).rev().collect(),
                micro_batches: parts,
                before: Vec::new(),
                latency: 0,
                idle_last: 0,
            },
            busy: Vec::new(),
            bytes: Vec::new(),
            optimizer: 0,
        };
        let chunks = |rows: &u64| {
            let piece = |part| Piece {
                sequence: part as u32,
                first: 0,
                rows: ((rows + part) / parts) as u32,
            };
            let chunk = |part| Chunk {
                pieces: vec![piece(part)],
            };
            (0..parts).map(chunk).collect()
        };
        let jobs: Vec<JobId> = (0..rows.len() as u64).map(JobId).collect();
        let told = Told {
            arrangement: &arrangement,
            stages,
            jobs: &jobs,
            chunks: &rows.iter().map(chunks).collect::<Vec<_>>(),
            order,
            align: true,
        };
        (told.orders(), rows)
    }

    fn jobs(orders: &Orders) -> Vec<(Vec<u64>, u32)> {
        let tasks = orders.hybrid_tasks();
        tasks
            .map(|task| (task.jobs.iter().map(|job| job.0).collect(), task.parts))
            .collect()
    }

    #[test]
    fn on_one_stage_a_hybrid_task_is_told_as_it_is() {
        let (orders, _) = told(&[vec![512; 4], vec![256]], 2, 1);
        assert_eq!(jobs(&orders), [(vec![4], 2), (vec![0, 1, 2, 3], 2)]);
        assert_eq!(
            (orders.pass_rows, orders.chunk_rows),
            (Some(1152), Some(256))
        );
    }

    #[test]
    fn on_two_stages_four_runs_follow_each_other_with_passes_as_large() {
        let (orders, _) = told(&[vec![512; 8]], 4, 2);
        let runs = [
            (vec![0, 4], 1),
            (vec![1, 5], 1),
            (vec![2, 6], 1),
            (vec![3, 7], 1),
        ];
        assert_eq!(jobs(&orders), runs);
        assert_eq!(orders.buckets.len(), 4);
        let (plain, _) = told_with(&[vec![512; 8]], 4, 2, false);
        assert_eq!(jobs(&plain), [((0..8).collect(), 4)], "without order");
        // Fewer jobs than runs, and one that cannot be dealt.
        let (orders, _) = told(&[vec![512; 2]], 4, 2);
        assert_eq!(jobs(&orders), [(vec![0], 2), (vec![1], 2)]);
        let (orders, _) = told(&[vec![512]], 4, 2);
        assert_eq!(jobs(&orders), [(vec![0], 4)]);
        // No run of less than a block.
        let (orders, _) = told(&[vec![20; 5]], 1, 3);
        assert_eq!(jobs(&orders), [(vec![0, 1, 2, 3, 4], 1)]);
        // Enough buckets as it is.
        let many = vec![vec![512, 512]; 4];
        assert_eq!(told(&many, 3, 2).0.buckets.len(), 4);
    }

    proptest! {
        #[test]
        fn every_job_is_told_once_and_passes_are_about_as_large(
            tasks in prop::collection::vec(prop::collection::vec(1u32..2_000, 1..9), 1..5),
            (parts, stages) in (1..20u64, 1..6usize),
        ) {
            let (orders, rows) = told(&tasks, parts, stages);
            prop_assert_eq!(orders.fault(), None);
            let mut all: Vec<u64> = jobs(&orders).into_iter().flat_map(|(jobs, _)| jobs).collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..rows.len() as u64));
            let planned = tasks.iter().map(|task| task.iter().sum::<u32>()).max().unwrap_or(0);
            let planned = u64::from(planned).div_ceil(parts);
            for (jobs, parts) in jobs(&orders) {
                let own = jobs.iter().map(|job| rows[*job as usize]);
                let (sum, longest) = (own.clone().sum::<u64>(), own.max().unwrap_or(0));
                // Of a run that has one job more than even.
                let most = planned + longest.div_ceil(u64::from(parts));
                prop_assert!(sum.div_ceil(u64::from(parts)) <= most, "{jobs:?}, {parts} parts");
            }
        }
    }
}
