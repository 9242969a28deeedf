//! The side of a link that waits: sends what is in the outbox, fills the inbox, rings.
//!
//! Reading never waits for the stage: what came lies in the inbox, where credits bound it. So two sides that send at
//! once cannot wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use shared::ids::PlanEpoch;
use shared::net::fault::{CloseCode, NetError};
use shared::net::stream::{Receiver, Sender, Stream};
use shared::wire::chunk::{CHUNK_HEAD, ChunkDtype, ChunkError, ChunkHead, ChunkKind};
use shared::wire::codec::{FrameHead, FrameKind, frame};
use shared::wire::opening::LinkOpening;
use thiserror::Error;
use tokio::sync::{Notify, mpsc};

use super::super::transit::Transits;
use super::super::word::Word;
use super::super::{Chunk, ChunkHeader, Direction, LinkError, Parcel};
use super::inbox::Inbox;
use super::pool::Pool;
use super::values;

/// Says why a link failed.
#[derive(Debug, Error)]
pub enum CarrierError {
    /// The connection, the stream, or a frame.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A chunk.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A frame that no link carries.
    #[error("a {0} came over a link between stages, which carries words, credits and chunks")]
    Kind(FrameKind),
    /// Credit that was not earned.
    #[error("the other side {what} than the {credits} chunks that the link's opening allows")]
    Credit {
        /// What it did.
        what: &'static str,
        /// The bound.
        credits: usize,
    },
    /// A frame of another size than its kind has.
    #[error("a {kind} of {bytes} bytes came, and its head tells of {said}")]
    Size {
        /// The kind.
        kind: FrameKind,
        /// Bytes of the frame's payload.
        bytes: usize,
        /// Bytes that it should have.
        said: u64,
    },
    /// Values as they were not agreed on.
    #[error("values came as {got:?}, and the link's opening says {wanted:?}")]
    Dtype {
        /// As they came.
        got: ChunkDtype,
        /// As agreed.
        wanted: ChunkDtype,
    },
}

impl CarrierError {
    fn close_code(&self) -> CloseCode {
        match self {
            Self::Net(error) => error.close_code(),
            Self::Chunk(ChunkError::Epoch { .. }) => CloseCode::Stale,
            Self::Chunk(ChunkError::TooLong { .. }) => CloseCode::TooLong,
            _ => CloseCode::Malformed,
        }
    }
}

/// What the stage gives to be sent.
pub(super) enum Out {
    Parcel(Parcel),
    /// So many chunks were taken.
    Credit(u32),
}

/// What both sides of this end share.
pub(super) struct Shared {
    pub(super) inbox: Inbox,
    /// Chunks sent and not taken by the other side.
    pub(super) under_way: AtomicUsize,
    pub(super) pool: Arc<Pool>,
    pub(super) opening: LinkOpening,
    /// What was on its way.
    pub(super) transits: Transits,
    /// The stage let go of the link.
    pub(super) dropped: Notify,
}

impl Shared {
    pub(super) fn dtype(&self) -> ChunkDtype {
        match self.opening.narrow {
            true => ChunkDtype::Bf16,
            false => ChunkDtype::F32,
        }
    }
}

/// Carries a link until both sides ended it, or it fails.
pub(super) async fn carry(
    shared: Arc<Shared>,
    stream: Stream,
    outbox: mpsc::UnboundedReceiver<Out>,
) -> Result<(), CarrierError> {
    let Stream {
        mut sender,
        mut receiver,
    } = stream;
    let outcome = tokio::try_join!(
        write(&shared, &mut sender, outbox),
        read(&shared, &mut receiver)
    );
    if let Err(error) = &outcome {
        let code = error.close_code();
        sender.reset(code);
        receiver.stop(code);
        shared.inbox.fail(&error.to_string());
    }
    outcome.map(|_| ())
}

async fn write(
    shared: &Shared,
    sender: &mut Sender,
    mut outbox: mpsc::UnboundedReceiver<Out>,
) -> Result<(), CarrierError> {
    let mut stopped = std::pin::pin!(sender.stopped());
    loop {
        let out = tokio::select! {
            out = outbox.recv() => out,
            gone = &mut stopped => return let_go(shared, sender, gone?),
        };
        let Some(out) = out else {
            sender.finish();
            return Ok(sender.delivered().await?);
        };
        let header = match &out {
            Out::Parcel(Parcel::Chunk(chunk)) => Some(chunk.header),
            _ => None,
        };
        let start = header.and_then(|_| shared.transits.now());
        queue(shared, sender, out)?;
        match sender.flush().await {
            Ok(()) => {
                if let Some(header) = header {
                    shared.transits.note(header, false, start);
                }
            }
            Err(NetError::GivenUp { code }) => return let_go(shared, sender, Some(code)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The other side wants no more: because it ended the link, or because of what came.
fn let_go(
    shared: &Shared,
    sender: &mut Sender,
    code: Option<CloseCode>,
) -> Result<(), CarrierError> {
    match code {
        None | Some(CloseCode::Done) => {
            sender.reset(CloseCode::Done);
            shared.inbox.end_outward(LinkError::Closed);
            Ok(())
        }
        Some(code) => Err(NetError::GivenUp { code }.into()),
    }
}

fn queue(shared: &Shared, sender: &mut Sender, out: Out) -> Result<(), CarrierError> {
    let limits = *sender.limits();
    match out {
        Out::Credit(taken) => {
            let head = FrameHead {
                kind: FrameKind::Credit,
                bytes: size_of_val(&taken),
            };
            let head = head.encode(&limits).map_err(NetError::from)?;
            sender.queue([&head[..], &taken.to_le_bytes()].concat().into());
        }
        Out::Parcel(Parcel::Word(word)) => {
            let bytes = frame(&word, &limits).map_err(NetError::from)?;
            sender.queue(bytes.into());
        }
        Out::Parcel(Parcel::Chunk(chunk)) => {
            let (head, values) = written(chunk, shared)?;
            let outer = FrameHead {
                kind: FrameKind::Chunk,
                bytes: CHUNK_HEAD + values.len(),
            };
            let outer = outer.encode(&limits).map_err(NetError::from)?;
            sender.queue([&outer[..], &head].concat().into());
            sender.queue(values);
        }
    }
    Ok(())
}

/// A chunk's head and bytes.
fn written(chunk: Chunk, shared: &Shared) -> Result<([u8; CHUNK_HEAD], Bytes), CarrierError> {
    let dtype = shared.dtype();
    let ChunkHeader {
        epoch,
        micro_batch,
        direction,
        rows,
        width,
    } = chunk.header;
    let count = chunk.values.len() as u64;
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (values, checksum) = values::pack(chunk.values, dtype, &shared.pool);
    let head = ChunkHead {
        epoch: PlanEpoch(epoch),
        micro_batch,
        kind: match direction {
            Direction::Forward => ChunkKind::Forward,
            Direction::Backward => ChunkKind::Backward,
        },
        dtype,
        rows: small(rows),
        width: small(width),
        checksum,
    };
    if head.payload_bytes() != count * dtype.size() {
        return Err(CarrierError::Chunk(ChunkError::Size {
            rows: head.rows,
            width: head.width,
            said: head.payload_bytes(),
            has: count * dtype.size(),
        }));
    }
    Ok((head.encode(), values))
}

async fn read(shared: &Shared, receiver: &mut Receiver) -> Result<(), CarrierError> {
    loop {
        // What is under way when the stage lets go is of no use: half a frame may be dropped.
        let more = tokio::select! {
            more = frame_in(shared, receiver) => more?,
            () = shared.dropped.notified() => {
                receiver.stop(CloseCode::Done);
                return Ok(());
            }
        };
        if !more {
            shared.inbox.end_inward(LinkError::Closed);
            return Ok(());
        }
    }
}

/// Takes one frame in; whether there was one.
async fn frame_in(shared: &Shared, receiver: &mut Receiver) -> Result<bool, CarrierError> {
    let Some(head) = receiver.peek_head().await? else {
        return Ok(false);
    };
    match head.kind {
        FrameKind::Word => {
            let word = receiver.receive::<Word>().await?;
            if let Some(word) = word {
                shared.inbox.put(Parcel::Word(word));
            }
        }
        FrameKind::Credit => credit_in(shared, receiver, head.bytes).await?,
        FrameKind::Chunk => {
            let start = shared.transits.now();
            let chunk = chunk_in(shared, receiver, head.bytes).await?;
            shared.transits.note(chunk.header, true, start);
            let credits = shared.opening.credits as usize;
            if shared.inbox.put(Parcel::Chunk(chunk)) > credits {
                let what = "sent more chunks";
                return Err(CarrierError::Credit { what, credits });
            }
        }
        other => return Err(CarrierError::Kind(other)),
    }
    Ok(true)
}

async fn credit_in(
    shared: &Shared,
    receiver: &mut Receiver,
    bytes: usize,
) -> Result<(), CarrierError> {
    let mut taken = [0; 4];
    if bytes != taken.len() {
        return Err(CarrierError::Size {
            kind: FrameKind::Credit,
            bytes,
            said: taken.len() as u64,
        });
    }
    receiver.skip_head();
    receiver.read_into(&mut taken, "credit").await?;
    let taken = u32::from_le_bytes(taken) as usize;
    let given = shared
        .under_way
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |under_way| {
            under_way.checked_sub(taken)
        });
    if given.is_err() {
        let credits = shared.opening.credits as usize;
        let what = "took more chunks than were sent, or more";
        return Err(CarrierError::Credit { what, credits });
    }
    shared.inbox.ring();
    Ok(())
}

async fn chunk_in(
    shared: &Shared,
    receiver: &mut Receiver,
    bytes: usize,
) -> Result<Chunk, CarrierError> {
    let limits = *receiver.limits();
    let mut head = [0; CHUNK_HEAD];
    if bytes < head.len() {
        return Err(ChunkError::NoHead { bytes }.into());
    }
    receiver.skip_head();
    receiver.read_into(&mut head, "head of a chunk").await?;
    let head = ChunkHead::decode(&head, &limits)?;
    head.check_epoch(shared.opening.epoch)?;
    let (got, wanted) = (head.dtype, shared.dtype());
    if got != wanted {
        return Err(CarrierError::Dtype { got, wanted });
    }
    let said = head.payload_bytes() + CHUNK_HEAD as u64;
    if said != bytes as u64 {
        let kind = FrameKind::Chunk;
        return Err(CarrierError::Size { kind, bytes, said });
    }
    let (rows, width) = (head.rows as usize, head.width as usize);
    let (values, made) = values::read(receiver, rows * width, head.dtype, &shared.pool).await?;
    if made != head.checksum {
        return Err(CarrierError::Chunk(ChunkError::Checksum {
            micro_batch: head.micro_batch,
            said: head.checksum,
            made,
        }));
    }
    let header = ChunkHeader {
        epoch: head.epoch.0,
        micro_batch: head.micro_batch,
        direction: match head.kind {
            ChunkKind::Forward => Direction::Forward,
            ChunkKind::Backward => Direction::Backward,
        },
        rows,
        width,
    };
    Ok(Chunk { header, values })
}
