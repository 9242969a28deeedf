//! Fills passes with the sequences of many jobs, one after another, with no padding.
//!
//! Sequences go in the order of the jobs and of each job's step; a pass is closed when the next sequence would
//! exceed the budget (a longer sequence gets a pass of its own). So at most one job is ever open between passes,
//! and a job's blocks arrive in its own order. Where passes are cut changes no result.
//!
//! A sequence of more rows than a chunk may have goes in several passes of its own, one behind another, with keys and
//! values carried (`stage/chunks.rs`).
//!
//! One device runs fastest on full passes. In a pipeline a pass waits for the steps of all jobs in it, so a job that
//! is spread over more passes than it needs makes its neighbours wait: there a job begins a pass of its own unless all
//! of it fits behind the ones before ([`Cut::BetweenJobs`]).

mod arranged;

use std::ops::Range;

use data::rows::TokenRow;
use shared::plan::arrangement::Arrangement;

pub use self::arranged::arranged;
use crate::batch::{BLOCK, Batch, JobEntry, block_count};

/// One job's sequences to be passed, in the order of its step.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The adapter's place in the bank.
    pub slot: usize,
    /// Virtual tokens that take rows.
    pub prompt_tokens: usize,
    /// Virtual tokens that take positions only.
    pub prefix_tokens: usize,
    /// Optimizer step.
    pub step: u64,
    /// The sequences of the step.
    pub rows: Vec<&'a TokenRow>,
    /// Which of them pass now; none: all. Those before passed in earlier turns, those behind pass in later ones.
    pub part: Option<Range<usize>>,
}

impl Request<'_> {
    /// Tokens that count in the loss, over all sequences.
    #[must_use]
    pub fn trained_tokens(&self) -> u64 {
        self.rows.iter().map(|row| row.trained() as u64).sum()
    }

    /// The sequences that pass now.
    #[must_use]
    pub fn run(&self) -> Range<usize> {
        self.part.clone().unwrap_or(0..self.rows.len())
    }

    /// Rows of each sequence that passes now.
    pub fn passing(&self) -> impl Iterator<Item = usize> + '_ {
        self.run().map(|at| self.length(at))
    }

    /// Blocks of a run of its sequences.
    #[must_use]
    pub fn blocks(&self, run: Range<usize>) -> u64 {
        let rows = self.rows[run].iter();
        rows.map(|row| block_count(row.ids.len(), self.prompt_tokens))
            .sum()
    }

    /// Rows of one of its sequences.
    fn length(&self, at: usize) -> usize {
        self.rows[at].ids.len() + self.prompt_tokens
    }

    /// Rows of each sequence of the step.
    #[must_use]
    pub fn lengths(&self) -> Vec<usize> {
        let all = 0..self.rows.len();
        all.map(|at| self.length(at)).collect()
    }
}

/// Where a pass may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Behind any sequence: passes are as full as can be.
    Anywhere,
    /// Behind the last sequence of a job, where a job that is larger than a pass begins one.
    BetweenJobs,
}

/// How large passes are, and where they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Most rows of a pass of whole sequences; one that is longer, and is not cut, has a pass of its own.
    pub budget: usize,
    /// Most rows of a chunk: longer sequences are cut.
    pub chunk: usize,
    /// Where passes may end.
    pub cut: Cut,
}

impl Size {
    /// The same within an arrangement's bounds on rows.
    #[must_use]
    pub fn within<Job>(self, arrangement: &Arrangement<Job>) -> Self {
        let least = |own: usize, other: Option<u64>| {
            let other = other.and_then(|rows| usize::try_from(rows).ok());
            other.map_or(own, |other| own.min(other.max(1)))
        };
        Self {
            budget: least(self.budget, arrangement.pass_rows),
            chunk: least(self.chunk, arrangement.chunk_rows),
            ..self
        }
    }

    /// Rows of a chunk of a request's sequences: whole blocks, and the first has all virtual rows.
    fn chunk_of(&self, request: &Request<'_>) -> usize {
        chunk_rows(self.chunk, request.prompt_tokens)
    }
}

/// Most rows of a chunk of sequences behind so many virtual rows, when it should have no more than `chunk`.
pub(super) fn chunk_rows(chunk: usize, prompt_tokens: usize) -> usize {
    let rows = chunk.max(prompt_tokens).max(BLOCK);
    rows.checked_next_multiple_of(BLOCK).unwrap_or(usize::MAX)
}

/// Cuts the requests into batches of at most `budget` rows; sequences stay whole.
///
/// ```
/// use data::rows::TokenRow;
/// use gpu_actor::train::pack::{passes, Cut, Request};
///
/// let rows = [3, 5, 2].map(|length| TokenRow::new(vec![1; length], vec![1; length]));
/// let request = Request {
///     slot: 0,
///     prompt_tokens: 0,
///     prefix_tokens: 0,
///     step: 0,
///     rows: rows.iter().collect(),
///     part: None,
/// };
/// let sizes: Vec<usize> = passes(&[request], 8, Cut::Anywhere)
///     .iter()
///     .map(|batch| batch.rows())
///     .collect();
/// assert_eq!(sizes, [8, 2]);
/// ```
#[must_use]
pub fn passes(requests: &[Request<'_>], budget: usize, cut: Cut) -> Vec<Batch> {
    let chunk = usize::MAX;
    let size = Size { budget, chunk, cut };
    cut_passes(requests, size)
}

/// Cuts the requests into batches of at most `budget` rows, and sequences that are longer than a chunk into chunks.
///
/// ```
/// use data::rows::TokenRow;
/// use gpu_actor::train::pack::{Cut, Request, Size, chains, cut_passes};
///
/// let rows = [30, 200, 5].map(|length| TokenRow::new(vec![1; length], vec![1; length]));
/// let request = Request {
///     slot: 0,
///     prompt_tokens: 0,
///     prefix_tokens: 0,
///     step: 0,
///     rows: rows.iter().collect(),
///     part: None,
/// };
/// let size = Size {
///     budget: 100,
///     chunk: 100,
///     cut: Cut::Anywhere,
/// };
/// let passes = cut_passes(&[request], size);
/// let rows: Vec<usize> = passes.iter().map(|batch| batch.rows()).collect();
/// assert_eq!(rows, [30, 128, 72, 5]);
/// assert_eq!(chains(&passes).count(), 3);
/// ```
#[must_use]
pub fn cut_passes(requests: &[Request<'_>], size: Size) -> Vec<Batch> {
    let mut packer = Packer::default();
    for request in requests {
        packer.add(request, request.run(), true, size);
    }
    packer.done()
}

/// Passes that go forward one after another and come back in reverse: the chunks of a sequence, else single ones.
pub fn chains(passes: &[Batch]) -> impl Iterator<Item = &[Batch]> {
    passes.chunk_by(|_, next| next.follows())
}

/// Cuts a run of one request's sequences into batches: a shard. The step does not end with any of them.
#[must_use]
pub fn shard(request: &Request<'_>, run: Range<usize>, size: Size) -> Vec<Batch> {
    let mut packer = Packer::default();
    packer.add(request, run, false, size);
    packer.done()
}

#[derive(Default)]
struct Packer {
    done: Vec<Batch>,
    open: Batch,
}

impl Packer {
    fn add(&mut self, request: &Request<'_>, run: Range<usize>, ends: bool, size: Size) {
        let trained_tokens = request.trained_tokens();
        let fits = fill(request, run.clone(), self.open.rows(), size) == run.end;
        if size.cut == Cut::BetweenJobs && !fits {
            self.close();
        }
        let chunk = size.chunk_of(request);
        let (mut first_block, mut from) = (request.blocks(0..run.start), run.start);
        while from < run.end {
            let long = request.length(from) > chunk;
            let to = match long {
                true => from + 1,
                false => fill(request, from..run.end, self.open.rows(), size),
            };
            if to == from || (long && self.open.rows() > 0) {
                self.close();
                continue;
            }
            let entry = JobEntry {
                slot: request.slot,
                prompt_tokens: request.prompt_tokens,
                prefix_tokens: request.prefix_tokens,
                first_block,
                first_sequence: from as u32,
                last: ends && to == request.rows.len(),
                step: request.step,
                trained_tokens,
            };
            self.open.push(entry, &request.rows[from..to]);
            if long {
                let whole = std::mem::take(&mut self.open);
                self.done.extend(whole.into_chunks(chunk));
            }
            first_block += request.blocks(from..to);
            from = to;
        }
    }

    fn close(&mut self) {
        if self.open.rows() > 0 {
            self.done.push(std::mem::take(&mut self.open));
        }
    }

    fn done(mut self) -> Vec<Batch> {
        self.close();
        self.done
    }
}

/// End of the run of whole sequences from the start of `run` that fits behind `used` rows; at least one when the pass is
/// empty and it is not to be cut.
fn fill(request: &Request<'_>, run: Range<usize>, used: usize, size: Size) -> usize {
    let chunk = size.chunk_of(request);
    let (mut rows, mut to) = (used, run.start);
    while to < run.end {
        let more = request.length(to);
        if more > chunk || (rows + more > size.budget && rows > 0) {
            break;
        }
        rows += more;
        to += 1;
    }
    to
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::batch::VIRTUAL;

    fn row(length: usize) -> TokenRow {
        TokenRow::new(vec![1; length], vec![1; length])
    }

    #[test]
    fn bounds_of_an_arrangement_make_passes_smaller_and_never_larger() {
        let size = Size {
            budget: 500,
            chunk: 100,
            cut: Cut::Anywhere,
        };
        let within = |pass_rows, chunk_rows| {
            let arrangement = Arrangement::<usize> {
                buckets: Vec::new(),
                pass_rows,
                chunk_rows,
                ahead: Vec::new(),
                turn_rows: None,
            };
            let size = size.within(&arrangement);
            (size.budget, size.chunk)
        };
        assert_eq!(within(None, None), (500, 100));
        assert_eq!(within(Some(64), Some(128)), (64, 100));
        assert_eq!(within(Some(u64::MAX), Some(0)), (500, 1));
    }

    #[test]
    fn every_sequence_is_passed_once_and_in_order() {
        let rows: Vec<TokenRow> = [5, 70, 3, 200, 9, 1, 64].into_iter().map(row).collect();
        let request = |slot| Request {
            slot,
            prompt_tokens: 2,
            prefix_tokens: 0,
            step: 0,
            rows: rows.iter().collect(),
            part: None,
        };
        let ways = [Cut::Anywhere, Cut::BetweenJobs];
        let each = |budget| ways.map(|cut| (budget, cut));
        for (budget, cut) in [1, 10, 80, 100, 1000].into_iter().flat_map(each) {
            let passes = passes(&[request(0), request(1)], budget, cut);
            for slot in 0..2 {
                let slices: Vec<_> = passes
                    .iter()
                    .flat_map(|p| &p.jobs)
                    .filter(|j| j.slot == slot)
                    .collect();
                let mut block = 0;
                for slice in &slices {
                    assert_eq!(slice.first_block, block, "budget {budget}");
                    block += slice.blocks.len() as u64;
                }
                assert_eq!(slices.iter().filter(|s| s.last).count(), 1);
                assert!(slices.last().is_some_and(|s| s.last));
            }
            let rows_in: usize = passes.iter().map(Batch::rows).sum();
            assert_eq!(rows_in, 2 * (5 + 70 + 3 + 200 + 9 + 1 + 64 + 7 * 2));
            assert!(
                passes
                    .iter()
                    .all(|p| p.rows() <= budget || p.sequences.len() == 1)
            );
        }
    }

    proptest! {
        /// No row is computed twice, and none is a pad: the rows of all passes are those of the sequences.
        #[test]
        fn long_sequences_are_cut_where_blocks_end(
            lengths in prop::collection::vec(1..900usize, 1..8),
            prompt in 0..150usize,
            budget in 1..400usize,
            chunk in 1..400usize,
            between in any::<bool>(),
        ) {
            let rows: Vec<TokenRow> = lengths.iter().map(|&length| row(length)).collect();
            let request = |slot| Request {
                slot,
                prompt_tokens: prompt,
                prefix_tokens: 0,
                step: 0,
                rows: rows.iter().collect(),
                part: None,
            };
            let cut = if between { Cut::BetweenJobs } else { Cut::Anywhere };
            let size = Size { budget, chunk, cut };
            let requests = [request(0), request(1)];
            let (most, passes) = (size.chunk_of(&requests[0]), cut_passes(&requests, size));
            let total: usize = lengths.iter().map(|length| length + prompt).sum();
            prop_assert_eq!(passes.iter().map(Batch::rows).sum::<usize>(), 2 * total, "no waste");
            for slot in 0..2 {
                let mut slices = passes.iter().flat_map(|p| &p.jobs).filter(|j| j.slot == slot);
                let mut block = 0;
                for slice in slices.by_ref() {
                    prop_assert_eq!(slice.first_block, block);
                    block += slice.blocks.len() as u64;
                }
                prop_assert_eq!(block, requests[0].blocks(0..lengths.len()));
            }
            let (mut lasts, mut closes) = ([0; 2], [0; 2]);
            for chain in chains(&passes) {
                let mut at = 0;
                for (index, batch) in chain.iter().enumerate() {
                    prop_assert_eq!(batch.fault(10), None);
                    prop_assert_eq!(batch.cut.is_some(), chain.len() > 1);
                    if let Some(piece) = batch.chunk() {
                        prop_assert!(batch.rows() <= most && piece.start == at);
                        let prompted = batch.tokens.iter().filter(|&token| token & VIRTUAL != 0);
                        let own = if piece.follows() { 0 } else { prompt };
                        prop_assert_eq!(prompted.count(), own, "the first has all virtual rows");
                        prop_assert_eq!(piece.ends(), index + 1 == chain.len());
                        at += piece.rows;
                    } else {
                        prop_assert!(batch.rows() <= budget || batch.sequences.len() == 1);
                        prop_assert!(batch.sequences.iter().all(|s| s.rows.len() <= most));
                    }
                }
                // Losses are complete with the last that goes, gradients with the last that comes back.
                for (batch, back) in chain.iter().zip(chain.iter().rev()) {
                    for job in &batch.jobs {
                        prop_assert_eq!(lasts[job.slot], 0);
                        lasts[job.slot] += usize::from(job.last);
                    }
                    for job in &back.jobs {
                        prop_assert_eq!(closes[job.slot], 0);
                        closes[job.slot] += usize::from(job.closes);
                    }
                }
            }
            prop_assert_eq!((lasts, closes), ([1; 2], [1; 2]));
        }
    }

    #[test]
    fn between_jobs_a_job_is_in_no_more_passes_than_it_needs() {
        let rows: Vec<TokenRow> = [30, 30, 20].into_iter().map(row).collect();
        let request = |slot| Request {
            slot,
            prompt_tokens: 0,
            prefix_tokens: 0,
            step: 0,
            rows: rows.iter().collect(),
            part: None,
        };
        let requests: Vec<_> = (0..4).map(request).collect();
        let slots = |budget, cut| -> Vec<Vec<usize>> {
            let slots = |batch: &Batch| batch.jobs.iter().map(|job| job.slot).collect();
            passes(&requests, budget, cut).iter().map(slots).collect()
        };
        assert_eq!(slots(110, Cut::Anywhere), [[0, 1], [1, 2], [2, 3]]);
        assert_eq!(slots(110, Cut::BetweenJobs), [[0], [1], [2], [3]]);
        assert_eq!(slots(160, Cut::BetweenJobs), [[0, 1], [2, 3]]);
    }
}
