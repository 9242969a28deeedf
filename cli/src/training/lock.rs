//! One run a folder: the folder itself is locked, which leaves nothing behind and ends with the process, however it ends.

use std::fs::{self, File, Metadata, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A folder taken by this process, until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _folder: File,
}

/// Another run has the folder.
#[derive(Debug, Error)]
#[error("{} is in use by another run{}: wait for its end, or choose another output folder", path.display(), holder(*process))]
pub(crate) struct LockError {
    path: PathBuf,
    process: Option<u32>,
}

fn holder(process: Option<u32>) -> String {
    process.map_or(String::new(), |id| format!(" (process {id})"))
}

impl Lock {
    /// Takes a folder; none when it is absent, or gone by the time that it is taken.
    ///
    /// # Errors
    /// [`LockError`] when another run has it.
    pub(crate) fn take(folder: &Path) -> Result<Option<Self>, LockError> {
        match File::open(folder) {
            Ok(open) => Self::of(open, folder),
            Err(_) => Ok(None),
        }
    }

    fn of(open: File, folder: &Path) -> Result<Option<Self>, LockError> {
        match open.try_lock() {
            Ok(()) => Ok(is_at(&open, folder).then(|| Self { _folder: open })),
            Err(TryLockError::WouldBlock) => Err(LockError {
                path: folder.to_path_buf(),
                process: open.metadata().ok().and_then(|data| process(&data)),
            }),
            Err(TryLockError::Error(error)) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "cannot be locked: two runs there at once would spoil each other");
                Ok(None)
            }
        }
    }
}

/// Whether an open folder is the one at a path: another may have removed it, or moved it away, before the lock was taken.
fn is_at(open: &File, path: &Path) -> bool {
    let place = |data: Metadata| (data.dev(), data.ino());
    match (open.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => place(open) == place(there),
        _ => false,
    }
}

/// The process that holds a lock on a file, where the system tells.
fn process(file: &Metadata) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, file.dev(), file.ino())
}

/// From lines such as `1: FLOCK  ADVISORY  WRITE 4711 08:01:393217 0 EOF`, the device in hexadecimal. Some file systems
/// show another device there than to those who ask for the file's: then nobody is named.
fn holder_in(locks: &str, device: u64, file: u64) -> Option<u32> {
    let (major, minor) = major_minor(device);
    let held = format!("{major:02x}:{minor:02x}:{file}");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, "WRITE", process, place, ..] if place == held => process.parse().ok(),
            _ => None,
        }
    })
}

/// The two numbers of a device, as Linux packs them.
fn major_minor(device: u64) -> (u64, u64) {
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff);
    let minor = (device & 0xff) | ((device >> 12) & !0xff);
    (major & 0xffff_ffff, minor & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Lock::take(&folder.path().join("absent")).unwrap().is_none());
        let held = Lock::take(folder.path()).unwrap().unwrap();
        let told = Lock::take(folder.path()).unwrap_err().to_string();
        assert!(told.contains("in use by another run"), "{told}");
        drop(held);
        assert!(Lock::take(folder.path()).unwrap().is_some());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_went_before_it_was_taken_is_absent() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        let opened = || {
            fs::create_dir(&folder).unwrap();
            File::open(&folder).unwrap()
        };
        let open = opened();
        fs::remove_dir(&folder).unwrap();
        assert!(Lock::of(open, &folder).unwrap().is_none());
        let open = opened();
        fs::rename(&folder, parent.path().join("moved")).unwrap();
        let other = opened();
        assert!(Lock::of(open, &folder).unwrap().is_none());
        assert!(Lock::of(other, &folder).unwrap().is_some());
    }

    #[test]
    fn the_holder_is_found_by_its_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 1 08:01:17 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 08:01:17 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 9 08:01:17 0 EOF\n";
        assert_eq!(holder_in(locks, 0x801, 17), Some(4711));
        assert_eq!(holder_in(locks, 0x801, 7), None);
        // The same number on another device is another file.
        assert_eq!(holder_in(locks, 0x802, 17), None);
        assert_eq!(major_minor(0x1_0000_0801), (0x8, 0x10_0001));
        assert_eq!(major_minor(0xfe03), (0xfe, 3));
        assert_eq!(major_minor(0x3456_0801), (0x608, 0x34501));
    }
}
