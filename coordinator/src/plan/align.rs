//! Data level: a job's step is packed and cut into chunks, without a row of padding.
//!
//! The sequences of one job and one optimizer step lie one after another, in the job's order; nothing of another step or
//! job is among them, so that what is learned does not change. They are cut into chunks of about equal rows, at the
//! multiples of [`BLOCK`] of each sequence only: blocks are what gradients are summed over, and a block is never
//! torn. A sequence that goes on in the next chunk carries its keys and values there; backward goes through its chunks
//! in reverse, which the order of passes within a step gives.
//!
//! Rows are flat in the engine: a chunk that is not full is shorter, not padded. [`Waste`] counts what padding the
//! usual ways would have computed: to the longest of all, and by the paper's rule of the greatest power of two.
//!
//! The number of chunks is the number of micro-batches of the step, which the cost model chooses
//! (`solve`): fewer are longer and fill the device, more are shorter, fill the pipeline and take less memory.
//! [`power_of_two`] is the paper's rule, for comparison.

use super::snapshot::{BLOCK, Task};

/// Rows of one sequence in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The sequence, in the job's order.
    pub sequence: u32,
    /// Its first row here; more than 0: keys and values of the rows before are carried.
    pub first: u32,
    /// Rows.
    pub rows: u32,
}

/// What a micro-batch has of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// In the job's order.
    pub pieces: Vec<Piece>,
}

impl Chunk {
    /// Rows in all.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.rows)).sum()
    }

    /// Whether keys and values come from a chunk before.
    #[must_use]
    pub fn is_carried(&self) -> bool {
        self.pieces.iter().any(|piece| piece.first > 0)
    }
}

/// Lengths with virtual rows.
fn lengths(task: &Task) -> Vec<u64> {
    let more = task.adapter.prompt_rows();
    let lengths = task.lengths.iter();
    lengths.map(|length| u64::from(*length) + more).collect()
}

/// Cuts a job's step into at most so many chunks, none of them empty.
#[must_use]
pub fn cut(task: &Task, chunks: u64) -> Vec<Chunk> {
    let lengths = lengths(task);
    let total: u64 = lengths.iter().sum();
    let count = chunks.clamp(1, total.div_ceil(BLOCK).max(1));
    let mut done = Vec::new();
    let mut open = Chunk::default();
    let mut passed = 0u64;
    for (sequence, length) in lengths.iter().enumerate() {
        let mut first = 0;
        while first < *length {
            // Rows that all chunks up to this one should hold together.
            let goal = (total * (done.len() as u64 + 1)).div_ceil(count);
            let wanted = goal.saturating_sub(passed);
            let left = length - first;
            let mut rows = wanted.next_multiple_of(BLOCK).min(left);
            if wanted == 0 && done.len() as u64 + 1 < count {
                done.push(std::mem::take(&mut open));
                continue;
            }
            if done.len() as u64 + 1 == count {
                rows = left;
            }
            open.pieces.push(Piece {
                sequence: sequence as u32,
                first: first as u32,
                rows: rows as u32,
            });
            first += rows;
            passed += rows;
        }
    }
    done.push(open);
    done.retain(|chunk| !chunk.pieces.is_empty());
    done
}

/// Whole sequences in at most so many chunks: the longest first, each to the shortest chunk.
#[must_use]
pub fn whole(task: &Task, chunks: u64) -> Vec<Chunk> {
    let lengths = lengths(task);
    let count = chunks.clamp(1, (lengths.len() as u64).max(1)) as usize;
    let groups = super::order::buckets::longest_first(&lengths, count);
    let chunk = |sequences: Vec<usize>| Chunk {
        pieces: sequences
            .into_iter()
            .map(|sequence| Piece {
                sequence: sequence as u32,
                first: 0,
                rows: lengths[sequence] as u32,
            })
            .collect(),
    };
    groups.into_iter().map(chunk).collect()
}

/// The paper's chunk size: the greatest power of two that divides the padded lengths of all jobs, at least the floor.
///
/// A job's sequences are padded to its own longest.
#[must_use]
pub fn power_of_two(longest: &[u64], floor: u64) -> u64 {
    let zeros = longest
        .iter()
        .filter(|length| **length > 0)
        .map(|length| length.trailing_zeros())
        .min();
    zeros.map_or(floor, |zeros| (1 << zeros.min(40)).max(floor))
}

/// Rows of padding that a step would have, by way of laying out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Waste {
    /// Rows of data.
    pub rows: u64,
    /// Pads here: none, ever.
    pub here: u64,
    /// Pads to the longest sequence of the job itself; the paper bills them to the user.
    pub own: u64,
    /// Pads to the longest sequence of the pass.
    pub zero_padding: u64,
    /// Pads when jobs, padded to their own longest, are cut by [`power_of_two`].
    pub power_of_two: u64,
}

impl Waste {
    /// Of jobs that share a pass.
    #[must_use]
    pub fn of(tasks: &[&Task]) -> Self {
        let own: Vec<u64> = tasks.iter().map(|task| task.longest()).collect();
        let longest = own.iter().max().copied().unwrap_or(0);
        let chunk = power_of_two(&own, BLOCK).max(1);
        let mut waste = Self::default();
        for (task, own) in tasks.iter().zip(&own) {
            let (rows, sequences) = (task.tokens(), task.lengths.len() as u64);
            let padded = sequences * own;
            waste.rows += rows;
            waste.own += padded - rows;
            waste.zero_padding += sequences * longest - rows;
            waste.power_of_two += padded.next_multiple_of(chunk) - rows;
        }
        waste
    }

    /// The sum over passes.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            here: self.here + other.here,
            own: self.own + other.own,
            zero_padding: self.zero_padding + other.zero_padding,
            power_of_two: self.power_of_two + other.power_of_two,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::adapter::Adapter;
    use crate::plan::testing::task;

    #[test]
    fn a_long_sequence_is_cut_at_blocks_and_carried() {
        let job = task(8, &[300, 20]);
        let chunks = cut(&job, 3);
        let pieces: Vec<Vec<(u32, u32, u32)>> = chunks
            .iter()
            .map(|chunk| {
                chunk
                    .pieces
                    .iter()
                    .map(|p| (p.sequence, p.first, p.rows))
                    .collect()
            })
            .collect();
        assert_eq!(
            pieces,
            [
                vec![(0, 0, 128)],
                vec![(0, 128, 128)],
                vec![(0, 256, 44), (1, 0, 20)]
            ]
        );
        assert!(!chunks[0].is_carried() && chunks[1].is_carried());
    }

    #[test]
    fn the_papers_rule_and_what_it_pads() {
        assert_eq!(power_of_two(&[64, 128, 256], 64), 64);
        assert_eq!(power_of_two(&[128, 256], 64), 128);
        assert_eq!(power_of_two(&[100, 256], 64), 64);
        let (a, b) = (task(8, &[64; 4]), task(8, &[256, 200]));
        let waste = Waste::of(&[&a, &b]);
        assert_eq!((waste.rows, waste.here), (712, 0));
        assert_eq!(waste.own, 56);
        assert_eq!(waste.zero_padding, 4 * 192 + 56);
        // 4 x 64 and 2 x 256 are multiples of 64 already.
        assert_eq!(waste.power_of_two, 56);
    }

    proptest! {
        #[test]
        fn every_row_is_in_one_chunk_and_no_block_is_torn(
            lengths in prop::collection::vec(1u32..700, 1..12),
            chunks in 1u64..40,
            prompt in 0u64..2,
        ) {
            let mut job = task(8, &lengths);
            if prompt > 0 {
                job.adapter = Adapter { method: crate::plan::adapter::Method::Prompt, width: 5, sites: vec![] };
            }
            for parts in [cut(&job, chunks), whole(&job, chunks)] {
                prop_assert!(parts.len() as u64 <= chunks);
                prop_assert!(parts.iter().all(|chunk| chunk.rows() > 0));
                prop_assert_eq!(parts.iter().map(Chunk::rows).sum::<u64>(), job.tokens());
                let mut next = vec![0; lengths.len()];
                let mut pieces: Vec<Piece> = parts.iter().flat_map(|c| c.pieces.clone()).collect();
                pieces.sort_by_key(|piece| (piece.sequence, piece.first));
                for piece in pieces {
                    prop_assert_eq!(piece.first, next[piece.sequence as usize]);
                    prop_assert!(u64::from(piece.first) % BLOCK == 0);
                    next[piece.sequence as usize] += piece.rows;
                }
            }
            let even = job.tokens().div_ceil(chunks.min(job.tokens().div_ceil(BLOCK)));
            let largest = cut(&job, chunks).iter().map(Chunk::rows).max().unwrap_or(0);
            let more = BLOCK.min(job.longest());
            prop_assert!(largest <= even + more, "{largest} rows, {even} would be even");
        }
    }
}
