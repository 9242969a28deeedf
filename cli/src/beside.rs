//! Folders in the making: filled beside their place, and moved there when they are whole.
//!
//! A process that is killed leaves its folder behind. Each is locked while it is filled, so the next one that makes such
//! a folder there knows which nobody fills any more, and takes them away.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

use crate::training::lock::Lock;

/// How often a folder is made anew because another process took it for a leftover, between its making and its lock.
const TRIES: usize = 8;

/// A folder in the making; gone when dropped, unless it was moved.
#[derive(Debug)]
pub(crate) struct Beside {
    folder: TempDir,
    /// Absent where the file system knows no locks: there leftovers stay.
    _lock: Option<Lock>,
}

impl Beside {
    /// Makes an empty folder with a name of this beginning, and removes those of it that were left behind.
    ///
    /// # Errors
    /// Of the system; its words do not name the folder, which means nothing to anyone.
    pub(crate) fn new(parent: &Path, beginning: &str) -> io::Result<Self> {
        sweep(parent, beginning);
        let make = || {
            let made = tempfile::Builder::new()
                .prefix(beginning)
                .tempdir_in(parent);
            made.map_err(|error| io::Error::from(error.kind()))
        };
        for _ in 0..TRIES {
            let folder = make()?;
            if let Ok(Some(lock)) = Lock::take(folder.path()) {
                return Ok(Self {
                    folder,
                    _lock: Some(lock),
                });
            }
        }
        Ok(Self {
            folder: make()?,
            _lock: None,
        })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes what was left behind. What cannot be removed is in nobody's way.
fn sweep(parent: &Path, beginning: &str) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let own = entry.file_name().to_string_lossy().starts_with(beginning);
        if !own || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if let Ok(Some(_lock)) = Lock::take(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_a_killed_process_left_goes_and_what_is_being_filled_stays() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(".merge-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("weights"), b"x").unwrap();
        let other = parent.path().join("merge-own");
        fs::create_dir(&other).unwrap();
        let filled = Beside::new(parent.path(), ".merge-").unwrap();
        let second = Beside::new(parent.path(), ".merge-").unwrap();
        assert!(!left.exists() && other.exists());
        assert!(filled.path().exists() && filled.path() != second.path());
        let place = parent.path().join("place");
        fs::rename(second.path(), &place).unwrap();
        drop((filled, second));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
        assert!(place.exists());
        assert!(Beside::new(&parent.path().join("absent"), ".merge-").is_err());
    }
}
