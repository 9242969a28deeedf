//! What a pass found out about each job: losses, hits, and where a number broke.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use shared::model::ModelShape;

use super::loss::Labelled;
pub use super::origin::Origin;
use super::origin::{self, Trail};
use crate::batch::Batch;

/// What a pass found out about one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The adapter's place in the bank.
    pub slot: usize,
    /// Sum of coefficient * nll over this pass's blocks, block by block in the job's order.
    pub block_losses: Vec<f64>,
    /// Plain sum of nll and number of labelled rows, by sequence of the batch that belongs to the job.
    pub sequences: Vec<SequenceLoss>,
    /// Labelled rows whose target was the most likely token.
    pub correct: u64,
    /// First row whose loss is not finite.
    pub bad: Option<BadRow>,
}

/// Loss of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SequenceLoss {
    /// Sum of the negative log-likelihoods.
    pub sum: f64,
    /// Number of labelled rows.
    pub tokens: u64,
}

/// Where a number stopped being finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRow {
    /// Number of the sequence within the job's optimizer step.
    pub sequence: u32,
    /// Row within the sequence, the first whose loss is not finite: attention takes 16 rows together, so that the number
    /// may have broken in a later one of them (`kernels::ops::attention`).
    pub row: usize,
    /// Where it began; `None` without a tape.
    pub origin: Option<Origin>,
}

impl JobOutcome {
    /// Of every job of a batch, from its labelled rows and what the pass left over blocks of a model of this shape.
    pub(super) fn all(
        batch: &Batch,
        labelled: &Labelled,
        trail: Trail<'_>,
        shape: &ModelShape,
    ) -> Vec<Self> {
        let mut at = 0;
        let mut list = Vec::with_capacity(batch.jobs.len());
        for (index, job) in batch.jobs.iter().enumerate() {
            let end = at
                + labelled.rows[at..]
                    .iter()
                    .take_while(|&&r| r < job.rows.end)
                    .count();
            let mine = at..end;
            at = end;
            list.push(Self::of(batch, index, labelled, mine, trail, shape));
        }
        list
    }

    fn of(
        batch: &Batch,
        index: usize,
        labelled: &Labelled,
        mine: Range<usize>,
        trail: Trail<'_>,
        shape: &ModelShape,
    ) -> Self {
        let job = &batch.jobs[index];
        let mut block_losses = vec![0.0; job.blocks.len()];
        let own: Vec<_> = batch.sequences.iter().filter(|s| s.job == index).collect();
        let mut sequences = vec![SequenceLoss::default(); own.len()];
        let (mut correct, mut bad, mut block, mut sequence) = (0, None, 0, 0);
        for i in mine {
            let (row, loss) = (labelled.rows[i], f64::from(labelled.losses[i]));
            while row >= own[sequence].rows.end {
                sequence += 1;
            }
            while block < job.blocks.len() && row >= job.blocks[block].end {
                block += 1;
            }
            if let Some(sum) = block_losses.get_mut(block) {
                *sum += f64::from(batch.coefficients[row]) * loss;
            }
            sequences[sequence].sum += loss;
            sequences[sequence].tokens += 1;
            correct += u64::from(labelled.correct[i]);
            if !loss.is_finite() && bad.is_none() {
                let own = own[sequence];
                let kept = !trail.tape.is_empty();
                let origin = kept.then(|| origin::of(trail, own, row, shape));
                bad = Some(BadRow {
                    sequence: own.number,
                    row: own.start + row - own.rows.start,
                    origin,
                });
            }
        }
        Self {
            slot: job.slot,
            block_losses,
            sequences,
            correct,
            bad,
        }
    }
}
