//! Fills passes with the sequences of many jobs, one after another, with no padding.
//!
//! Sequences go in the order of the jobs and of each job's step; a pass is closed when the next sequence would
//! exceed the budget (a longer sequence gets a pass of its own). So at most one job is ever open between passes,
//! and a job's blocks arrive in its own order. Where passes are cut changes no result.
//!
//! One device runs fastest on full passes. In a pipeline a pass waits for the steps of all jobs in it, so a job that
//! is spread over more passes than it needs makes its neighbours wait: there a job begins a pass of its own unless all
//! of it fits behind the ones before ([`Cut::BetweenJobs`]).

use std::ops::Range;

use data::rows::TokenRow;

use crate::batch::{Batch, JobEntry, block_count};

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
    /// The sequences.
    pub rows: Vec<&'a TokenRow>,
}

impl Request<'_> {
    /// Tokens that count in the loss, over all sequences.
    #[must_use]
    pub fn trained_tokens(&self) -> u64 {
        self.rows.iter().map(|row| row.trained() as u64).sum()
    }

    /// Blocks of a run of its sequences.
    #[must_use]
    pub fn blocks(&self, run: Range<usize>) -> u64 {
        let rows = self.rows[run].iter();
        rows.map(|row| block_count(row.ids.len(), self.prompt_tokens))
            .sum()
    }

    /// Rows of each of its sequences.
    #[must_use]
    pub fn lengths(&self) -> Vec<usize> {
        let rows = self.rows.iter();
        rows.map(|row| row.ids.len() + self.prompt_tokens).collect()
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

/// Cuts the requests into batches of at most `budget` rows.
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
/// };
/// let sizes: Vec<usize> = passes(&[request], 8, Cut::Anywhere)
///     .iter()
///     .map(|batch| batch.rows())
///     .collect();
/// assert_eq!(sizes, [8, 2]);
/// ```
#[must_use]
pub fn passes(requests: &[Request<'_>], budget: usize, cut: Cut) -> Vec<Batch> {
    let mut packer = Packer::default();
    for request in requests {
        packer.add(request, 0..request.rows.len(), true, (budget, cut));
    }
    packer.done()
}

/// Cuts a run of one request's sequences into batches: a shard. The step does not end with any of them.
#[must_use]
pub fn shard(request: &Request<'_>, run: Range<usize>, budget: usize) -> Vec<Batch> {
    let mut packer = Packer::default();
    packer.add(request, run, false, (budget, Cut::Anywhere));
    packer.done()
}

#[derive(Default)]
struct Packer {
    done: Vec<Batch>,
    open: Batch,
}

impl Packer {
    fn add(
        &mut self,
        request: &Request<'_>,
        run: Range<usize>,
        ends: bool,
        (budget, cut): (usize, Cut),
    ) {
        let trained_tokens = request.trained_tokens();
        let fits = fill(request, run.clone(), self.open.rows(), budget) == run.end;
        if cut == Cut::BetweenJobs && self.open.rows() > 0 && !fits {
            self.done.push(std::mem::take(&mut self.open));
        }
        let (mut first_block, mut from) = (request.blocks(0..run.start), run.start);
        while from < run.end {
            let to = fill(request, from..run.end, self.open.rows(), budget);
            if to == from {
                self.done.push(std::mem::take(&mut self.open));
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
            first_block += request.blocks(from..to);
            from = to;
        }
    }

    fn done(mut self) -> Vec<Batch> {
        if self.open.rows() > 0 {
            self.done.push(self.open);
        }
        self.done
    }
}

/// End of the run of sequences from the start of `run` that fits behind `used` rows; at least one when the pass is
/// empty.
fn fill(request: &Request<'_>, run: Range<usize>, used: usize, budget: usize) -> usize {
    let (mut rows, mut to) = (used, run.start);
    while let Some(row) = request.rows[..run.end].get(to) {
        let more = row.ids.len() + request.prompt_tokens;
        if rows + more > budget && rows > 0 {
            break;
        }
        rows += more;
        to += 1;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(length: usize) -> TokenRow {
        TokenRow::new(vec![1; length], vec![1; length])
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
    #[test]
    fn between_jobs_a_job_is_in_no_more_passes_than_it_needs() {
        let rows: Vec<TokenRow> = [30, 30, 20].into_iter().map(row).collect();
        let request = |slot| Request {
            slot,
            prompt_tokens: 0,
            prefix_tokens: 0,
            step: 0,
            rows: rows.iter().collect(),
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
