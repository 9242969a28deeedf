//! Messages as bytes: the only file that names bincode (docs/adr/0002-bincode.md).
//!
//! ```text
//! frame = length: u32 little-endian | kind: u8 | flags: u8, zero | payload: length bytes
//! ```
//!
//! - `CO-1` A length above the limit of its kind is refused before a byte of the payload is read.
//! - `CO-2` A payload is decoded whole: what is missing, and what is left over, is an error.
//! - `CO-3` Decoding claims at most four times [`CLAIM`] bytes of memory for a text or number per byte of payload,
//!   whatever lengths the payload tells of; lists grow with what is read.
//! - `CO-4` No input panics.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::notice::Notice;
use super::opening::Opening;
use super::order::Ordered;
use super::request::{Reply, Request};

/// Bytes of a frame before its payload.
pub const HEAD: usize = 6;

/// Memory in bytes that one byte of payload may stand for: a small number is one byte on the wire and eight decoded.
pub const CLAIM: usize = 8;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// What the stream is.
    Opening = 1,
    /// From a client to the coordinator.
    Request = 2,
    /// From the coordinator to a client.
    Reply = 3,
    /// From the coordinator to a gpu-actor.
    Order = 4,
    /// From a gpu-actor to the coordinator.
    Notice = 5,
    /// Between stages, about jobs and steps.
    Word = 6,
    /// Between stages: chunks that were taken.
    Credit = 7,
    /// Between stages: a [`ChunkHead`](super::chunk::ChunkHead) and raw values.
    Chunk = 8,
}

impl FrameKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Opening,
        Self::Request,
        Self::Reply,
        Self::Order,
        Self::Notice,
        Self::Word,
        Self::Credit,
        Self::Chunk,
    ];

    /// The kind as written in errors.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Request => "request",
            Self::Reply => "reply",
            Self::Order => "order",
            Self::Notice => "notice",
            Self::Word => "word",
            Self::Credit => "credit",
            Self::Chunk => "chunk",
        }
    }

    /// Largest payload in bytes, and the setting that moves it.
    #[must_use]
    pub fn limit(self, limits: &Limits) -> (usize, &'static str) {
        match self {
            Self::Opening | Self::Credit => (Limits::SMALL, FIXED),
            Self::Chunk => (limits.chunk_bytes, FIXED_CHUNK),
            Self::Word => (limits.word_bytes, FIXED),
            Self::Request | Self::Reply | Self::Order | Self::Notice => {
                (limits.control_bytes, "limits.frame_mib")
            }
        }
    }
}

impl std::fmt::Display for FrameKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is said of a limit that no setting moves.
const FIXED: &str = "nothing: it is fixed";
/// And of a chunk, which has the tokens of a pass.
const FIXED_CHUNK: &str = "nothing: it is fixed; lower plan.tokens_per_pass";

/// Largest payloads that are sent or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of a request, reply, order or notice, in bytes: setting `limits.frame_mib`.
    pub control_bytes: usize,
    /// Of a word between stages, which may hold the state of an adapter, in bytes.
    pub word_bytes: usize,
    /// Of a chunk, its head included, in bytes.
    pub chunk_bytes: usize,
}

impl Limits {
    /// Of openings and credits, in bytes.
    pub const SMALL: usize = 256;
}

impl Default for Limits {
    /// 1 MiB for control; 256 MiB for a word; 256 MiB for a chunk, which is 16384 tokens at width 4096.
    fn default() -> Self {
        Self {
            control_bytes: 1 << 20,
            word_bytes: 256 << 20,
            chunk_bytes: 256 << 20,
        }
    }
}

/// Says why bytes are no message, or a message cannot become a frame.
#[derive(Debug, Error)]
pub enum CodecError {
    /// Larger than its kind may be.
    #[error(
        "a {kind} of {bytes} bytes is over the limit of {limit} bytes; what moves the limit: {setting}"
    )]
    TooLong {
        /// The kind.
        kind: FrameKind,
        /// Size of its payload.
        bytes: usize,
        /// Largest allowed.
        limit: usize,
        /// What moves the limit.
        setting: &'static str,
    },
    /// A kind that this version does not have.
    #[error("no frame is of kind {0}: the bytes are of another protocol, or damaged")]
    UnknownKind(u8),
    /// Flags that this version does not have.
    #[error(
        "a {kind} has flags {flags:#04x}, and version 1 knows none: the peer is of another version"
    )]
    UnknownFlags {
        /// The kind.
        kind: FrameKind,
        /// Its flags.
        flags: u8,
    },
    /// Another kind than the conversation wants next.
    #[error("a {wanted} is due here, and a {got} came")]
    Unexpected {
        /// The kind that is due.
        wanted: FrameKind,
        /// The kind that came.
        got: FrameKind,
    },
    /// The bytes end before the message does.
    #[error("a {kind} of {bytes} bytes ends too early: it is cut off or damaged")]
    Truncated {
        /// The kind.
        kind: FrameKind,
        /// Size of its payload.
        bytes: usize,
    },
    /// The message ends before the bytes do.
    #[error("a {kind} is followed by {extra} bytes that belong to nothing")]
    Trailing {
        /// The kind.
        kind: FrameKind,
        /// Bytes left over.
        extra: usize,
    },
    /// It tells of more than it can hold.
    #[error("a {kind} of {bytes} bytes claims a text or list of more than it could hold")]
    Claims {
        /// The kind.
        kind: FrameKind,
        /// Size of its payload.
        bytes: usize,
    },
    /// No such message.
    #[error("a {kind} cannot be read: {reason}")]
    Malformed {
        /// The kind.
        kind: FrameKind,
        /// What the decoder says.
        reason: String,
    },
}

/// A type that travels as the payload of one kind of frame.
pub trait Message: Serialize + DeserializeOwned {
    /// The kind.
    const KIND: FrameKind;
}

impl Message for Opening {
    const KIND: FrameKind = FrameKind::Opening;
}
impl Message for Request {
    const KIND: FrameKind = FrameKind::Request;
}
impl Message for Reply {
    const KIND: FrameKind = FrameKind::Reply;
}
impl Message for Ordered {
    const KIND: FrameKind = FrameKind::Order;
}
impl Message for Notice {
    const KIND: FrameKind = FrameKind::Notice;
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// What the payload is.
    pub kind: FrameKind,
    /// Its size.
    pub bytes: usize,
}

impl FrameHead {
    /// Reads it, and refuses what is over a limit.
    ///
    /// # Errors
    /// [`CodecError::UnknownKind`], [`CodecError::UnknownFlags`], [`CodecError::TooLong`].
    pub fn decode(head: [u8; HEAD], limits: &Limits) -> Result<Self, CodecError> {
        let [a, b, c, d, kind, flags] = head;
        let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        let known = FrameKind::ALL
            .into_iter()
            .find(|other| *other as u8 == kind);
        let kind = known.ok_or(CodecError::UnknownKind(kind))?;
        if flags != 0 {
            return Err(CodecError::UnknownFlags { kind, flags });
        }
        check_length(kind, bytes, limits)?;
        Ok(Self { kind, bytes })
    }

    /// As bytes.
    ///
    /// # Errors
    /// [`CodecError::TooLong`].
    pub fn encode(self, limits: &Limits) -> Result<[u8; HEAD], CodecError> {
        check_length(self.kind, self.bytes, limits)?;
        let too_long = |_| CodecError::TooLong {
            kind: self.kind,
            bytes: self.bytes,
            limit: u32::MAX as usize,
            setting: "nothing: a length has 32 bits",
        };
        let length = u32::try_from(self.bytes).map_err(too_long)?;
        let [a, b, c, d] = length.to_le_bytes();
        Ok([a, b, c, d, self.kind as u8, 0])
    }
}

fn check_length(kind: FrameKind, bytes: usize, limits: &Limits) -> Result<(), CodecError> {
    let (limit, setting) = kind.limit(limits);
    if bytes <= limit {
        return Ok(());
    }
    Err(CodecError::TooLong {
        kind,
        bytes,
        limit,
        setting,
    })
}

/// A message as a frame.
///
/// # Errors
/// [`CodecError::TooLong`], [`CodecError::Malformed`] when serde refuses the value.
pub fn frame<M: Message>(message: &M, limits: &Limits) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![0; HEAD];
    let mut beyond = &mut bytes;
    bincode::serde::encode_into_std_write(message, &mut beyond, bincode::config::standard())
        .map_err(|error| CodecError::Malformed {
            kind: M::KIND,
            reason: error.to_string(),
        })?;
    let head = FrameHead {
        kind: M::KIND,
        bytes: bytes.len() - HEAD,
    };
    bytes[..HEAD].copy_from_slice(&head.encode(limits)?);
    Ok(bytes)
}

/// The message that a payload is.
///
/// # Errors
/// Any of [`CodecError`] but those of a head.
pub fn message<M: Message>(payload: &[u8], limits: &Limits) -> Result<M, CodecError> {
    check_length(M::KIND, payload.len(), limits)?;
    // A limit of bincode is a constant: the least of these that is enough.
    let decoded = match payload.len().saturating_mul(CLAIM).max(1).ilog2() {
        0..14 => within::<M, { 1 << 14 }>(payload),
        14..16 => within::<M, { 1 << 16 }>(payload),
        16..18 => within::<M, { 1 << 18 }>(payload),
        18..20 => within::<M, { 1 << 20 }>(payload),
        20..22 => within::<M, { 1 << 22 }>(payload),
        22..24 => within::<M, { 1 << 24 }>(payload),
        24..26 => within::<M, { 1 << 26 }>(payload),
        26..28 => within::<M, { 1 << 28 }>(payload),
        28..30 => within::<M, { 1 << 30 }>(payload),
        30..32 => within::<M, { 1 << 32 }>(payload),
        _ => within::<M, { 1 << 36 }>(payload),
    };
    let (message, used) = decoded.map_err(|error| explain(M::KIND, payload.len(), &error))?;
    if used == payload.len() {
        return Ok(message);
    }
    Err(CodecError::Trailing {
        kind: M::KIND,
        extra: payload.len() - used,
    })
}

fn within<M: DeserializeOwned, const CLAIMED: usize>(
    payload: &[u8],
) -> Result<(M, usize), bincode::error::DecodeError> {
    let config = bincode::config::standard().with_limit::<CLAIMED>();
    bincode::serde::decode_from_slice(payload, config)
}

fn explain(kind: FrameKind, bytes: usize, error: &bincode::error::DecodeError) -> CodecError {
    use bincode::error::DecodeError;
    match error {
        DecodeError::UnexpectedEnd { .. } => CodecError::Truncated { kind, bytes },
        DecodeError::LimitExceeded => CodecError::Claims { kind, bytes },
        other => CodecError::Malformed {
            kind,
            reason: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests;
