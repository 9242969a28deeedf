//! What the passes of a step, or of an evaluation, found out about each job.

use std::collections::BTreeMap;

use kernels::ops::block_sum;
use serde::{Deserialize, Serialize};

use super::pack::{self, Request};
use crate::batch::Batch;
use crate::stage::outcome::{BadRow, JobOutcome};
use crate::stage::step::Stage;

/// Rows that passed, and those of data among them: what they differ by are pads, of which there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    rows: u64,
    of_data: u64,
}

impl Passed {
    /// Rows that were computed for nothing.
    pub(super) fn wasted(self) -> u64 {
        self.rows.saturating_sub(self.of_data)
    }

    fn note(&mut self, requests: &[Request<'_>], passes: &[Batch]) {
        self.rows += passes.iter().map(|batch| batch.rows() as u64).sum::<u64>();
        let lengths = requests.iter().flat_map(Request::passing);
        self.of_data += lengths.map(|length| length as u64).sum::<u64>();
    }
}

/// Runs the requests in these passes, chunks of a sequence together, and gathers what `pass` finds, by bank slot: added to
/// what earlier turns found of the same steps, which is taken out of `begun`.
pub(super) fn tally(
    stage: &mut Stage,
    requests: &[Request<'_>],
    begun: &mut BTreeMap<usize, Tally>,
    (passes, passed): (&[Batch], &mut Passed),
    pass: fn(&mut Stage, &[Batch]) -> Vec<Vec<JobOutcome>>,
) -> BTreeMap<usize, Tally> {
    let known = |request: &Request<'_>| {
        let known = begun.remove(&request.slot);
        (request.slot, known.unwrap_or_else(|| Tally::of(request)))
    };
    let mut tallies: BTreeMap<usize, Tally> = requests.iter().map(known).collect();
    passed.note(requests, passes);
    for chain in pack::chains(passes) {
        let found = pass(stage, chain).into_iter();
        for (batch, outcomes) in chain.iter().zip(found) {
            for (job, outcome) in batch.jobs.iter().zip(outcomes) {
                if let Some(tally) = tallies.get_mut(&job.slot) {
                    tally.add(job.first_block, job.last, outcome);
                }
            }
        }
    }
    tallies
}

/// Numbers of one job gathered over the passes of a step.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    losses: block_sum::Nodes<f64>,
    /// Loss, once the last block was added.
    pub loss: f64,
    correct: u64,
    /// Tokens passed, virtual ones not counted.
    pub tokens: u64,
    /// Tokens that count in the loss.
    pub trained_tokens: u64,
    bad: Option<BadRow>,
}

impl Tally {
    /// Of all sequences of a job's step before they pass.
    #[must_use]
    pub fn of(request: &Request<'_>) -> Self {
        Self {
            tokens: request.rows.iter().map(|row| row.ids.len() as u64).sum(),
            trained_tokens: request.trained_tokens(),
            ..Self::default()
        }
    }

    /// Adds what a pass found out, whose first block is this one of the job's; `last` when none follow.
    pub fn add(&mut self, first_block: u64, last: bool, outcome: JobOutcome) {
        self.correct += outcome.correct;
        self.bad = first_bad(self.bad, outcome.bad);
        let parts = &outcome.block_losses;
        if let Some(loss) = block_sum::scalars(first_block, parts, &mut self.losses, last) {
            self.loss = loss;
        }
    }

    /// Takes out what waits: sums of losses by blocks, and the first row whose loss is not finite.
    pub fn take_partials(&mut self) -> LossPartials {
        let waiting = self.losses.take().into_iter();
        let sums = waiting.map(|waiting| (waiting.first, waiting.level, waiting.sum[0]));
        LossPartials {
            sums: sums.collect(),
            bad: self.bad.take(),
        }
    }

    /// Adds what another replica has of the step; whether it fits.
    pub fn join(&mut self, partials: LossPartials) -> bool {
        self.bad = first_bad(self.bad, partials.bad);
        partials.sums.into_iter().all(|(first, level, sum)| {
            let sum = vec![sum];
            self.losses.put(block_sum::Waiting { first, level, sum })
        })
    }

    /// Ends a step of so many blocks of which none was added as the last; whether none is missing.
    pub fn close(&mut self, blocks: u64) -> bool {
        let sum = self.losses.close(blocks);
        if let Some(sum) = &sum {
            self.loss = sum[0];
        }
        sum.is_some()
    }

    /// Share of labelled tokens predicted right.
    #[must_use]
    pub fn accuracy(&self) -> f64 {
        if self.trained_tokens == 0 {
            0.0
        } else {
            self.correct as f64 / self.trained_tokens as f64
        }
    }

    /// Number within the step, or the held-out rows, of the first sequence whose loss is not finite.
    #[must_use]
    pub fn bad_sequence(&self) -> Option<usize> {
        self.bad.map(|bad| bad.sequence as usize)
    }

    /// Why a loss is no number: a sentence.
    #[must_use]
    pub fn reason(&self, what: &str) -> String {
        let Some(bad) = self.bad else {
            return format!("{what} loss is not finite");
        };
        let place = bad.origin.map(|origin| format!(", {origin}"));
        format!(
            "{what} loss is not finite: sample {} of the step, row {}{}",
            bad.sequence,
            bad.row,
            place.unwrap_or_default()
        )
    }
}

/// What one replica has of a step's losses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossPartials {
    /// First block, height in the tree, and sum.
    pub sums: Vec<(u64, u32, f64)>,
    /// First row whose loss is not finite.
    pub bad: Option<BadRow>,
}

/// The one that comes first in the step, whichever was found first.
fn first_bad(one: Option<BadRow>, other: Option<BadRow>) -> Option<BadRow> {
    let both = one.into_iter().chain(other);
    both.min_by_key(|bad| (bad.sequence, bad.row))
}
