//! How the jobs of a replica train together, asked of the planner for the replica as it stands, and what its first stage
//! is told of the answer.
//!
//! The planner's answer has hybrid tasks, the number C of micro-batches and the order of buckets. A first stage is told
//! these, and two bounds on rows that follow: of a pass, an eighth more than the largest that was planned, since a real step
//! is not the typical one; of a chunk, the largest part of a job, so that a sequence is cut where one pass of it would be
//! longer than planned. With `plan.align` off, sequences are cut by the first stage's own bound only.
//!
//! **Steps close one after another.** The jobs of a hybrid task are dealt into runs ([`rounds`]).
//!
//! **How far forward passes go ahead** (the template's third rule) is told as a number of passes by stage: as many as the
//! template holds, and as the stage's memory holds of the largest planned pass. A pass that the first stage cuts by its own
//! bound on rows counts as so many. A stage takes whatever has arrived, backward first, and waits for no pass that is late;
//! its budget of activations holds besides.

use shared::ids::JobId;
use shared::plan::arrangement;

use super::Gate;
use crate::plan::align::{self, Chunk};
use crate::plan::answer::Replica;
use crate::plan::arrange::{Arrangement, arrange, rounds};
use crate::plan::snapshot::Task;

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
    /// Most rows of a pass by the first stage's own bound.
    tokens_per_pass: u64,
}

impl Told<'_> {
    fn orders(&self) -> Orders {
        let plan = self.arrangement;
        let sum = |job: usize| self.rows(job).sum();
        let largest = |job: usize| self.rows(job).max().unwrap_or(0);
        let rows = |task: &Vec<usize>| task.iter().map(|job| largest(*job)).sum::<u64>();
        let pass = plan.hybrid_tasks.iter().map(rows).max();
        let chunk = (0..self.jobs.len()).map(largest).max();
        let pieces = pass.unwrap_or(0).div_ceil(self.tokens_per_pass.max(1));
        let told = |passes: &u64| {
            let passes = passes.saturating_mul(pieces.max(1));
            u32::try_from(passes).unwrap_or(u32::MAX)
        };
        let orders = arrangement::Arrangement {
            buckets: rounds::runs(plan, self.stages, &sum, self.order),
            pass_rows: pass.map(|rows| rows + rows / 8),
            chunk_rows: chunk.filter(|_| self.align),
            ahead: plan.ahead.iter().map(told).collect(),
            turn_rows: None,
        };
        orders.renamed(|job| self.jobs.get(*job).copied())
    }

    /// Rows of each part of a job.
    fn rows(&self, job: usize) -> impl Iterator<Item = u64> {
        let parts = self.chunks.get(job).into_iter().flatten();
        parts.map(Chunk::rows)
    }
}

/// What the first stage of a replica of a plan is told, where these levels were on and passes have at most so many rows; the
/// default while there is nothing to arrange.
#[must_use]
pub fn of_answer(replica: &Replica, levels: Levels, tokens_per_pass: u64) -> Orders {
    let arrangement = replica.arrangement.as_ref();
    arrangement.map_or_else(Orders::default, |arrangement| {
        let told = Told {
            arrangement,
            stages: replica.seats.len(),
            jobs: &replica.jobs,
            chunks: &replica.chunks,
            order: levels.order,
            align: levels.align,
            tokens_per_pass,
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
            tokens_per_pass: self.tokens_per_pass,
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
            ahead: (0..stages)
                .map(|stage| 2 * (stages - stage) as u64)
                .collect(),
            template: Template {
                buckets: (0..tasks.len()).rev().collect(),
                micro_batches: parts,
                beyond: 0,
                before: Vec::new(),
                latency: 0,
                idle_last: 0,
            },
            busy: Vec::new(),
            bytes: Vec::new(),
            optimizer: 0,
            deal: (2 * stages).div_ceil(tasks.len()),
            round: 0,
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
            tokens_per_pass: 1024,
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
        assert_eq!(orders.ahead, [2]);
        // A planned pass of 2,048 rows is two of the first stage's.
        let (orders, _) = told(&[vec![1024; 4]], 2, 2);
        assert_eq!(orders.ahead, [8, 4]);
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
