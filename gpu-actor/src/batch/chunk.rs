//! A sequence cut at blocks into batches of their own, which pass one after another and come back in reverse.

use super::{BLOCK, Batch, JobSlice, SequenceSlice, VIRTUAL};

/// More rows than any sequence has.
const MOST_ROWS: usize = 1 << 24;

/// Which sequence, of all that are under way on a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceId {
    /// The job's place in the bank.
    pub slot: usize,
    /// The job's optimizer step.
    pub step: u64,
    /// Number of the sequence within that step.
    pub number: u32,
}

/// The part of a sequence that a batch has, which has nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The sequence: another of the same length has other keys and values.
    pub sequence: SequenceId,
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

impl Batch {
    /// Cuts a batch of one sequence into chunks of at most so many rows, as even as blocks and virtual rows allow: the
    /// first has all of those, since their gradient is a sequence's share at its first block. If the sequence is not
    /// longer, it stays whole.
    ///
    /// # Panics
    /// When it has more sequences than one, or `most` is less than [`BLOCK`] or than its virtual rows.
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
        let (most, prompt) = (most / BLOCK * BLOCK, self.virtual_rows());
        assert!(prompt <= most, "the first chunk holds all virtual rows");
        let even = length.div_ceil(length.div_ceil(most));
        let even = even.max(prompt).next_multiple_of(BLOCK);
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
        let job = self.jobs.get(sequence.job)?;
        Some(Chunk {
            sequence: SequenceId {
                slot: job.slot,
                step: job.step,
                number: sequence.number,
            },
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

    /// Whether these pass together: one batch that is whole, or all chunks of one sequence in their order.
    #[must_use]
    pub fn is_chain(chain: &[Self]) -> bool {
        let [first, behind @ ..] = chain else {
            return false;
        };
        let Some(mut last) = first.chunk() else {
            return behind.is_empty();
        };
        if last.follows() {
            return false;
        }
        for chunk in behind.iter().map(Self::chunk) {
            let of = |chunk: Chunk| (chunk.sequence, chunk.length);
            match chunk {
                Some(chunk) if chunk.start == last.end() && of(chunk) == of(last) => last = chunk,
                _ => return false,
            }
        }
        last.ends()
    }

    /// Virtual rows that it begins with.
    fn virtual_rows(&self) -> usize {
        let mut tokens = self.tokens.iter();
        let real = tokens.position(|token| token & VIRTUAL == 0);
        real.unwrap_or_else(|| self.rows())
    }

    /// Whether it can be this chunk: cut where blocks end, of one sequence, and not all of it; with virtual rows only in
    /// front, where the sequence begins.
    pub(super) fn is_sound(&self, chunk: Chunk) -> bool {
        let alone = self.jobs.len() == 1 && self.sequences.len() == 1;
        let within = chunk.start.checked_add(chunk.rows);
        let within = within.is_some_and(|end| end <= chunk.length);
        let part = chunk.rows < chunk.length && chunk.length <= MOST_ROWS;
        let prompt = if chunk.follows() {
            0
        } else {
            self.virtual_rows()
        };
        let mut behind = self.tokens[prompt..].iter();
        alone
            && within
            && part
            && behind.all(|token| token & VIRTUAL == 0)
            && chunk.start.is_multiple_of(BLOCK)
            && (chunk.rows.is_multiple_of(BLOCK) || chunk.ends())
            && self.jobs[0].blocks.len() == chunk.rows.div_ceil(BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use data::rows::TokenRow;

    use super::*;
    use crate::batch::JobEntry;

    fn chunks(length: usize, most: usize) -> Vec<Batch> {
        prompted(0, length, most)
    }

    fn prompted(prompt_tokens: usize, length: usize, most: usize) -> Vec<Batch> {
        let row = TokenRow::new((0..length as u32).collect(), vec![3; length]);
        let entry = JobEntry {
            slot: 0,
            prompt_tokens,
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
    fn the_first_chunk_has_all_virtual_rows() {
        for (prompt, length, most, rows) in [
            (400, 130, 512, vec![448, 82]),
            (150, 50, 192, vec![192, 8]),
            (128, 300, 128, vec![128, 128, 128, 44]),
            // They are no more than an even cut has.
            (100, 300, 256, vec![256, 144]),
        ] {
            let parts = prompted(prompt, length, most);
            let sizes: Vec<usize> = parts.iter().map(Batch::rows).collect();
            assert_eq!(sizes, rows);
            assert_eq!(parts[0].virtual_rows(), prompt);
            assert!(parts.iter().all(|part| part.fault(1000).is_none()));
            assert!(Batch::is_chain(&parts));
        }
    }

    #[test]
    #[should_panic(expected = "the first chunk holds all virtual rows")]
    fn a_chunk_of_fewer_rows_than_virtual_ones_is_not_cut() {
        prompted(130, 300, 128);
    }

    #[test]
    fn a_chain_is_all_of_a_sequence() {
        let parts = chunks(300, 128);
        assert!(Batch::is_chain(&parts) && Batch::is_chain(&chunks(100, 128)));
        let mut other = parts.clone();
        other[1].sequences[0].number += 1;
        let whole = chunks(100, 128).remove(0);
        for wrong in [
            vec![],
            parts[1..].to_vec(),
            parts[..2].to_vec(),
            vec![parts[0].clone(), parts[2].clone()],
            vec![whole.clone(), whole.clone()],
            vec![whole, parts[0].clone()],
            other,
        ] {
            assert!(!Batch::is_chain(&wrong), "{wrong:?}");
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
        // Another cut would have left it a virtual row.
        wrong(|batch| batch.tokens[0] = VIRTUAL | 128);
        let mut torn = chunks(300, 128).remove(2);
        torn.cut = Some(301);
        assert!(torn.fault(1000).is_some(), "its last block is not whole");
        let mut between = chunks(300, 128).remove(0);
        between.tokens[5] = VIRTUAL;
        assert!(
            between.fault(1000).is_some(),
            "a virtual row behind a token"
        );
    }
}
