//! Folders that appear whole or not at all: write beside, sync, rename.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Says why a folder could not be made durable.
#[derive(Debug, Error)]
pub enum DurableError {
    /// The target is there already.
    #[error("{path} exists already: it is never replaced; remove it or choose another place")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot write {path}: {source} (nothing was left half written)")]
    Refused {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Writes a new folder with these files: all of them, synced, or none.
///
/// # Errors
/// [`DurableError::Exists`] when the folder is there; [`DurableError::Refused`] when the system refuses (disk
/// full, read-only, no permission): then what was written is removed again.
pub fn write_folder(folder: &Path, files: &[(&str, Vec<u8>)]) -> Result<(), DurableError> {
    if folder.symlink_metadata().is_ok() {
        return Err(DurableError::Exists {
            path: folder.to_path_buf(),
        });
    }
    let parent = folder.parent().unwrap_or_else(|| Path::new("."));
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let beside = parent.join(format!(".{name}.partial"));
    let written = fill(parent, folder, &beside, files).and_then(|()| {
        let refused = |source| DurableError::Refused {
            path: folder.to_path_buf(),
            source,
        };
        fs::rename(&beside, folder).map_err(refused)?;
        sync(parent).map_err(|source| {
            // The name may not outlive a power cut: better no folder than one that is believed to be safe.
            let _ = fs::remove_dir_all(folder);
            refused(source)
        })
    });
    if written.is_err() {
        // The first error is the one to report; a leftover would only be a partial folder, ignored by readers.
        let _ = fs::remove_dir_all(&beside);
    }
    written
}

/// Fills the folder beside; errors name the place that was asked for.
fn fill(
    parent: &Path,
    folder: &Path,
    beside: &Path,
    files: &[(&str, Vec<u8>)],
) -> Result<(), DurableError> {
    let refused = |path: &Path, source| DurableError::Refused {
        path: path.to_path_buf(),
        source,
    };
    make_folders(parent).map_err(|error| refused(parent, error))?;
    if beside.exists() {
        fs::remove_dir_all(beside).map_err(|error| refused(folder, error))?;
    }
    fs::create_dir(beside).map_err(|error| refused(folder, error))?;
    for (name, bytes) in files {
        let path = folder.join(name);
        let mut file = File::create(beside.join(name)).map_err(|error| refused(&path, error))?;
        file.write_all(bytes)
            .map_err(|error| refused(&path, error))?;
        file.sync_all().map_err(|error| refused(&path, error))?;
    }
    sync(beside).map_err(|error| refused(folder, error))
}

/// Makes a folder and those above it that are absent, with names that outlive a power cut.
///
/// # Errors
/// Of the system.
pub fn make_folders(folder: &Path) -> std::io::Result<()> {
    make_folders_with(folder, sync)
}

fn make_folders_with(
    folder: &Path,
    sync: impl FnMut(&Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut absent = Vec::new();
    for above in folder.ancestors() {
        if above.as_os_str().is_empty() || above.is_dir() {
            break;
        }
        absent.push(above);
    }
    fs::create_dir_all(folder)?;
    // A name is durable when the folder that holds it is synced: from the top down.
    let holders = absent.iter().rev().filter_map(|made| made.parent());
    holders.into_iter().try_for_each(sync)
}

/// Makes the names in a folder durable.
///
/// # Errors
/// Of the system.
pub fn sync(folder: &Path) -> std::io::Result<()> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_folder_is_whole_and_never_replaced() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("a/b");
        write_folder(&target, &[("x", b"1".to_vec()), ("y", b"2".to_vec())]).unwrap();
        assert_eq!(fs::read(target.join("y")).unwrap(), b"2");
        let again = write_folder(&target, &[("x", b"3".to_vec())]);
        assert!(matches!(again, Err(DurableError::Exists { .. })));
        assert_eq!(fs::read(target.join("x")).unwrap(), b"1");
    }

    #[test]
    fn folders_are_made_where_they_are_absent() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        make_folders(&deep).unwrap();
        make_folders(&deep).unwrap();
        assert!(deep.is_dir());
        fs::write(root.path().join("file"), b"").unwrap();
        assert!(make_folders(&root.path().join("file/sub")).is_err());
    }

    /// Each folder that holds a new name is synced once the name is there, from the top down, and no other.
    #[test]
    fn what_holds_a_made_folder_is_synced() {
        let root = tempfile::tempdir().unwrap();
        let (a, deep) = (root.path().join("a"), root.path().join("a/b/c"));
        let synced = |folder: &Path| {
            let mut synced = Vec::new();
            make_folders_with(folder, |holder| {
                assert!(deep.is_dir() || folder != deep, "before it is made");
                synced.push(holder.to_path_buf());
                Ok(())
            })
            .unwrap();
            synced
        };
        assert_eq!(synced(&deep), [root.path(), &a, &a.join("b")]);
        assert!(synced(&deep).is_empty());
        assert_eq!(synced(&deep.join("d")), std::slice::from_ref(&deep));
        let refused = make_folders_with(&a.join("other"), |_| {
            Err(std::io::ErrorKind::StorageFull.into())
        });
        assert_eq!(
            refused.unwrap_err().kind(),
            std::io::ErrorKind::StorageFull,
            "a name that may not last is no success"
        );
    }

    #[test]
    fn a_refused_write_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), b"in the way").unwrap();
        let target = root.path().join("file/sub");
        assert!(write_folder(&target, &[("x", b"1".to_vec())]).is_err());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
