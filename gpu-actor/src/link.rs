//! How chunks travel between neighbouring stages: one trait, whatever carries them.
//!
//! Flow control is by credit: a side may send so many chunks more than the other has taken; taking one gives its
//! credit back. Nothing here blocks, so that two stages that send to each other cannot wait for each other: who has
//! nothing to do waits for the [`bell`] that every arrival and every credit rings.

use thiserror::Error;

pub mod bell;
pub mod local;
pub mod quic;

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

/// Says why a chunk did not go or come.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
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
}

/// One end of a link between two stages.
pub trait ChunkLink: Send {
    /// Chunks that may be sent now.
    fn credit(&self) -> usize;

    /// Sends a chunk, at the cost of one credit.
    ///
    /// # Errors
    /// [`LinkError::NoCredit`] when there is none, [`LinkError::Closed`] when nobody will ever take it.
    fn send(&mut self, chunk: Chunk) -> Result<(), LinkError>;

    /// Takes the next chunk, if one is here, and gives the sender its credit back.
    ///
    /// # Errors
    /// [`LinkError::Closed`] when the other side is gone and all that it sent was taken.
    fn receive(&mut self) -> Result<Option<Chunk>, LinkError>;

    /// Ends the link; the other side finds out once it took all that was sent.
    fn close(&mut self);
}
