//! A file of weights mapped into memory, read-only.
//!
//! Weights point into the mapping, so a backbone costs no copy, is read from disk as it is touched, and is
//! shared by every process on the machine that maps the same file.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;

#[cfg(target_endian = "big")]
compile_error!("weights are used as the files store them: little-endian");

/// The bytes of a file, mapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    // A mapping of zero bytes does not exist, so an empty file has none.
    map: Option<Mmap>,
    /// What is mapped, also after another file has taken its name.
    file: File,
    path: PathBuf,
    opened_as: Stamp,
}

/// What a write in place changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    /// Absent where the file system keeps none.
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            length: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
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
        let opened_as = Stamp::of(&file.metadata()?);
        let map = if opened_as.length == 0 {
            None
        } else {
            // SAFETY: the map is read-only and private, and the slice it gives out lives no longer than the map.
            // What no program can rule out is that another one changes the file meanwhile: a write would change
            // weights under a shared reference, a truncation would end this process with SIGBUS. Files of
            // weights are replaced by renaming, not rewritten in place, by every tool that makes them, the documentation
            // of `Model` states the duty, and who trains asks `changed` before anything computed is kept. All values read from the bytes are plain numbers for
            // which every bit pattern is valid, and every length was checked against the size of this map.
            Some(unsafe { Mmap::map(&file)? })
        };
        Ok(Self {
            map,
            file,
            path: path.to_owned(),
            opened_as,
        })
    }

    /// The path it was opened at, if the file was written to since then. One that was replaced is what it was.
    pub(crate) fn changed(&self) -> Option<&Path> {
        let now = self.file.metadata().ok().map(|now| Stamp::of(&now));
        (now != Some(self.opened_as)).then_some(self.path.as_path())
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

    #[test]
    fn what_is_written_in_place_is_noticed_and_what_is_replaced_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other] = ["file", "other"].map(|name| folder.path().join(name));
        std::fs::write(&file, b"bytes").unwrap();
        let mapped = Mapping::open(&file).unwrap();
        assert_eq!(mapped.changed(), None);
        std::fs::write(&other, b"others").unwrap();
        std::fs::rename(&other, &file).unwrap();
        assert_eq!(mapped.changed(), None);
        let mapped = Mapping::open(&file).unwrap();
        let opened = mapped.file.metadata().unwrap().modified().unwrap();
        let later = opened + std::time::Duration::from_secs(9);
        let written = File::options().write(true).open(&file).unwrap();
        written.set_modified(later).unwrap();
        assert_eq!(mapped.changed(), Some(file.as_path()));
        let mapped = Mapping::open(&file).unwrap();
        written.set_len(9).unwrap();
        written.set_modified(later).unwrap();
        assert_eq!(mapped.changed(), Some(file.as_path()));
    }
}
