//! Files with secrets: for their owner alone, whole or not there, still there after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Says why such a file was not written or read.
#[derive(Debug, Error)]
pub enum PrivateFileError {
    /// It is there already.
    #[error("{path} exists already: it is never replaced; remove it, or choose another place")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {what} {path}: {source}")]
    Refused {
        /// To write or to read.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Writes a file that must not be there yet.
///
/// # Errors
/// [`PrivateFileError`].
pub(super) fn create(path: &Path, bytes: &[u8]) -> Result<(), PrivateFileError> {
    write(path, bytes, |beside| fs::hard_link(beside, path))
}

/// Writes a file, in place of one that may be there.
///
/// # Errors
/// [`PrivateFileError::Refused`].
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), PrivateFileError> {
    write(path, bytes, |beside| fs::rename(beside, path))
}

/// Reads a whole file as text.
///
/// # Errors
/// [`PrivateFileError::Refused`].
pub(super) fn read(path: &Path) -> Result<String, PrivateFileError> {
    fs::read_to_string(path).map_err(|source| PrivateFileError::Refused {
        what: "read",
        path: path.to_path_buf(),
        source,
    })
}

/// The folder of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Writes beside, syncs, and gives it its name by `publish`.
fn write(
    path: &Path,
    bytes: &[u8],
    publish: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), PrivateFileError> {
    let folder = folder_of(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.{}.partial", std::process::id()));
    let written = fs::create_dir_all(folder)
        .and_then(|()| fill(&beside, bytes))
        .and_then(|()| publish(&beside))
        .and_then(|()| sync_folder(folder));
    // Gone after a rename, and of no use after a link or a failure.
    let _ = fs::remove_file(&beside);
    written.map_err(|source| {
        let path = path.to_path_buf();
        if source.kind() == io::ErrorKind::AlreadyExists {
            return PrivateFileError::Exists { path };
        }
        PrivateFileError::Refused {
            what: "write",
            path,
            source,
        }
    })
}

fn fill(beside: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(beside)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_secret_is_its_owners_and_is_not_overwritten_by_accident() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/key");
        create(&path, b"one").unwrap();
        assert!(matches!(
            create(&path, b"two"),
            Err(PrivateFileError::Exists { .. })
        ));
        assert_eq!(read(&path).unwrap(), "one");
        replace(&path, b"three").unwrap();
        assert_eq!(read(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }
}
