//! The shell of the readers: opens a file of a trace and hands its text on.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Observed;
use super::fault::FeedError;
use super::format::{self, Format};

/// Largest file that is read, in bytes.
pub const MOST_BYTES: u64 = 1 << 28;

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too large.
    #[error("{}: more than {MOST_BYTES} bytes: split it", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
    /// It is no text.
    #[error("{}: not UTF-8 from byte {at} on", path.display())]
    NotText {
        /// Which file.
        path: PathBuf,
        /// Where that begins.
        at: usize,
    },
    /// What is in it.
    #[error(transparent)]
    Feed(#[from] FeedError),
}

/// Reads a file in the given format, or in the one that its content looks like; one [`Observed`] for each pool in it.
///
/// # Errors
/// See [`FileError`].
pub fn read(path: &Path, format: Option<Format>) -> Result<Vec<Observed>, FileError> {
    let io = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
        });
    }
    let text = String::from_utf8(bytes).map_err(|error| FileError::NotText {
        path: path.to_owned(),
        at: error.utf8_error().valid_up_to(),
    })?;
    Ok(format::read(&path.display().to_string(), &text, format)?)
}
