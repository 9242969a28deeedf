//! Dropout on an adapter's input, keyed so that company, place and resume cannot show.
//!
//! The mask of element (row, column) is a function of the job's seed, the optimizer step, the sequence's number
//! within the step, the site, and the element's place within the sequence: each has bits of its own in the counter, so that no
//! two elements of a job share a number (`DR-1`). Kept inputs are multiplied by
//! 1 / (1 - share).

use shared::random::{Domain, Stream};

use super::pass::Pass;
use crate::batch::{JobSlice, SequenceSlice};

/// One job's dropout at one site.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drop {
    pub(super) seed: u64,
    pub(super) share: f32,
    /// layer * 7 + projection; the LM head follows the last layer.
    pub(super) site: u32,
    pub(super) step: u64,
}

impl Drop {
    /// Masks and rescales consecutive elements of one sequence, the first of which is number `first`.
    fn elements(&self, sequence: &SequenceSlice, first: usize, values: &mut [f32]) {
        let keep = 1.0 / (1.0 - self.share);
        let mut rest = values;
        let mut element = first as u64;
        // A stream has 2^32 elements; few sequences need two of them.
        while !rest.is_empty() {
            let (place, from) = self.counter(sequence.number, element);
            let left = (1 << u32::BITS) - u64::from(from);
            let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at_mut(here);
            let stream = Stream::new(self.seed, Domain::Dropout, place);
            for (offset, value) in (0u32..).zip(now) {
                let dropped = stream.uniform(from + offset) < self.share;
                *value = if dropped { 0.0 } else { *value * keep };
            }
            element += here as u64;
            rest = later;
        }
    }

    /// The place of the stream of an element of a sequence, and its number there.
    ///
    /// A place has 32 bits for the step (a job has at most 10^9) and the sequence's number each, 16 for the site (a model has
    /// at most 1024 layers) and 16 for what an element has above 32.
    fn counter(&self, sequence: u32, element: u64) -> ([u32; 3], u32) {
        debug_assert!(self.site >> SITE_BITS == 0 && element >> (u32::BITS + SITE_BITS) == 0);
        let above = (element >> u32::BITS) as u32;
        let site = self.site | (above << SITE_BITS);
        ([site, sequence, self.step as u32], element as u32)
    }
}

/// Bits of a site's number.
const SITE_BITS: u32 = 16;

/// Masks and rescales one job's rows in place; `rows` is `(job rows, width)`.
///
/// Linear in its input, so it is its own reverse.
pub(super) fn apply(pass: &Pass<'_>, job: &JobSlice, drop: &Drop, rows: &mut [f32], width: usize) {
    let mut rest = rows;
    for sequence in sequences(pass, job) {
        let (own, after) = rest.split_at_mut(sequence.rows.len() * width);
        rest = after;
        drop.elements(sequence, sequence.start * width, own);
    }
}

/// The same for chosen rows of the job, ascending rows of the batch; `values` is `(chosen, width)`.
///
/// # Panics
/// When a row is not the job's.
pub(super) fn apply_chosen(
    pass: &Pass<'_>,
    job: &JobSlice,
    drop: &Drop,
    chosen: &[usize],
    values: &mut [f32],
    width: usize,
) {
    let mut own = sequences(pass, job).peekable();
    for (&row, values) in chosen.iter().zip(values.chunks_mut(width)) {
        while own.next_if(|sequence| sequence.rows.end <= row).is_some() {}
        let sequence = own.peek().expect("a job's rows lie in its sequences");
        let place = sequence.start + row - sequence.rows.start;
        drop.elements(sequence, place * width, values);
    }
}

fn sequences<'a>(pass: &'a Pass<'_>, job: &'a JobSlice) -> impl Iterator<Item = &'a SequenceSlice> {
    let all = pass.batch.sequences.iter();
    all.filter(|sequence| job.rows.contains(&sequence.rows.start))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(site: u32, step: u64) -> Drop {
        Drop {
            seed: 7,
            share: 0.5,
            site,
            step,
        }
    }

    proptest! {
        /// Each part is read back from the counter, so that no two elements have the same. DR-1
        #[test]
        fn no_counter_comes_twice_dr_1(
            site in 0..1024u32 * 7 + 1,
            step in 0..1_000_000_000u64,
            sequence in any::<u32>(),
            element in prop_oneof![0..1u64 << 36, (1u64 << 32) - 8..(1 << 32) + 8],
        ) {
            let ([place, number, taken], low) = at(site, step).counter(sequence, element);
            prop_assert_eq!(place & 0xffff, site);
            prop_assert_eq!((u64::from(place >> 16) << 32) | u64::from(low), element);
            prop_assert_eq!((number, u64::from(taken)), (sequence, step));
            let others = [element, element ^ (1 << 32), element ^ (1 << 35)];
            let counters: BTreeSet<_> =
                others.map(|element| at(site, step).counter(sequence, element)).into();
            prop_assert_eq!(counters.len(), 3);
        }
    }

    /// Elements on both sides of 2^32 have the numbers of their own counters, however a run is cut.
    #[test]
    fn a_run_goes_on_beyond_the_end_of_a_stream() {
        let sequence = SequenceSlice {
            rows: 0..1,
            job: 0,
            number: 3,
            start: 0,
        };
        let drop = at(5, 2);
        let first = (1usize << 32) - 100;
        let mut whole = vec![1.0; 200];
        drop.elements(&sequence, first, &mut whole);
        let mut cut = vec![1.0; 200];
        let (head, tail) = cut.split_at_mut(37);
        drop.elements(&sequence, first, head);
        drop.elements(&sequence, first + 37, tail);
        assert_eq!(whole, cut);
        let mut start = vec![1.0; 100];
        drop.elements(&sequence, 0, &mut start);
        assert_ne!(whole[100..], start, "the mask began again");
    }
}
