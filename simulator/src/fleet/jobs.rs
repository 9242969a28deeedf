//! What the jobs of a trace train: drawn from a small table, so that equal jobs meet.

use coordinator::plan::adapter::Adapter;
use coordinator::plan::snapshot::Task;
use shared::units::Micros;

use super::trace::Arrival;
use crate::dice::Dice;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// When it comes.
    pub arrival: Arrival,
    /// Its row in [`Mix::kinds`].
    pub kind: usize,
}

/// Kinds of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Each as likely as the others.
    pub kinds: Vec<Task>,
}

impl Mix {
    /// The paper's: SST2 (64), OpenBookQA (128) and RTE (256), steps of 2, 4 or 8 sequences, LoRA of rank 8, 16 or 32 on
    /// all linear layers; uniform: OpenBookQA only.
    #[must_use]
    pub fn paper(uniform: bool) -> Self {
        let lengths: &[u32] = if uniform { &[128] } else { &[64, 128, 256] };
        let mut kinds = Vec::new();
        for length in lengths {
            for batch in [2, 4, 8] {
                for rank in [8, 16, 32] {
                    kinds.push(kind(vec![*length; batch], rank));
                }
            }
        }
        Self { kinds }
    }

    /// One of each, for choosing widths.
    #[must_use]
    pub fn sample(&self) -> Vec<usize> {
        (0..self.kinds.len()).collect()
    }
}

fn kind(lengths: Vec<u32>, rank: u64) -> Task {
    Task {
        tenant: String::new(),
        adapter: Adapter::lora(rank),
        bytes_per_value: 16,
        lengths,
        longest_row: 0,
        counted_permille: 1000,
        steps: 1,
        arrived: Micros(0),
        queued: Micros(0),
        started: None,
        max_added_latency: None,
        deadline: None,
    }
}

/// Draws what each arrival trains.
#[must_use]
pub fn jobs(arrivals: Vec<Arrival>, mix: &Mix, seed: u64) -> Vec<Job> {
    let mut dice = Dice::new(seed);
    let count = mix.kinds.len() as u64;
    let job = |arrival| Job {
        arrival,
        kind: dice.below(count) as usize,
    };
    arrivals.into_iter().map(job).collect()
}
