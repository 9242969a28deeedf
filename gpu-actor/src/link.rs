//! How parcels travel between neighbouring stages: one trait, whatever carries them.
//!
//! A parcel is a [`Chunk`] of values or a [`Word`]. Flow control of chunks is by credit: a side may send so many more
//! than the other has taken; taking one gives its credit back. Words are small and always go. Nothing here blocks, so
//! that two stages that send to each other cannot wait for each other: who has nothing to do waits for the [`bell`]
//! that every arrival, every credit and every end rings.
//!
//! Parcels of one direction arrive in the order in which they were sent. Whatever carries the values of a chunk, its
//! header and all words go by that order, and a parcel is received once all of it is here.

use thiserror::Error;

pub mod bell;
pub mod local;
pub mod quic;
pub mod transit;
pub mod word;

use transit::Transit;
use word::Word;

/// Which way a chunk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Activations, to the stage behind.
    Forward,
    /// Gradients, to the stage before.
    Backward,
}

/// What a receiver must know before it touches the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Number of the plan that both sides follow.
    pub epoch: u64,
    /// The micro-batch.
    pub micro_batch: u64,
    /// Activations or gradients.
    pub direction: Direction,
    /// Tokens of the micro-batch.
    pub rows: usize,
    /// Values of a row.
    pub width: usize,
}

/// A header and its values, `(rows, width)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// What it is.
    pub header: ChunkHeader,
    /// Its values.
    pub values: Vec<f32>,
}

/// What a link carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Parcel {
    /// Values; costs a credit.
    Chunk(Chunk),
    /// Everything else; free.
    Word(Word),
}

/// Says why a parcel did not go or come.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LinkError {
    /// The other side has not taken enough of what was sent before.
    #[error(
        "no credit: the other side has not taken any of the last {credits} chunks; wait for one"
    )]
    NoCredit {
        /// Chunks that may be under way.
        credits: usize,
    },
    /// The other side is gone.
    #[error("the other side closed the link")]
    Closed,
    /// What carries the link failed.
    #[error("the link failed: {reason}")]
    Failed {
        /// The carrier's reason.
        reason: String,
    },
}

/// One end of a link between two stages.
pub trait ChunkLink: Send {
    /// Chunks that may be sent now.
    fn credit(&self) -> usize;

    /// Sends a parcel; a chunk costs one credit.
    ///
    /// # Errors
    /// [`LinkError::NoCredit`] for a chunk when there is none; else when nobody will ever take it.
    fn send(&mut self, parcel: Parcel) -> Result<(), LinkError>;

    /// Takes the next parcel, if one is here; for a chunk the sender gets its credit back.
    ///
    /// # Errors
    /// [`LinkError::Closed`] or [`LinkError::Failed`] when no parcel will come and all that came were taken.
    fn receive(&mut self) -> Result<Option<Parcel>, LinkError>;

    /// Chunks that were on their way, by the carrier's clock, since the last call; none where values do not travel, or
    /// nobody looks.
    fn transits(&mut self) -> Vec<Transit> {
        Vec::new()
    }

    /// Ends the link; the other side finds out once it took all that was sent.
    fn close(&mut self);
}
