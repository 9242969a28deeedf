//! The header of a GGUF file, proven before the library parses it.
//!
//! A parser that trusts lengths allocates what a lying file asks for. Here every count, length, dimension and
//! offset is held against the bytes that are there, without allocating by any of them; what passes is sound for
//! the library. Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, versions 2 and 3.
//!
//! Tensor data must lie as the format says: in the order of the headers, each start rounded up to the alignment,
//! nothing between, nothing after but padding. So there can be no overlap.

mod walk;

use std::ops::Range;

use kernels::weight::Format;
use shared::excerpt::excerpt;
use thiserror::Error;

use self::walk::{Head, Walk};

/// Tells what is wrong with the header of a GGUF file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GgufCheckError {
    /// Another kind of file, or a version that is not read.
    #[error("not a GGUF file of version 2 or 3: {found}")]
    Kind {
        /// What the first bytes say.
        found: String,
    },
    /// The file ends before its content does.
    #[error("truncated: {what} needs {expected} bytes, the file has {actual}")]
    Truncated {
        /// The part that does not fit.
        what: String,
        /// Bytes that the file should have, at least.
        expected: u64,
        /// Bytes that it has.
        actual: u64,
    },
    /// A count or length above what any model has.
    #[error("{what} is {found}, above the limit of {limit}")]
    TooLarge {
        /// What is counted.
        what: String,
        /// The count.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Bytes that should be text are not.
    #[error("{what} at offset {offset} is not UTF-8")]
    NotUtf8 {
        /// What the text is.
        what: String,
        /// Where it starts in the file.
        offset: u64,
    },
    /// A metadata key or tensor name twice.
    #[error("{what} \"{}\" appears twice", excerpt(.name))]
    Duplicate {
        /// Key or tensor.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A value of a kind or with a content that the format does not know.
    #[error("metadata \"{}\": {reason}", excerpt(.key))]
    Value {
        /// The metadata key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor whose type, shape or place is wrong.
    #[error("tensor \"{}\": {reason}", excerpt(.name))]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A tensor as its header describes it, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GgufTensor {
    pub(crate) name: String,
    pub(crate) format: Format,
    /// Outer dimension first, the reverse of the file's order.
    pub(crate) shape: Vec<usize>,
    /// Bytes from the start of the file.
    pub(crate) range: Range<usize>,
}

/// Proves the header of a whole file; gives its tensors in the order of the file.
///
/// # Errors
/// [`GgufCheckError`], with what was expected and what is there.
pub(crate) fn check(file: &[u8]) -> Result<Vec<GgufTensor>, GgufCheckError> {
    let mut walk = Walk::new(file);
    let (tensors, keys) = walk.counts()?;
    let alignment = walk.metadata(keys)?;
    let heads = walk.tensors(tensors)?;
    let start = walk.at().next_multiple_of(alignment);
    place(heads, start, alignment, file.len() as u64)
}

fn tensor(name: &str, reason: String) -> GgufCheckError {
    GgufCheckError::Tensor {
        name: name.to_owned(),
        reason,
    }
}

/// Checks where the data of each tensor lies.
fn place(
    heads: Vec<Head>,
    start: u64,
    alignment: u64,
    file: u64,
) -> Result<Vec<GgufTensor>, GgufCheckError> {
    let mut next = 0u64;
    let mut tensors = Vec::with_capacity(heads.len());
    for head in heads {
        if head.offset != next {
            return Err(tensor(
                &head.name,
                format!("starts at offset {}, expected {next}", head.offset),
            ));
        }
        // No overflow: `next` is at most the file's length, a tensor has fewer than 2^50 bytes.
        let begin = start.saturating_add(next);
        let end = begin.saturating_add(head.bytes);
        if end > file {
            return Err(GgufCheckError::Truncated {
                what: format!("tensor {:?}", head.name),
                expected: end,
                actual: file,
            });
        }
        next = (next + head.bytes).next_multiple_of(alignment);
        tensors.push(GgufTensor {
            name: head.name,
            format: head.format,
            shape: head.shape,
            range: begin as usize..end as usize,
        });
    }
    let end = start.saturating_add(next);
    if file > end {
        return Err(tensor(
            tensors.last().map_or("none", |last| &last.name),
            format!("is the last, and {} bytes follow it", file - end),
        ));
    }
    Ok(tensors)
}
