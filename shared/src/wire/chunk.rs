//! The head of a chunk: fixed size, little-endian, written by hand. Raw values follow it.
//!
//! ```text
//!  0 magic "SMXC"      4 version u8 | kind u8 | dtype u8 | zero      8 epoch u64          16 micro-batch u64
//! 24 rows u32         28 width u32                                  32 payload bytes u64
//! 40 CRC-32 of the payload                                          44 CRC-32 of bytes 0 to 44
//! ```
//!
//! The checksums find damage, not malice: who sends is known by certificate.

use thiserror::Error;

use super::codec::Limits;
use crate::ids::PlanEpoch;

/// Size in bytes.
pub const CHUNK_HEAD: usize = 48;

const MAGIC: [u8; 4] = *b"SMXC";
const VERSION: u8 = 1;

/// Which way a chunk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkKind {
    /// Activations, to the stage behind.
    Forward = 1,
    /// Gradients, to the stage before.
    Backward = 2,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkDtype {
    /// IEEE single precision, four bytes: the bits as computed.
    F32 = 1,
    /// The upper half of them, two bytes, rounded to nearest even: changes bits.
    Bf16 = 2,
}

impl ChunkDtype {
    /// Bytes of a value.
    #[must_use]
    pub fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// What a receiver must know before it touches the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// The plan that both sides follow.
    pub epoch: PlanEpoch,
    /// The micro-batch.
    pub micro_batch: u64,
    /// Activations or gradients.
    pub kind: ChunkKind,
    /// How values are written.
    pub dtype: ChunkDtype,
    /// Tokens of the micro-batch.
    pub rows: u32,
    /// Values of a row.
    pub width: u32,
    /// CRC-32 of the payload.
    pub checksum: u32,
}

/// Says what is broken in a chunk.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ChunkError {
    /// Not one at all.
    #[error("{bytes} bytes hold no chunk: its head alone has {CHUNK_HEAD}")]
    NoHead {
        /// Bytes given.
        bytes: usize,
    },
    /// Its first bytes are not those of a chunk.
    #[error("a chunk starts with {0:02x?}, not with \"SMXC\" and version 1")]
    Magic([u8; 5]),
    /// The head is damaged.
    #[error("the head of a chunk is damaged: its checksum is {got:08x}, its bytes make {made:08x}")]
    HeadChecksum {
        /// As written.
        got: u32,
        /// As computed.
        made: u32,
    },
    /// A field has a value that version 1 does not know.
    #[error("a chunk has {field} {value}, which version 1 does not know")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u8,
    },
    /// Sizes contradict each other.
    #[error("a chunk of {rows} rows of {width} values says {said} bytes, and has {has}")]
    Size {
        /// Tokens.
        rows: u32,
        /// Values of a row.
        width: u32,
        /// Bytes that the head tells of.
        said: u64,
        /// Bytes that its shape makes, or that are there.
        has: u64,
    },
    /// Over the limit.
    #[error(
        "a chunk of {bytes} bytes is over the limit of {limit} bytes, which is fixed: lower plan.tokens_per_pass"
    )]
    TooLong {
        /// Its size, the head included.
        bytes: u64,
        /// Largest allowed.
        limit: u64,
    },
    /// The values are damaged.
    #[error(
        "the values of micro-batch {micro_batch} are damaged: their checksum is {said:08x}, they make {made:08x}"
    )]
    Checksum {
        /// The micro-batch.
        micro_batch: u64,
        /// As written.
        said: u32,
        /// As computed.
        made: u32,
    },
    /// Of another plan: sent again, or late.
    #[error("a chunk is of plan {got}, and this link serves plan {wanted}")]
    Epoch {
        /// Its plan.
        got: PlanEpoch,
        /// The link's.
        wanted: PlanEpoch,
    },
}

/// The checksum of values that come piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Takes the next bytes in.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all bytes so far: what [`checksum`] makes of them at once.
    #[must_use]
    pub fn made(self) -> u32 {
        self.0.finalize()
    }
}

/// The checksum of values as bytes.
#[must_use]
pub fn checksum(payload: &[u8]) -> u32 {
    crc32fast::hash(payload)
}

impl ChunkHead {
    /// Bytes of the values.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        // 32 + 32 bits fit into 64; times 4 may not.
        (u64::from(self.rows) * u64::from(self.width)).saturating_mul(self.dtype.size())
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; CHUNK_HEAD] {
        let mut head = [0; CHUNK_HEAD];
        head[..4].copy_from_slice(&MAGIC);
        head[4..7].copy_from_slice(&[VERSION, self.kind as u8, self.dtype as u8]);
        head[8..16].copy_from_slice(&self.epoch.0.to_le_bytes());
        head[16..24].copy_from_slice(&self.micro_batch.to_le_bytes());
        head[24..28].copy_from_slice(&self.rows.to_le_bytes());
        head[28..32].copy_from_slice(&self.width.to_le_bytes());
        head[32..40].copy_from_slice(&self.payload_bytes().to_le_bytes());
        head[40..44].copy_from_slice(&self.checksum.to_le_bytes());
        let check = checksum(&head[..44]);
        head[44..].copy_from_slice(&check.to_le_bytes());
        head
    }

    /// Reads it from the first bytes, checks everything but the values.
    ///
    /// # Errors
    /// Any of [`ChunkError`] but [`ChunkError::Checksum`] and [`ChunkError::Epoch`].
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self, ChunkError> {
        let no_head = ChunkError::NoHead { bytes: bytes.len() };
        let head: &[u8; CHUNK_HEAD] = bytes.first_chunk().ok_or(no_head)?;
        if head[..4] != MAGIC || head[4] != VERSION {
            return Err(ChunkError::Magic(array(head, 0)));
        }
        let (got, made) = (u32::from_le_bytes(array(head, 44)), checksum(&head[..44]));
        if got != made {
            return Err(ChunkError::HeadChecksum { got, made });
        }
        let field = |field, value| ChunkError::Field { field, value };
        let kind = match head[5] {
            1 => ChunkKind::Forward,
            2 => ChunkKind::Backward,
            other => return Err(field("kind", other)),
        };
        let dtype = match head[6] {
            1 => ChunkDtype::F32,
            2 => ChunkDtype::Bf16,
            other => return Err(field("dtype", other)),
        };
        if head[7] != 0 {
            return Err(field("reserved byte", head[7]));
        }
        let read = Self {
            epoch: PlanEpoch(u64::from_le_bytes(array(head, 8))),
            micro_batch: u64::from_le_bytes(array(head, 16)),
            kind,
            dtype,
            rows: u32::from_le_bytes(array(head, 24)),
            width: u32::from_le_bytes(array(head, 28)),
            checksum: u32::from_le_bytes(array(head, 40)),
        };
        read.check_size(u64::from_le_bytes(array(head, 32)))?;
        let bytes = read.payload_bytes().saturating_add(CHUNK_HEAD as u64);
        let limit = limits.chunk_bytes as u64;
        if bytes > limit {
            return Err(ChunkError::TooLong { bytes, limit });
        }
        Ok(read)
    }

    fn check_size(&self, has: u64) -> Result<(), ChunkError> {
        let said = self.payload_bytes();
        if said == has {
            return Ok(());
        }
        Err(ChunkError::Size {
            rows: self.rows,
            width: self.width,
            said,
            has,
        })
    }

    /// Checks the values against the head.
    ///
    /// # Errors
    /// [`ChunkError::Size`], [`ChunkError::Checksum`].
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), ChunkError> {
        self.check_size(payload.len() as u64)?;
        let made = checksum(payload);
        if made == self.checksum {
            return Ok(());
        }
        Err(ChunkError::Checksum {
            micro_batch: self.micro_batch,
            said: self.checksum,
            made,
        })
    }

    /// Refuses what belongs to another plan.
    ///
    /// # Errors
    /// [`ChunkError::Epoch`].
    pub fn check_epoch(&self, wanted: PlanEpoch) -> Result<(), ChunkError> {
        if self.epoch == wanted {
            return Ok(());
        }
        Err(ChunkError::Epoch {
            got: self.epoch,
            wanted,
        })
    }
}

/// So many bytes from there.
fn array<const N: usize>(head: &[u8; CHUNK_HEAD], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn head(rows: u32, width: u32, payload: &[u8]) -> ChunkHead {
        ChunkHead {
            epoch: PlanEpoch(7),
            micro_batch: 3,
            kind: ChunkKind::Backward,
            dtype: ChunkDtype::F32,
            rows,
            width,
            checksum: checksum(payload),
        }
    }

    #[test]
    fn each_kind_of_damage_is_named() {
        let payload = [1_u8; 24];
        let good = head(2, 3, &payload);
        let limits = Limits::default();
        let bytes = good.encode();
        assert_eq!(ChunkHead::decode(&bytes, &limits), Ok(good));
        assert_eq!(good.check_payload(&payload), Ok(()));
        let sealed = |at: usize, to: u8| {
            let mut bytes = bytes;
            bytes[at] = to;
            let check = checksum(&bytes[..44]).to_le_bytes();
            bytes[44..].copy_from_slice(&check);
            ChunkHead::decode(&bytes, &limits).unwrap_err()
        };
        assert!(matches!(sealed(0, b'X'), ChunkError::Magic(_)));
        assert!(matches!(sealed(4, 2), ChunkError::Magic(_)));
        assert!(matches!(
            sealed(5, 9),
            ChunkError::Field {
                field: "kind",
                value: 9
            }
        ));
        assert!(matches!(
            sealed(6, 0),
            ChunkError::Field {
                field: "dtype",
                value: 0
            }
        ));
        assert!(matches!(sealed(7, 1), ChunkError::Field { .. }));
        assert!(matches!(
            sealed(24, 3),
            ChunkError::Size {
                rows: 3,
                has: 24,
                ..
            }
        ));
        let small = Limits {
            chunk_bytes: 71,
            ..limits
        };
        let over = ChunkHead::decode(&bytes, &small).unwrap_err();
        assert_eq!(
            over,
            ChunkError::TooLong {
                bytes: 72,
                limit: 71
            }
        );
        assert!(over.to_string().contains("plan.tokens_per_pass"));
        assert!(matches!(
            good.check_payload(&[2; 24]),
            Err(ChunkError::Checksum { .. })
        ));
        assert!(matches!(
            good.check_payload(&[1; 23]),
            Err(ChunkError::Size { .. })
        ));
        assert!(good.check_epoch(PlanEpoch(7)).is_ok());
        assert!(good.check_epoch(PlanEpoch(6)).is_err());
        // The largest shape there can be does not overflow.
        let vast = head(u32::MAX, u32::MAX, &[]);
        assert!(matches!(
            ChunkHead::decode(&vast.encode(), &limits),
            Err(ChunkError::TooLong { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = ChunkHead::decode(&bytes, &Limits::default());
        }

        #[test]
        fn one_flipped_bit_is_found(bit in 0..CHUNK_HEAD * 8) {
            let mut bytes = head(2, 3, &[0; 24]).encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(ChunkHead::decode(&bytes, &Limits::default()).is_err());
        }
    }
}
