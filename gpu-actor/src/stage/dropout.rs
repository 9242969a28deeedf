//! Dropout on an adapter's input, keyed so that company, place and resume cannot show (contract rule 4).
//!
//! The mask of element (row, column) is a function of the job's seed, the optimizer step, the sequence's number
//! within the step, the site, and the element's place within the sequence. Kept inputs are multiplied by
//! 1 / (1 - share).

use shared::random::{Domain, Stream};

use super::pass::Pass;
use crate::batch::JobSlice;

/// One job's dropout at one site.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drop {
    pub(super) seed: u64,
    pub(super) share: f32,
    /// layer * 7 + projection.
    pub(super) site: u32,
    pub(super) step: u64,
}

/// Masks and rescales one job's rows in place; `rows` is `(job rows, width)`.
///
/// Linear in its input, so it is its own reverse.
pub(super) fn apply(pass: &Pass<'_>, job: &JobSlice, drop: &Drop, rows: &mut [f32], width: usize) {
    let keep = 1.0 / (1.0 - drop.share);
    let mut rest = rows;
    for sequence in pass
        .batch
        .sequences
        .iter()
        .filter(|s| job.rows.contains(&s.rows.start))
    {
        let (own, after) = rest.split_at_mut(sequence.rows.len() * width);
        rest = after;
        // Steps beyond 2^32 would repeat masks; no job lives that long.
        let place = [drop.site, sequence.number, drop.step as u32];
        let stream = Stream::new(drop.seed, Domain::Dropout, place);
        let first = sequence.start * width;
        for (offset, value) in own.iter_mut().enumerate() {
            let dropped = stream.uniform((first + offset) as u32) < drop.share;
            *value = if dropped { 0.0 } else { *value * keep };
        }
    }
}
