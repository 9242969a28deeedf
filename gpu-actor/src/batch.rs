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

/// Rows of a canonical block.
pub const BLOCK: usize = 64;

/// The token number of a row that holds virtual token `i` is `VIRTUAL | i`.
pub const VIRTUAL: u32 = 1 << 31;

/// More rows than any sequence has.
const MOST_ROWS: usize = 1 << 24;

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

/// The part of a sequence that a batch has, which has nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Rows of the sequence before it.
    pub start: usize,
    /// Its rows.
    pub rows: usize,
    /// Rows of the whole sequence.
    pub length: usize,
}

impl Chunk {
    /// Whether a chunk of the same sequence came before.
    #[must_use]
    pub fn follows(self) -> bool {
        self.start > 0
    }

    /// Whether the sequence has no rows after these.
    #[must_use]
    pub fn ends(self) -> bool {
        self.end() == self.length
    }

    /// Rows of the sequence up to its last one.
    #[must_use]
    pub fn end(self) -> usize {
        self.start + self.rows
    }
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

    /// Cuts a batch of one sequence into chunks of at most so many rows, as even as blocks allow; if it is not longer,
    /// it stays whole.
    ///
    /// # Panics
    /// When it has more sequences than one, or `most` is less than [`BLOCK`].
    #[must_use]
    pub fn into_chunks(self, most: usize) -> Vec<Self> {
        assert!(most >= BLOCK, "a chunk holds a block");
        let ([job], [sequence]) = (&self.jobs[..], &self.sequences[..]) else {
            panic!("only a single sequence is cut");
        };
        let length = self.rows();
        if length <= most {
            return vec![self];
        }
        let count = length.div_ceil(most / BLOCK * BLOCK);
        let even = length.div_ceil(count).next_multiple_of(BLOCK);
        let starts = (0..length).step_by(even);
        let chunk = |start: usize| {
            let end = (start + even).min(length);
            let rows = 0..end - start;
            let mut blocks = Vec::with_capacity(rows.len().div_ceil(BLOCK));
            for at in rows.clone().step_by(BLOCK) {
                blocks.push(at..(at + BLOCK).min(rows.end));
            }
            Self {
                tokens: self.tokens[start..end].to_vec(),
                positions: self.positions[start..end].to_vec(),
                targets: self.targets[start..end].to_vec(),
                coefficients: self.coefficients[start..end].to_vec(),
                sequences: vec![SequenceSlice {
                    rows: rows.clone(),
                    start,
                    ..sequence.clone()
                }],
                jobs: vec![JobSlice {
                    rows,
                    blocks,
                    first_block: job.first_block + (start / BLOCK) as u64,
                    last: job.last && end == length,
                    closes: job.closes && start == 0,
                    ..job.clone()
                }],
                cut: Some(length),
            }
        };
        starts.map(chunk).collect()
    }

    /// The part of a sequence that this is, when it is not whole.
    #[must_use]
    pub fn chunk(&self) -> Option<Chunk> {
        let (length, sequence) = (self.cut?, self.sequences.first()?);
        Some(Chunk {
            start: sequence.start,
            rows: self.rows(),
            length,
        })
    }

    /// Whether this is a chunk behind another of the same sequence.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.chunk().is_some_and(Chunk::follows)
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

    /// Whether it can be this chunk: cut where blocks end, of one sequence, and not all of it.
    fn is_sound(&self, chunk: Chunk) -> bool {
        let alone = self.jobs.len() == 1 && self.sequences.len() == 1;
        let within = chunk.start.checked_add(chunk.rows);
        let within = within.is_some_and(|end| end <= chunk.length);
        let part = chunk.rows < chunk.length && chunk.length <= MOST_ROWS;
        alone
            && within
            && part
            && chunk.start.is_multiple_of(BLOCK)
            && (chunk.rows.is_multiple_of(BLOCK) || chunk.ends())
            && self.jobs[0].blocks.len() == chunk.rows.div_ceil(BLOCK)
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

    fn chunks(length: usize, most: usize) -> Vec<Batch> {
        let row = TokenRow::new((0..length as u32).collect(), vec![3; length]);
        let entry = JobEntry {
            slot: 0,
            prompt_tokens: 0,
            prefix_tokens: 2,
            first_block: 5,
            first_sequence: 4,
            last: true,
            step: 1,
            trained_tokens: 9,
        };
        let mut batch = Batch::default();
        batch.push(entry, &[&row]);
        batch.into_chunks(most)
    }

    #[test]
    fn chunks_are_the_rows_of_the_sequence() {
        for (length, most, rows) in [
            (100, 128, vec![100]),
            (129, 128, vec![128, 1]),
            (300, 128, vec![128, 128, 44]),
            // Even as far as blocks go.
            (400, 300, vec![256, 144]),
            (520, 256, vec![192, 192, 136]),
        ] {
            let whole = chunks(length, usize::MAX).remove(0);
            let parts = chunks(length, most);
            let sizes: Vec<usize> = parts.iter().map(Batch::rows).collect();
            assert_eq!(sizes, rows);
            assert_eq!(
                parts
                    .iter()
                    .map(|p| p.tokens.clone())
                    .collect::<Vec<_>>()
                    .concat(),
                whole.tokens
            );
            let positions = parts.iter().flat_map(|p| p.positions.iter().copied());
            assert!(positions.eq(whole.positions));
            let targets = parts.iter().flat_map(|p| p.targets.iter().copied());
            assert!(
                targets.eq(whole.targets),
                "a row predicts the first of the next chunk"
            );
            let mut block = 5;
            for (index, part) in parts.iter().enumerate() {
                let job = &part.jobs[0];
                assert_eq!(job.first_block, block);
                block += job.blocks.len() as u64;
                assert_eq!(job.last, index + 1 == parts.len());
                assert_eq!(job.closes, index == 0);
                assert_eq!(part.fault(1000), None);
                assert_eq!(part.follows(), index > 0);
            }
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        let sound = chunks(300, 128).remove(1);
        let wrong = |change: fn(&mut Batch)| {
            let mut batch = sound.clone();
            change(&mut batch);
            assert!(batch.fault(1000).is_some(), "{batch:?}");
        };
        wrong(|batch| batch.sequences[0].start = 100);
        wrong(|batch| batch.sequences[0].start = usize::MAX - 63);
        wrong(|batch| batch.cut = Some(200));
        wrong(|batch| batch.cut = Some(usize::MAX));
        wrong(|batch| batch.cut = Some(128));
        wrong(|batch| batch.jobs[0].blocks.clear());
        let mut torn = chunks(300, 128).remove(2);
        torn.cut = Some(301);
        assert!(torn.fault(1000).is_some(), "its last block is not whole");
    }

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
