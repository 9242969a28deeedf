//! A file of weights mapped into memory, read-only.
//!
//! Weights point into the mapping, so a backbone costs no copy, is read from disk as it is touched, and is
//! shared by every process on the machine that maps the same file.

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

#[cfg(target_endian = "big")]
compile_error!("weights are used as the files store them: little-endian");

/// The bytes of a file, mapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    // A mapping of zero bytes does not exist, so an empty file has none.
    map: Option<Mmap>,
}

impl Mapping {
    /// Maps a regular file.
    ///
    /// # Errors
    /// When the path is no regular file (a pipe or device would never end), or cannot be opened or mapped.
    #[expect(
        unsafe_code,
        reason = "memory-mapping a file is unsafe in every library"
    )]
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if !path.metadata()?.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        let file = File::open(path)?;
        let map = if file.metadata()?.len() == 0 {
            None
        } else {
            // SAFETY: the map is read-only and private, and the slice it gives out lives no longer than the map.
            // What no program can rule out is that another one changes the file meanwhile: a write would change
            // weights under a shared reference, a truncation would end this process with SIGBUS. Files of
            // weights are replaced by renaming, not rewritten in place, by every tool that makes them, and the
            // documentation of `Model` states the duty. All values read from the bytes are plain numbers for
            // which every bit pattern is valid, and every length was checked against the size of this map.
            Some(unsafe { Mmap::map(&file)? })
        };
        Ok(Self { map })
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn only_regular_files_are_mapped() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Mapping::open(folder.path()).is_err());
        assert!(Mapping::open(&folder.path().join("absent")).is_err());
        let file = folder.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert_eq!(Mapping::open(&file).unwrap().as_ref(), b"");
        std::fs::write(&file, b"bytes").unwrap();
        assert_eq!(Mapping::open(&file).unwrap().as_ref(), b"bytes");
    }
}
