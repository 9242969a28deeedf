//! What goes wrong between two processes, said once for all of `net`.
//!
//! A fault of a peer costs its own connection, never the process that finds it.

use std::io;
use std::net::SocketAddr;

use quinn::{ConnectionError, ReadError, VarInt, WriteError};
use thiserror::Error;

use super::identity::IdentityError;
use crate::wire::codec::CodecError;
use crate::wire::version::ProtocolVersion;

/// Why a side closed a connection or reset a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CloseCode {
    /// All is said.
    Done = 0,
    /// Bytes that are no message, or not the one that is due.
    Malformed = 1,
    /// Over a limit of size.
    TooLong = 2,
    /// The role does not allow it.
    Forbidden = 3,
    /// The certificate names no member of this cluster.
    Identity = 4,
    /// A limit of connections is reached.
    Busy = 5,
    /// This side ends.
    Shutdown = 6,
    /// Of an older plan or term.
    Stale = 7,
    /// This side failed.
    Internal = 8,
}

impl CloseCode {
    const ALL: [Self; 9] = [
        Self::Done,
        Self::Malformed,
        Self::TooLong,
        Self::Forbidden,
        Self::Identity,
        Self::Busy,
        Self::Shutdown,
        Self::Stale,
        Self::Internal,
    ];

    /// As QUIC carries it.
    #[must_use]
    pub fn number(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }

    pub(super) fn of(number: VarInt) -> Self {
        let number = number.into_inner();
        let found = Self::ALL
            .into_iter()
            .find(|code| u64::from(*code as u32) == number);
        found.unwrap_or(Self::Internal)
    }
}

/// Why a TLS handshake failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HandshakeFault {
    /// Signed by somebody else.
    #[error(
        "one side's certificate is of another cluster's authority: both must have joined the same cluster"
    )]
    OtherAuthority,
    /// Too late, or a clock is wrong.
    #[error(
        "one side's certificate expired or is not valid yet: compare the clocks, or join again with a new token"
    )]
    Expired,
    /// Another role answered.
    #[error("who answers has another role than the one that was wanted: is the address right?")]
    OtherRole,
    /// Nobody there speaks this version.
    #[error(
        "the peer does not speak version {0} of the wire: both sides must be of one version of spotmux"
    )]
    OtherVersion(ProtocolVersion),
    /// Anything else that TLS refuses.
    #[error("the handshake failed: {0}")]
    Other(String),
}

/// Says what went wrong between two processes.
#[derive(Debug, Error)]
pub enum NetError {
    /// A message.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Who the peer is.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No connection came about.
    #[error(transparent)]
    Handshake(#[from] HandshakeFault),
    /// The peer ended it, and says why.
    #[error("the peer closed ({code:?}): {reason}")]
    Closed {
        /// The kind.
        code: CloseCode,
        /// In its words.
        reason: String,
    },
    /// The peer gave up this stream; the connection stands.
    #[error("the peer gave up this stream ({code:?})")]
    GivenUp {
        /// The kind.
        code: CloseCode,
    },
    /// The connection is gone, or was never there.
    #[error("no connection: {reason}")]
    Lost {
        /// What happened to it.
        reason: String,
    },
    /// A stream ended where more was due.
    #[error("the stream ended where a {due} was due")]
    Ended {
        /// What was due.
        due: &'static str,
    },
    /// Something local could not be set up or read.
    #[error("cannot {what}: {source}")]
    Local {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// TLS refuses the credential.
    #[error("TLS cannot use the credential: {0}")]
    Tls(#[from] rustls::Error),
}

impl NetError {
    /// The peer did not keep to a limit of time.
    pub(super) fn silent(due: &str, at: SocketAddr) -> Self {
        Self::Lost {
            reason: format!("{at} did not send {due} in time"),
        }
    }

    /// What to tell the peer when this ends its connection.
    #[must_use]
    pub fn close_code(&self) -> CloseCode {
        match self {
            Self::Codec(CodecError::TooLong { .. }) => CloseCode::TooLong,
            Self::Codec(_) | Self::Ended { .. } => CloseCode::Malformed,
            Self::Identity(_) | Self::Handshake(_) => CloseCode::Identity,
            Self::Closed { .. } | Self::GivenUp { .. } | Self::Lost { .. } => CloseCode::Done,
            Self::Local { .. } | Self::Tls(_) => CloseCode::Internal,
        }
    }

    /// Whether the same may work later, so that trying again makes sense.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Lost { .. } => true,
            Self::Closed { code, .. } | Self::GivenUp { code } => {
                matches!(
                    code,
                    CloseCode::Busy | CloseCode::Shutdown | CloseCode::Done
                )
            }
            _ => false,
        }
    }
}

impl From<ConnectionError> for NetError {
    fn from(error: ConnectionError) -> Self {
        let code = match &error {
            ConnectionError::ApplicationClosed(close) => {
                return Self::Closed {
                    code: CloseCode::of(close.error_code),
                    reason: String::from_utf8_lossy(&close.reason).into_owned(),
                };
            }
            ConnectionError::TransportError(fault) => u64::from(fault.code),
            ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
            _ => 0,
        };
        handshake_fault(code, &error).map_or_else(
            || Self::Lost {
                reason: error.to_string(),
            },
            Self::Handshake,
        )
    }
}

/// QUIC carries a TLS alert as 0x100 and its number.
fn handshake_fault(code: u64, error: &ConnectionError) -> Option<HandshakeFault> {
    let alert = code.checked_sub(0x100).filter(|alert| *alert < 0x100)?;
    Some(match alert {
        // unknown_ca; decrypt_error: an authority of the same name with another key.
        48 | 51 => HandshakeFault::OtherAuthority,
        45 => HandshakeFault::Expired,
        // bad_certificate says many things; which, only the side knows that found it.
        42 if error.to_string().contains("not valid for name") => HandshakeFault::OtherRole,
        120 => HandshakeFault::OtherVersion(ProtocolVersion::CURRENT),
        _ => HandshakeFault::Other(error.to_string()),
    })
}

impl From<WriteError> for NetError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConnectionLost(lost) => lost.into(),
            WriteError::Stopped(code) => Self::GivenUp {
                code: CloseCode::of(code),
            },
            other => Self::Lost {
                reason: other.to_string(),
            },
        }
    }
}

impl From<ReadError> for NetError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::ConnectionLost(lost) => lost.into(),
            ReadError::Reset(code) => Self::GivenUp {
                code: CloseCode::of(code),
            },
            other => Self::Lost {
                reason: other.to_string(),
            },
        }
    }
}
