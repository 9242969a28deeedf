//! SHA-256 of files.

use std::io::{self, Read};
use std::path::Path;

use data::regular;
use sha2::{Digest, Sha256};

/// Portion read at a time.
const PORTION: usize = 1 << 20;

/// Size and SHA-256 (lower-case hexadecimal) of a file.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn file(path: &Path) -> io::Result<(u64, String)> {
    let mut file = regular::open(path)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; PORTION];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        hasher.add(&buffer[..read]);
    }
}

/// A hash in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Hasher {
    bytes: u64,
    state: Sha256,
}

impl Hasher {
    /// Takes in more bytes.
    pub(super) fn add(&mut self, part: &[u8]) {
        self.bytes += part.len() as u64;
        self.state.update(part);
    }

    /// How many bytes there were, and their hash.
    pub(super) fn finish(self) -> (u64, String) {
        let digest = self.state.finalize();
        (
            self.bytes,
            digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        )
    }
}
