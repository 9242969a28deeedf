//! A packed batch: the rows of several jobs one after another, with no padding between them.
//!
//! A row is one token of one sequence, or one virtual token of prompt tuning. Rows of a job are contiguous; so are
//! rows of a sequence. A sequence is cut into canonical *blocks* of at most [`BLOCK`] rows counted from its
//! start; gradients are summed block by block in the job's own order, so neither company nor packing shows.
//!
//! A sequence that is longer than a pass is cut at multiples of [`BLOCK`] into *chunks*, each a batch of its own: keys
//! and values of the rows before are carried, and chunks come back in reverse.

use std::ops::Range;

use data::rows::TokenRow;
use serde::{Deserialize, Serialize};

mod chunk;

pub use chunk::{Chunk, SequenceId};

/// Rows of a canonical block.
pub const BLOCK: usize = 64;

/// The token number of a row that holds virtual token `i` is `VIRTUAL | i`.
pub const VIRTUAL: u32 = 1 << 31;

/// The target of a row that does not count in the loss.
pub const NO_TARGET: u32 = u32::MAX;

/// One sequence within a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceSlice {
    /// Its rows.
    pub rows: Range<usize>,
    /// Index into [`Batch::jobs`].
    pub job: usize,
    /// Number of the sequence within the job's optimizer step: part of every random key.
    pub number: u32,
    /// Rows of the sequence that came before, in earlier passes.
    pub start: usize,
}

/// One job's share of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSlice {
    /// The adapter's place in the bank.
    pub slot: usize,
    /// Its rows.
    pub rows: Range<usize>,
    /// Its blocks, consecutive in the job's order.
    pub blocks: Vec<Range<usize>>,
    /// Number of the first of them within the job's optimizer step.
    pub first_block: u64,
    /// Whether the job's optimizer step has no rows behind these: its losses are complete then.
    pub last: bool,
    /// Whether its gradient is complete once these rows came back: chunks come back in reverse.
    pub closes: bool,
    /// Optimizer step, part of every random key.
    pub step: u64,
}

/// Rows of several jobs, ready for one pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Token of each row, or [`VIRTUAL`] | index.
    pub tokens: Vec<u32>,
    /// Position of each row in its sequence, virtual tokens counted.
    pub positions: Vec<u32>,
    /// The token each row should predict, or [`NO_TARGET`].
    pub targets: Vec<u32>,
    /// Weight of each row's loss: 1 over the labelled tokens of its job's whole optimizer step.
    pub coefficients: Vec<f32>,
    /// The sequences, in row order.
    pub sequences: Vec<SequenceSlice>,
    /// The jobs, in row order.
    pub jobs: Vec<JobSlice>,
    /// Rows of the whole sequence, when this is a chunk of one.
    pub cut: Option<usize>,
}

/// How a job's sequences enter a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobEntry {
    /// The adapter's place in the bank.
    pub slot: usize,
    /// Virtual tokens that take rows (prompt tuning).
    pub prompt_tokens: usize,
    /// Virtual tokens that take positions only (prefix tuning).
    pub prefix_tokens: usize,
    /// Number of the first block within the optimizer step.
    pub first_block: u64,
    /// Number of the first sequence within the optimizer step.
    pub first_sequence: u32,
    /// Whether the optimizer step ends here.
    pub last: bool,
    /// Optimizer step.
    pub step: u64,
    /// Tokens that count in the loss over the whole optimizer step.
    pub trained_tokens: u64,
}

/// Number of blocks of a sequence of so many tokens behind so many virtual rows.
#[must_use]
pub fn block_count(tokens: usize, prompt_tokens: usize) -> u64 {
    (tokens + prompt_tokens).div_ceil(BLOCK) as u64
}

impl Batch {
    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// Appends one job's sequences; call once per job.
    pub fn push(&mut self, entry: JobEntry, sequences: &[&TokenRow]) {
        let start = self.rows();
        let mut blocks = Vec::new();
        for (index, row) in sequences.iter().enumerate() {
            let rows = self.push_sequence(entry, row);
            let mut at = rows.start;
            while at < rows.end {
                let end = (at + BLOCK).min(rows.end);
                blocks.push(at..end);
                at = end;
            }
            let number = entry.first_sequence + index as u32;
            self.sequences.push(SequenceSlice {
                rows,
                job: self.jobs.len(),
                number,
                start: 0,
            });
        }
        self.jobs.push(JobSlice {
            slot: entry.slot,
            rows: start..self.rows(),
            blocks,
            first_block: entry.first_block,
            last: entry.last,
            closes: entry.last,
            step: entry.step,
        });
    }

    fn push_sequence(&mut self, entry: JobEntry, row: &TokenRow) -> Range<usize> {
        let start = self.rows();
        let coefficient = (1.0 / entry.trained_tokens as f64) as f32;
        for i in 0..entry.prompt_tokens {
            self.push_row(VIRTUAL | i as u32, i, NO_TARGET, 0.0);
        }
        let offset = entry.prompt_tokens + entry.prefix_tokens;
        for (i, &token) in row.ids.iter().enumerate() {
            // Labels are not shifted: row i predicts label i + 1.
            match row.labels.get(i + 1) {
                Some(&label) if label >= 0 => {
                    self.push_row(token, offset + i, label as u32, coefficient);
                }
                _ => self.push_row(token, offset + i, NO_TARGET, 0.0),
            }
        }
        start..self.rows()
    }

    fn push_row(&mut self, token: u32, position: usize, target: u32, coefficient: f32) {
        self.tokens.push(token);
        self.positions.push(position as u32);
        self.targets.push(target);
        self.coefficients.push(coefficient);
    }

    /// Adds rows of one sequence for sampling, behind `start` rows that are already in its cache: no loss, no blocks.
    ///
    /// `prefix_tokens` positions are taken by the job's prefix.
    pub fn push_continuation(
        &mut self,
        slot: usize,
        tokens: &[u32],
        start: usize,
        prefix_tokens: usize,
    ) {
        let first = self.rows();
        for (i, &token) in tokens.iter().enumerate() {
            self.push_row(token, prefix_tokens + start + i, NO_TARGET, 0.0);
        }
        let rows = first..self.rows();
        let job = self.jobs.len();
        self.sequences.push(SequenceSlice {
            rows: rows.clone(),
            job,
            number: 0,
            start,
        });
        self.jobs.push(JobSlice {
            slot,
            rows,
            blocks: Vec::new(),
            first_block: 0,
            last: false,
            closes: false,
            step: 0,
        });
    }

    /// The batch without the rows of some of its jobs; the others' are as they were.
    #[must_use]
    pub fn without(&self, leaves: impl Fn(&JobSlice) -> bool) -> Self {
        let mut left = Self::default();
        for (index, job) in self.jobs.iter().enumerate().filter(|(_, job)| !leaves(job)) {
            let (from, to) = (job.rows.start, left.rows());
            let moved = |rows: &Range<usize>| rows.start - from + to..rows.end - from + to;
            let rows = job.rows.clone();
            left.tokens.extend_from_slice(&self.tokens[rows.clone()]);
            left.positions
                .extend_from_slice(&self.positions[rows.clone()]);
            left.targets.extend_from_slice(&self.targets[rows.clone()]);
            left.coefficients
                .extend_from_slice(&self.coefficients[rows]);
            let own = self.sequences.iter().filter(|s| s.job == index);
            left.sequences.extend(own.map(|sequence| SequenceSlice {
                rows: moved(&sequence.rows),
                job: left.jobs.len(),
                ..sequence.clone()
            }));
            left.jobs.push(JobSlice {
                rows: moved(&job.rows),
                blocks: job.blocks.iter().map(moved).collect(),
                ..job.clone()
            });
            left.cut = self.cut;
        }
        left
    }

    /// What is wrong with a batch that another process made, if anything: then no pass may see it.
    #[must_use]
    pub fn fault(&self, vocab: usize) -> Option<&'static str> {
        let rows = self.rows();
        let lists = [
            self.positions.len(),
            self.targets.len(),
            self.coefficients.len(),
        ];
        if rows == 0 || lists != [rows; 3] {
            return Some("its lists are empty or of different lengths");
        }
        let known = |token: u32| (token as usize) < vocab;
        let target = |&target: &u32| target == NO_TARGET || known(target);
        let token = |&token: &u32| known(token) || token & VIRTUAL != 0;
        if !self.tokens.iter().all(token) || !self.targets.iter().all(target) {
            return Some("it has a token outside the vocabulary");
        }
        let mut ranges = self.jobs.iter().map(|job| &job.rows);
        if !in_turn(ranges.by_ref(), 0, rows) {
            return Some("its jobs do not share its rows");
        }
        let mut ranges = self.sequences.iter().map(|sequence| &sequence.rows);
        if !in_turn(ranges.by_ref(), 0, rows) {
            return Some("its sequences do not share its rows");
        }
        let belongs = |sequence: &SequenceSlice| {
            let (job, own) = (self.jobs.get(sequence.job), &sequence.rows);
            job.is_some_and(|job| job.rows.start <= own.start && own.end <= job.rows.end)
        };
        if !self.sequences.iter().all(belongs) {
            return Some("a sequence is not its job's");
        }
        let sound = |job: &JobSlice| {
            job.blocks.is_empty() || in_turn(job.blocks.iter(), job.rows.start, job.rows.end)
        };
        if !self.jobs.iter().all(sound) {
            return Some("the blocks of a job are not its rows");
        }
        if self.cut.is_some() && !self.chunk().is_some_and(|chunk| self.is_sound(chunk)) {
            return Some("it is no chunk of a sequence");
        }
        None
    }

    /// Highest position plus one.
    #[must_use]
    pub fn reach(&self) -> usize {
        self.positions.iter().max().map_or(0, |&p| p as usize + 1)
    }
}

/// Whether ranges that are not empty follow each other from `start` to `end`.
fn in_turn<'a>(ranges: impl Iterator<Item = &'a Range<usize>>, start: usize, end: usize) -> bool {
    let mut at = start;
    for range in ranges {
        if range.start != at || range.end <= at {
            return false;
        }
        at = range.end;
    }
    at == end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_without_a_job_is_as_if_that_had_never_come() {
        let rows =
            [70, 3, 130, 1, 64].map(|length| TokenRow::new(vec![5; length], vec![5; length]));
        let of = |slots: &[usize]| {
            let mut batch = Batch::default();
            for &slot in slots {
                let entry = JobEntry {
                    slot,
                    prompt_tokens: slot,
                    prefix_tokens: 2 * slot,
                    first_block: 3,
                    first_sequence: 2,
                    last: slot == 1,
                    step: 4,
                    trained_tokens: 9,
                };
                batch.push(entry, &[&rows[slot], &rows[4 - slot]]);
            }
            batch
        };
        let all = of(&[0, 1, 2]);
        for left in [&[1, 2][..], &[0, 2], &[0, 1], &[2], &[0, 1, 2], &[]] {
            let batch = all.without(|job| !left.contains(&job.slot));
            assert_eq!(batch, of(left), "{left:?}");
            assert_eq!(batch.fault(10).is_some(), left.is_empty());
        }
    }
}
