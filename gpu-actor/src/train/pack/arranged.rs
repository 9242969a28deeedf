//! Passes by an arrangement: jobs of one hybrid task share passes, each with a part of its step, in the template's order.
//!
//! **Parts.** A job's sequences lie one after another, `total` rows in all. Of C parts, part k has the sequences whose
//! middle row is one of the rows `k total / C .. (k+1) total / C`: so parts are runs of whole sequences, and no further
//! from even than half of the longest on either side. Some may be empty. The planner also cuts sequences where a part
//! ends (`align`); here a sequence is only cut when it is longer than a chunk, since what is cut runs forward twice, and its
//! chunks pass alone, in the unit of the part that it belongs to.
//!
//! **Passes.** Part k of all jobs of a hybrid task is one pass. Where that would have more rows than a pass may, it is
//! several. Of a step that is spread over turns, a part has those of its sequences that pass now: passes stay as large.
//!
//! - `PK-1` Every sequence passes once, and a job's blocks go forward in the job's order.
//! - `PK-2` Jobs that are not arranged have the passes that they would have alone, behind all others.

use std::collections::BTreeMap;
use std::ops::Range;

use shared::plan::arrangement::Arrangement;

use super::{Cut, Packer, Request, Size, cut_passes};
use crate::batch::Batch;

/// Cuts the requests that are arranged as the arrangement says, into passes of at most `size.budget` rows; then the
/// others as [`cut_passes`] does, with `rest` giving the most rows of a pass of theirs from how many they have. Bounds on
/// rows of the arrangement hold for both.
#[must_use]
pub fn arranged(
    requests: &[Request<'_>],
    arrangement: &Arrangement<usize>,
    size: Size,
    rest: impl FnOnce(usize) -> usize,
) -> Vec<Batch> {
    let mut named = BTreeMap::new();
    for task in arrangement.hybrid_tasks() {
        let of = |slot: &usize| requests.iter().find(|request| request.slot == *slot);
        for request in task.jobs.iter().filter_map(of) {
            let count = task.parts.max(1) as usize;
            let cut = || (request, parts_now(request, count));
            named.entry(request.slot).or_insert_with(cut);
        }
    }
    let size = size.within(arrangement);
    let cut = Cut::Anywhere;
    let own = Size { cut, ..size };
    let mut packer = Packer::default();
    for (task, part) in arrangement.units() {
        for slot in &task.jobs {
            // Taken out, so that a job that is arranged twice passes once. PK-1
            let run = named
                .get_mut(slot)
                .and_then(|(request, parts)| Some((*request, take(parts, part as usize)?)));
            if let Some((request, run)) = run {
                packer.add(request, run, true, own);
            }
        }
        packer.close();
    }
    let mut passes = packer.done();
    let others = requests.iter();
    let others = others.filter(|request| !named.contains_key(&request.slot));
    let others: Vec<Request<'_>> = others.cloned().collect();
    let rows = others.iter().flat_map(Request::passing).sum();
    let size = Size {
        budget: rest(rows).min(size.budget),
        ..size
    };
    passes.extend(cut_passes(&others, size));
    passes
}

/// Takes a part out; what is left there is empty.
fn take(parts: &mut [Range<usize>], part: usize) -> Option<Range<usize>> {
    let run = parts.get_mut(part)?;
    Some(std::mem::take(run)).filter(|run| !run.is_empty())
}

/// Parts of a request's whole step, with what passes now.
fn parts_now(request: &Request<'_>, count: usize) -> Vec<Range<usize>> {
    let now = request.run();
    let within = |part: Range<usize>| {
        let (start, end) = (part.start.max(now.start), part.end.min(now.end));
        start..end.max(start)
    };
    let parts = parts(&request.lengths(), count).into_iter();
    parts.map(within).collect()
}

/// Cuts sequences, by their rows, into so many runs.
fn parts(lengths: &[usize], count: usize) -> Vec<Range<usize>> {
    let total = lengths.iter().map(|&rows| rows as u128).sum::<u128>();
    let mut runs = vec![0..0; count];
    let mut before = 0u128;
    for (at, &rows) in lengths.iter().enumerate() {
        let middle = 2 * before + rows as u128;
        let part = middle * count as u128 / (2 * total).max(1);
        let part = usize::try_from(part).unwrap_or(count).min(count - 1);
        if runs[part].is_empty() {
            runs[part].start = at;
        }
        runs[part].end = at + 1;
        before += rows as u128;
    }
    runs
}

#[cfg(test)]
mod tests {
    use data::rows::TokenRow;
    use proptest::prelude::*;
    use shared::plan::arrangement::HybridTask;

    use super::*;
    use crate::train::pack::chains;

    fn row(length: usize) -> TokenRow {
        TokenRow::new(vec![1; length], vec![1; length])
    }

    /// The order in which sequences pass: slot, and number within the step.
    fn order(passes: &[Batch]) -> Vec<(usize, u32)> {
        let of = |batch: &Batch| -> Vec<(usize, u32)> {
            let whole = batch
                .sequences
                .iter()
                .filter(|sequence| sequence.start == 0);
            whole
                .map(|sequence| (batch.jobs[sequence.job].slot, sequence.number))
                .collect()
        };
        passes.iter().flat_map(of).collect()
    }

    #[test]
    fn parts_are_as_even_as_sequences_allow() {
        assert_eq!(parts(&[64; 4], 2), [0..2, 2..4]);
        assert_eq!(parts(&[500, 10, 10], 2), [0..1, 1..3]);
        assert_eq!(parts(&[5], 3), [0..0, 0..1, 0..0]);
        assert_eq!(parts(&[10, 20, 30, 40], 1).first(), Some(&(0..4)));
        assert_eq!(parts(&[0, 0], 2), [0..2, 0..0]);
    }

    #[test]
    fn passes_enter_in_the_order_of_the_template() {
        let rows: Vec<TokenRow> = [40; 4].into_iter().map(row).collect();
        let requests: Vec<Request<'_>> = (0..5)
            .map(|slot| Request {
                slot,
                prompt_tokens: 0,
                prefix_tokens: 0,
                step: 0,
                rows: rows.iter().collect(),
                part: None,
            })
            .collect();
        let task = |jobs: &[usize], parts| HybridTask {
            jobs: jobs.to_vec(),
            parts,
        };
        let arrangement = Arrangement {
            // Slot 9 left meanwhile; nobody knows of slot 1 yet.
            buckets: vec![
                vec![task(&[4, 9, 0], 2), task(&[3], 2)],
                vec![task(&[2], 2)],
            ],
            ..Arrangement::default()
        };
        let size = Size {
            budget: 1000,
            chunk: 1000,
            cut: Cut::BetweenJobs,
        };
        let slots = |size| -> Vec<Vec<usize>> {
            let passes = arranged(&requests, &arrangement, size, |_| 1000);
            let slots = |batch: &Batch| batch.jobs.iter().map(|job| job.slot).collect();
            passes.iter().map(slots).collect()
        };
        let expected = [
            vec![4, 0],
            vec![3],
            vec![4, 0],
            vec![3],
            vec![2],
            vec![2],
            vec![1],
        ];
        assert_eq!(slots(size), expected);
        // A bound of the first stage's own cuts a pass, and no other order comes of it.
        let small = Size {
            budget: 100,
            ..size
        };
        let expected = [
            vec![4],
            vec![0],
            vec![3],
            vec![4],
            vec![0],
            vec![3],
            vec![2],
            vec![2],
            vec![1],
            vec![1],
        ];
        assert_eq!(slots(small), expected);
    }

    #[test]
    fn a_job_that_is_arranged_twice_passes_once() {
        let rows = [row(5), row(6)];
        let request = Request {
            slot: 0,
            prompt_tokens: 0,
            prefix_tokens: 0,
            step: 0,
            rows: rows.iter().collect(),
            part: None,
        };
        let twice = |parts| HybridTask {
            jobs: vec![0, 0],
            parts,
        };
        let arrangement = Arrangement {
            buckets: vec![vec![twice(2), twice(3)]],
            ..Arrangement::default()
        };
        let size = Size {
            budget: 1000,
            chunk: 1000,
            cut: Cut::Anywhere,
        };
        let passes = arranged(&[request], &arrangement, size, |_| 1000);
        assert_eq!(order(&passes), [(0, 0), (0, 1)]);
    }

    proptest! {
        #[test]
        fn pk_1_pk_2_every_sequence_passes_once_and_in_the_jobs_order(
            jobs in prop::collection::vec(prop::collection::vec(1..300usize, 1..8), 1..7),
            tasks in prop::collection::vec((1..6u32, 0..3usize), 4),
            of in prop::collection::vec(0..6usize, 7),
            prompt in 0..80usize,
            (budget, chunk) in (1..500usize, 1..400usize),
            (pass_rows, chunk_rows) in (prop::option::of(0..500u64), prop::option::of(0..500u64)),
        ) {
            let rows: Vec<Vec<TokenRow>> = jobs
                .iter()
                .map(|lengths| lengths.iter().map(|&length| row(length)).collect())
                .collect();
            let mut requests = Vec::new();
            for (slot, rows) in rows.iter().enumerate() {
                requests.push(Request {
                    slot,
                    prompt_tokens: prompt,
                    prefix_tokens: 0,
                    step: 0,
                    rows: rows.iter().collect(),
                    part: None,
                });
            }
            let mut buckets = vec![Vec::new(); 3];
            for (number, (parts, bucket)) in tasks.iter().enumerate() {
                // Jobs of tasks 4 and 5 are not arranged.
                let jobs = (0..requests.len()).filter(|slot| of[*slot] == number).collect();
                buckets[*bucket].push(HybridTask { jobs, parts: *parts });
            }
            let arrangement = Arrangement { buckets, pass_rows, chunk_rows, ahead: Vec::new(), turn_rows: None };
            let size = Size { budget, chunk, cut: Cut::BetweenJobs };
            let passes = arranged(&requests, &arrangement, size, |_| budget);
            for batch in &passes {
                prop_assert_eq!(batch.fault(10), None);
            }
            let order = order(&passes);
            for (slot, lengths) in jobs.iter().enumerate() {
                let own = order.iter().filter(|(other, _)| *other == slot);
                prop_assert!(own.map(|(_, number)| *number).eq(0..lengths.len() as u32));
            }
            // Losses are complete with the last that goes, gradients with the last that comes back.
            let (mut lasts, mut closes) = (vec![0; jobs.len()], vec![0; jobs.len()]);
            let mut block = vec![0; jobs.len()];
            for chain in chains(&passes) {
                for (batch, back) in chain.iter().zip(chain.iter().rev()) {
                    for job in &batch.jobs {
                        prop_assert_eq!(job.first_block, block[job.slot]);
                        block[job.slot] += job.blocks.len() as u64;
                        prop_assert_eq!(lasts[job.slot], 0);
                        lasts[job.slot] += usize::from(job.last);
                    }
                    for job in &back.jobs {
                        prop_assert_eq!(closes[job.slot], 0);
                        closes[job.slot] += usize::from(job.closes);
                    }
                }
            }
            prop_assert!(lasts.iter().chain(&closes).all(|ends| *ends == 1));
            // PK-2
            let others: Vec<Request<'_>> =
                requests.iter().filter(|r| of[r.slot] >= 4).cloned().collect();
            let least = |own: usize, other: Option<u64>| {
                other.map_or(own, |other| own.min(other.max(1) as usize))
            };
            let bounded = Size {
                budget: least(budget, pass_rows),
                chunk: least(chunk, chunk_rows),
                ..size
            };
            let alone = cut_passes(&others, bounded);
            prop_assert_eq!(&passes[passes.len() - alone.len()..], &alone[..]);
            let none = arranged(&requests, &Arrangement::default(), size, |_| budget);
            prop_assert_eq!(none, cut_passes(&requests, size), "no arrangement");
        }
    }
}
