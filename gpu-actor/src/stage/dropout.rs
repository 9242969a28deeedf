//! Dropout on an adapter's input, keyed so that company, place and resume cannot show.
//!
//! The mask of element (row, column) is a function of the job's seed, the optimizer step, the sequence's number
//! within the step, the site, and the element's place within the sequence. Kept inputs are multiplied by
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
        // Steps beyond 2^32 would repeat masks; no job lives that long.
        let place = [self.site, sequence.number, self.step as u32];
        let stream = Stream::new(self.seed, Domain::Dropout, place);
        for (offset, value) in values.iter_mut().enumerate() {
            let dropped = stream.uniform((first + offset) as u32) < self.share;
            *value = if dropped { 0.0 } else { *value * keep };
        }
    }
}

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
