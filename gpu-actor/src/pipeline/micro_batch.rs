//! What a stage must know of a micro-batch before it comes.

use super::{MicroBatchNumber, Slot};

/// A job's rows in a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The job's adapter.
    pub slot: Slot,
    /// Optimizer step that the rows belong to: so many were taken before.
    pub step: u64,
    /// Whether the step has no rows after these.
    pub last: bool,
}

/// What a stage must know of a micro-batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// One more than that of the micro-batch planned before.
    pub number: MicroBatchNumber,
    /// Bytes that backward needs of forward on this stage.
    pub bytes: u64,
    /// Bytes needed only while it is computed, in one place for all micro-batches: a tape that is made again.
    pub passing: u64,
    /// Whether it comes back; evaluations and samples only go forward, and nothing is kept of them.
    pub trains: bool,
    /// The jobs in it.
    pub shares: Vec<Share>,
    /// Its part of a sequence that is cut.
    pub part: Part,
}

/// Whether a micro-batch is a chunk of a sequence, which goes right behind the chunk before and comes back before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// A chunk is before it.
    pub follows: bool,
    /// A chunk is behind it.
    pub goes_on: bool,
}

/// Bytes that these need when they are held together; one at a time is computed.
pub(super) fn bytes<'a>(held: impl Iterator<Item = &'a MicroBatch>) -> u64 {
    let (mut kept, mut passing) = (0_u64, 0);
    for micro_batch in held {
        kept = kept.saturating_add(micro_batch.bytes);
        passing = micro_batch.passing.max(passing);
    }
    kept.saturating_add(passing)
}
