//! Links between processes: one stream of QUIC, both directions.
//!
//! The stage's thread uses a [`QuicLink`], which never waits; the other half of it, the carrier, is a future that runs
//! on the runtime of the network for as long as the link lasts. What lies between them is bounded: chunks by credit,
//! words by what the protocol of the stages lets be under way.
//!
//! - `QL-1` Parcels arrive in the order in which they were sent, whole and with the bits that were sent; what is damaged
//!   ends the link.
//! - `QL-2` Of each side at most `credits` chunks are sent and not taken; who sends more is cut off.
//! - `QL-3` What was sent before the end still arrives; so the carrier's future ends after that.

mod carrier;
pub mod gauge;
mod inbox;
mod pool;
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
use tokio::sync::{Notify, mpsc};

use super::bell::Bell;
use super::transit::{Transit, Transits};
use super::word::Word;
use super::{ChunkLink, LinkError, Parcel};
use carrier::{Out, Shared, carry};
use inbox::Inbox;
use pool::Pool;

impl Message for Word {
    const KIND: FrameKind = FrameKind::Word;
}

/// The stage's half of one end.
pub struct QuicLink {
    shared: Arc<Shared>,
    outbox: Option<mpsc::UnboundedSender<Out>>,
    limits: Limits,
}

impl fmt::Debug for QuicLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicLink")
            .field("opening", &self.shared.opening)
            .finish_non_exhaustive()
    }
}

/// An end over a stream that was opened so; and its carrier, to be spawned or awaited. The bell is the stage's own; what
/// was on its way is noted in `transits`.
pub fn over(
    stream: Stream,
    opening: LinkOpening,
    bell: Bell,
    transits: Transits,
) -> (
    QuicLink,
    impl Future<Output = Result<(), CarrierError>> + Send + use<>,
) {
    let (outbox, outgoing) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        inbox: Inbox::new(bell),
        under_way: AtomicUsize::new(0),
        // All that may be under way from here, and one that is being read.
        pool: Pool::new(opening.credits as usize + 1),
        opening,
        transits,
        dropped: Notify::new(),
    });
    let link = QuicLink {
        shared: Arc::clone(&shared),
        outbox: Some(outbox),
        limits: *stream.sender.limits(),
    };
    (link, carry(shared, stream, outgoing))
}

impl QuicLink {
    fn credits(&self) -> usize {
        self.shared.opening.credits as usize
    }

    /// Why the carrier takes no more.
    fn ended(&self) -> LinkError {
        self.shared.inbox.outward_end().unwrap_or(LinkError::Closed)
    }

    /// Whether a chunk of so many values is too large to be carried.
    fn check_size(&self, values: usize) -> Result<(), LinkError> {
        let bytes = values as u64 * self.shared.dtype().size() + CHUNK_HEAD as u64;
        let (limit, setting) = FrameKind::Chunk.limit(&self.limits);
        if bytes <= limit as u64 {
            return Ok(());
        }
        let reason = format!(
            "a chunk of {bytes} bytes is over the limit of {limit} bytes; what moves the limit: {setting}"
        );
        Err(LinkError::Failed { reason })
    }
}

impl ChunkLink for QuicLink {
    fn credit(&self) -> usize {
        let under_way = self.shared.under_way.load(Ordering::Acquire);
        self.credits().saturating_sub(under_way)
    }

    fn send(&mut self, parcel: Parcel) -> Result<(), LinkError> {
        if let Some(end) = self.shared.inbox.outward_end() {
            return Err(end);
        }
        let outbox = self.outbox.as_ref().ok_or(LinkError::Closed)?;
        if let Parcel::Chunk(chunk) = &parcel {
            self.check_size(chunk.values.len())?;
            if self.credit() == 0 {
                let credits = self.credits();
                return Err(LinkError::NoCredit { credits });
            }
            self.shared.under_way.fetch_add(1, Ordering::AcqRel);
        }
        outbox.send(Out::Parcel(parcel)).map_err(|_| self.ended())
    }

    fn receive(&mut self) -> Result<Option<Parcel>, LinkError> {
        let parcel = self.shared.inbox.take()?;
        if let (Some(Parcel::Chunk(_)), Some(outbox)) = (&parcel, &self.outbox) {
            // Where nobody is left to have the credit, nobody misses it.
            let _ = outbox.send(Out::Credit(1));
        }
        Ok(parcel)
    }

    fn transits(&mut self) -> Vec<Transit> {
        self.shared.transits.take()
    }

    fn close(&mut self) {
        self.outbox = None;
    }
}

impl Drop for QuicLink {
    fn drop(&mut self) {
        self.close();
        self.shared.dropped.notify_one();
    }
}

#[cfg(test)]
mod tests;
