//! Links between processes: one stream of QUIC, both directions.
//!
//! The stage's thread uses a [`QuicLink`], which never waits; the other half of it, the carrier, is a future that runs
//! on the runtime of the network for as long as the link lasts. What lies between them is bounded: chunks by credit,
//! words by what the protocol of the stages lets be under way.
//!
//! - `QL-1` Parcels arrive in the order in which they were sent, whole and with the bits that were sent; what is damaged
//!   ends the link.
//! - `QL-2` Of each side at most `credits` chunks are sent and not taken; who sends more is cut off.
//! - `QL-3` What was sent before [`QuicLink::close`] still arrives; so the carrier's future ends after that.

mod carrier;
mod inbox;
mod values;

pub use carrier::CarrierError;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shared::net::stream::Stream;
use shared::wire::chunk::CHUNK_HEAD;
use shared::wire::codec::{FrameKind, Limits, Message};
use shared::wire::opening::LinkOpening;
use thiserror::Error;
use tokio::sync::{Notify, mpsc};

use super::Chunk;
use super::bell::Bell;
use carrier::{Out, Shared, carry};
use inbox::{End, Inbox};

/// What a link carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Carried<W> {
    /// Values; costs a credit.
    Chunk(Chunk),
    /// Everything else; free.
    Word(W),
}

/// Says why a parcel did not go or come.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QuicLinkError {
    /// The other side has not taken enough of what was sent before.
    #[error(
        "no credit: the other side has not taken any of the last {credits} chunks; wait for one"
    )]
    NoCredit {
        /// Chunks that may be under way.
        credits: usize,
    },
    /// Too large.
    #[error(
        "a chunk of {bytes} bytes is over the limit of {limit} bytes; what moves the limit: {setting}"
    )]
    TooLong {
        /// Its size as a frame's payload.
        bytes: u64,
        /// Largest allowed.
        limit: u64,
        /// What moves it.
        setting: &'static str,
    },
    /// The other side ended the link.
    #[error("the other side closed the link")]
    Closed,
    /// The link failed.
    #[error("the link failed: {reason}")]
    Failed {
        /// Why.
        reason: String,
    },
}

impl From<End> for QuicLinkError {
    fn from(end: End) -> Self {
        match end {
            End::Closed => Self::Closed,
            End::Failed(reason) => Self::Failed { reason },
        }
    }
}

/// The stage's half of one end.
pub struct QuicLink<W> {
    shared: Arc<Shared<W>>,
    outbox: Option<mpsc::UnboundedSender<Out<W>>>,
    limits: Limits,
}

impl<W> fmt::Debug for QuicLink<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicLink")
            .field("opening", &self.shared.opening)
            .finish_non_exhaustive()
    }
}

/// An end over a stream that was opened so; and its carrier, to be spawned or awaited. The bell is the stage's own.
pub fn over<W: Message + Send + 'static>(
    stream: Stream,
    opening: LinkOpening,
    bell: Bell,
) -> (
    QuicLink<W>,
    impl Future<Output = Result<(), CarrierError>> + Send + use<W>,
) {
    let (outbox, outgoing) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        inbox: Inbox::new(bell),
        under_way: AtomicUsize::new(0),
        opening,
        dropped: Notify::new(),
    });
    let link = QuicLink {
        shared: Arc::clone(&shared),
        outbox: Some(outbox),
        limits: *stream.sender.limits(),
    };
    (link, carry(shared, stream, outgoing))
}

impl<W> QuicLink<W> {
    fn credits(&self) -> usize {
        self.shared.opening.credits as usize
    }

    /// Chunks that may be sent now.
    #[must_use]
    pub fn credit(&self) -> usize {
        let under_way = self.shared.under_way.load(Ordering::Acquire);
        self.credits().saturating_sub(under_way)
    }

    /// Sends a parcel; a chunk costs one credit.
    ///
    /// # Errors
    /// [`QuicLinkError`]; of a parcel that is refused nothing is sent.
    pub fn send(&mut self, parcel: Carried<W>) -> Result<(), QuicLinkError> {
        if let Some(end) = self.shared.inbox.outward_end() {
            return Err(end.into());
        }
        let outbox = self.outbox.as_ref().ok_or(QuicLinkError::Closed)?;
        if let Carried::Chunk(chunk) = &parcel {
            let values = chunk.values.len() as u64 * self.shared.dtype().size();
            let bytes = values + CHUNK_HEAD as u64;
            let (limit, setting) = FrameKind::Chunk.limit(&self.limits);
            let limit = limit as u64;
            if bytes > limit {
                return Err(QuicLinkError::TooLong {
                    bytes,
                    limit,
                    setting,
                });
            }
            if self.credit() == 0 {
                let credits = self.credits();
                return Err(QuicLinkError::NoCredit { credits });
            }
            self.shared.under_way.fetch_add(1, Ordering::AcqRel);
        }
        outbox.send(Out::Parcel(parcel)).map_err(|_| self.ended())
    }

    /// Takes the next parcel, if one is here; for a chunk the sender gets its credit back.
    ///
    /// # Errors
    /// [`QuicLinkError`] when no parcel will come and all that came were taken.
    pub fn receive(&mut self) -> Result<Option<Carried<W>>, QuicLinkError> {
        let parcel = self.shared.inbox.take()?;
        if let (Some(Carried::Chunk(_)), Some(outbox)) = (&parcel, &self.outbox) {
            // Where nobody is left to have the credit, nobody misses it.
            let _ = outbox.send(Out::Credit(1));
        }
        Ok(parcel)
    }

    /// Ends the link; the other side finds out once it took all that was sent.
    pub fn close(&mut self) {
        self.outbox = None;
    }

    /// Why the carrier takes no more.
    fn ended(&self) -> QuicLinkError {
        let end = self.shared.inbox.outward_end();
        end.map_or(QuicLinkError::Closed, Into::into)
    }
}

impl<W> Drop for QuicLink<W> {
    fn drop(&mut self) {
        self.close();
        self.shared.dropped.notify_one();
    }
}

#[cfg(test)]
mod tests;
