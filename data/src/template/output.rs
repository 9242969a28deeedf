//! A writer that stops at a limit.

use std::io;

/// Collects text up to a number of bytes and then refuses.
#[derive(Debug)]
pub(super) struct CappedOutput {
    bytes: Vec<u8>,
    limit: usize,
}

impl CappedOutput {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
        }
    }

    /// The collected text. The engine writes whole strings, so it is valid.
    pub(super) fn into_text(self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl io::Write for CappedOutput {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + part.len() > self.limit {
            return Err(io::Error::other("output limit reached"));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
