//! What an artifact is known by: its content hash and size.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hexadecimal;
use crate::units::Bytes;

/// Content hash and size of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Its size.
    pub bytes: Bytes,
}

impl Stamp {
    /// That of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            sha256: hexadecimal::lower(&Sha256::digest(bytes)),
            bytes: Bytes(bytes.len() as u64),
        }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.sha256.get(..12).unwrap_or(&self.sha256);
        write!(f, "{} bytes of sha256 {short}...", self.bytes.0)
    }
}
