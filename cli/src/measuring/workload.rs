//! Mixes of jobs with made-up rows: what is trained to compare predictions, plans and levels.

use coordinator::plan::snapshot::Task;
use data::rows::TokenRow;
use serde_json::{Value, json};
use shared::job::JobSpec;
use shared::units::Micros;

use crate::exit::{Exit, Failure, OrExit};

/// Steps of a job: more than are taken.
const STEPS: u64 = 1_000;
/// Rank of the adapters of the paper's workloads, which does not say it.
const RANK: u64 = 16;
/// Batches of the eight tasks in both of the paper's workloads (arXiv 2603.02885, table 2).
const BATCHES: [usize; 8] = [4, 2, 4, 4, 8, 2, 4, 4];
/// Lengths of SST2, OpenBookQA and RTE as the paper pads them.
const SST2: usize = 64;
const QA: usize = 128;
const RTE: usize = 256;

/// Jobs: adapter and lengths of the sequences of a step.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    jobs: Vec<(Value, Vec<usize>)>,
}

/// LoRA of a rank at these targets.
pub(crate) fn lora(rank: u64, targets: Value) -> Value {
    json!({ "method": "lora", "rank": rank, "targets": targets })
}

/// LoRA of a rank on all linear layers.
pub(crate) fn everywhere(rank: u64) -> Value {
    lora(rank, json!("all-linear"))
}

impl Workload {
    /// Of these jobs; no sequence is longer than the model takes.
    pub(crate) fn new(jobs: Vec<(Value, Vec<usize>)>, context: usize) -> Self {
        let within = |lengths: Vec<usize>| lengths.into_iter().map(|length| length.min(context));
        let jobs = jobs.into_iter();
        Self {
            jobs: jobs
                .map(|(adapter, lengths)| (adapter, within(lengths).collect()))
                .collect(),
        }
    }

    fn paper(lengths: [usize; 8], context: usize) -> Self {
        let jobs = lengths.into_iter().zip(BATCHES);
        let job = |(length, batch): (usize, usize)| (everywhere(RANK), vec![length; batch]);
        Self::new(jobs.map(job).collect(), context)
    }

    /// The paper's workload A.
    pub(crate) fn a(context: usize) -> Self {
        Self::paper([SST2, QA, QA, SST2, SST2, SST2, QA, QA], context)
    }

    /// The paper's workload B.
    pub(crate) fn b(context: usize) -> Self {
        Self::paper([RTE, SST2, RTE, SST2, SST2, RTE, RTE, RTE], context)
    }

    /// What the paper calls hard for one backbone: lengths of 16 to 8,192, batches of 1 to 64.
    pub(crate) fn hard(context: usize) -> Self {
        let mix = [
            (16, 64),
            (64, 32),
            (256, 8),
            (1_024, 2),
            (4_096, 1),
            (8_192, 1),
        ];
        let job = |(length, batch): (usize, usize)| (everywhere(RANK), vec![length; batch]);
        Self::new(mix.into_iter().map(job).collect(), context)
    }

    /// Each job by itself.
    pub(crate) fn alone(&self) -> impl Iterator<Item = Self> + '_ {
        let jobs = self.jobs.iter();
        jobs.map(|job| Self {
            jobs: vec![job.clone()],
        })
    }

    /// The same with the sequences of each group of jobs as long as the longest of the group: what padding computes.
    pub(crate) fn padded(&self, groups: &[Vec<usize>]) -> Self {
        let mut padded = self.clone();
        for group in groups {
            let lengths = group.iter().flat_map(|job| &self.jobs[*job].1);
            let longest = lengths.max().copied().unwrap_or(0);
            for job in group {
                padded.jobs[*job].1.fill(longest);
            }
        }
        padded
    }

    /// Number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Lengths of the sequences of a step, by job.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = &[usize]> {
        self.jobs.iter().map(|(_, lengths)| &lengths[..])
    }

    /// Rows of a step of all.
    pub(crate) fn total(&self) -> usize {
        self.lengths().flatten().sum()
    }

    /// The jobs as they are submitted.
    ///
    /// # Errors
    /// Never: they are written here.
    pub(crate) fn specs(&self) -> Result<Vec<JobSpec>, Failure> {
        let spec = |(number, (adapter, lengths)): (usize, &(Value, Vec<usize>))| {
            serde_json::from_value(json!({
                "name": format!("trial-{number}"), "adapter": adapter,
                "data": { "train": "made up" },
                "train": { "steps": STEPS, "batch_size": lengths.len(), "shuffle": false },
                "checkpoint": { "every_steps": 0 },
            }))
        };
        let specs: Result<Vec<JobSpec>, _> = self.jobs.iter().enumerate().map(spec).collect();
        specs.or_exit(Exit::Internal)
    }

    /// The rows of one step of each job, which are all it has; tokens are below the size of the vocabulary.
    pub(crate) fn rows(&self, vocabulary: usize) -> Vec<Vec<TokenRow>> {
        let row = |length: &usize| {
            let ids: Vec<u32> = (0..*length)
                .map(|i| ((i * 7 + 3) % vocabulary) as u32)
                .collect();
            let labels = ids.iter().enumerate().map(|(index, id)| match index {
                0 => data::mask::NOT_TRAINED,
                _ => *id as i32,
            });
            let labels = labels.collect();
            TokenRow::new(ids, labels)
        };
        self.lengths()
            .map(|lengths| lengths.iter().map(row).collect())
            .collect()
    }

    /// The jobs as the planner sees them.
    ///
    /// # Errors
    /// Never.
    pub(crate) fn tasks(&self) -> Result<Vec<Task>, Failure> {
        let task = |(spec, lengths): (&JobSpec, &[usize])| {
            let rows: Vec<u32> = lengths.iter().map(|length| *length as u32).collect();
            let all: usize = lengths.iter().sum();
            let counted = (1000 * (all - lengths.len()) / all.max(1)) as u64;
            Task::of(spec, "trial", &rows, counted, STEPS, Micros(0))
        };
        Ok(self.specs()?.iter().zip(self.lengths()).map(task).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_to_the_longest_of_a_group() {
        let jobs = vec![
            (everywhere(4), vec![8, 8]),
            (everywhere(4), vec![32]),
            (everywhere(4), vec![500]),
        ];
        let workload = Workload::new(jobs, 100);
        assert_eq!(workload.total(), 16 + 32 + 100);
        let padded = workload.padded(&[vec![0, 1], vec![2]]);
        let lengths: Vec<&[usize]> = padded.lengths().collect();
        assert_eq!(lengths, [&[32, 32][..], &[32], &[100]]);
        assert_eq!(workload.alone().count(), 3);
    }

    #[test]
    fn the_hard_mix_has_every_length() {
        let tasks = Workload::hard(8_192).tasks().expect("jobs");
        let longest = tasks.iter().map(Task::longest).max();
        let batch = tasks.iter().map(|task| task.lengths.len()).max();
        assert_eq!((longest, batch), (Some(8_192), Some(64)));
        assert_eq!(Workload::a(1_000).len(), 8);
        assert_eq!(Workload::b(1_000).total(), 256 * 18 + 64 * 14);
    }
}
