//! A weight as instructions see it: bytes, without the owner.

use std::ops::Range;

use super::format::{BLOCK, Format, Storage};

/// A weight as the loops below see it: its bytes and their distances.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub(crate) format: Format,
    pub(crate) bytes: &'a [u8],
    /// Bytes of a row.
    pub(crate) row: usize,
}

impl Stored<'_> {
    /// Returns the bytes of some inputs of one output.
    #[inline(always)]
    pub(crate) fn run_of<S: Storage>(&self, output: usize, inputs: &Range<usize>) -> &[u8] {
        // A block, or as many single values: whole runs divide evenly, and single values have whole bytes.
        let at = |input: usize| output * self.row + input * S::BYTES / BLOCK;
        &self.bytes[at(inputs.start)..at(inputs.end)]
    }
}
