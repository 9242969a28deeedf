//! What the passes of a step, or of an evaluation, found out about each job.

use std::collections::BTreeMap;

use kernels::ops::block_sum;

use super::pack::{self, Cut, Request};
use crate::batch::Batch;
use crate::stage::outcome::{BadRow, JobOutcome};
use crate::stage::step::Stage;

/// Runs the requests in passes of at most `budget` rows and gathers what `pass` finds, by bank slot.
pub(super) fn tally(
    stage: &mut Stage,
    requests: &[Request<'_>],
    budget: usize,
    pass: fn(&mut Stage, &Batch) -> Vec<JobOutcome>,
) -> BTreeMap<usize, Tally> {
    let mut tallies: BTreeMap<usize, Tally> = requests
        .iter()
        .map(|request| (request.slot, Tally::of(request)))
        .collect();
    for batch in pack::passes(requests, budget, Cut::Anywhere) {
        for (job, outcome) in batch.jobs.iter().zip(pass(stage, &batch)) {
            if let Some(tally) = tallies.get_mut(&job.slot) {
                tally.add(job.first_block, job.last, outcome);
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
    /// Of a job's sequences before they pass.
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
        self.bad = self.bad.or(outcome.bad);
        let parts = &outcome.block_losses;
        if let Some(loss) = block_sum::scalars(first_block, parts, &mut self.losses, last) {
            self.loss = loss;
        }
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
