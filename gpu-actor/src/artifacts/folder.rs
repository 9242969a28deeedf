//! A store in a folder: keys are paths below it. Files are written beside, synced, and moved or linked to their name.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ArtifactError, Artifacts};

/// A store in a folder.
#[derive(Debug)]
pub struct FolderArtifacts {
    root: PathBuf,
    written: AtomicU64,
}

/// Names of files that are being written begin so; they are no artifacts.
const PARTIAL: &str = ".partial-";

impl FolderArtifacts {
    /// The store in this folder, which is made when something is stored.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            written: AtomicU64::new(0),
        }
    }

    /// The file of a key, whose segments must be names and nothing else.
    fn path(&self, key: &str) -> Result<PathBuf, ArtifactError> {
        let name = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('\\');
        if !key.split('/').all(name) {
            return Err(failed(key, "it is no key: use names divided by slashes"));
        }
        Ok(self.root.join(key))
    }

    /// Writes beside a path and gives the file to `place`.
    fn write<R>(
        &self,
        key: &str,
        bytes: &[u8],
        place: impl FnOnce(&Path, &Path) -> std::io::Result<R>,
    ) -> Result<R, ArtifactError> {
        let path = self.path(key)?;
        let folder = path.parent().unwrap_or(&self.root);
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let beside = folder.join(format!("{PARTIAL}{}-{number}", std::process::id()));
        let written = (|| {
            fs::create_dir_all(folder)?;
            let mut file = File::create(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            let placed = place(&beside, &path)?;
            File::open(folder)?.sync_all()?;
            Ok(placed)
        })();
        // Gone already when it was moved; else a leftover that readers ignore.
        let _ = fs::remove_file(&beside);
        written.map_err(|error: std::io::Error| failed(key, error))
    }
}

fn failed(key: &str, reason: impl ToString) -> ArtifactError {
    ArtifactError::Failed {
        key: key.into(),
        reason: reason.to_string(),
    }
}

impl Artifacts for FolderArtifacts {
    fn get(&self, key: &str) -> Result<Vec<u8>, ArtifactError> {
        fs::read(self.path(key)?).map_err(|error| match error.kind() {
            ErrorKind::NotFound => ArtifactError::Missing { key: key.into() },
            _ => failed(key, error),
        })
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.write(key, bytes, |beside, path| fs::rename(beside, path))
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, ArtifactError> {
        self.write(key, bytes, |beside, path| {
            match fs::hard_link(beside, path) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, ArtifactError> {
        let mut keys = Vec::new();
        let mut open = vec![String::new()];
        while let Some(folder) = open.pop() {
            let entries = match fs::read_dir(self.root.join(&folder)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&folder, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| failed(&folder, error))?;
                let kind = entry.file_type().map_err(|error| failed(&folder, error))?;
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                    continue;
                };
                let key = match folder.as_str() {
                    "" => name.clone(),
                    folder => format!("{folder}/{name}"),
                };
                let within = key.starts_with(prefix) || prefix.starts_with(&format!("{key}/"));
                if kind.is_dir() && within {
                    open.push(key);
                } else if kind.is_file() && !name.starts_with('.') && key.starts_with(prefix) {
                    keys.push(key);
                }
            }
        }
        keys.sort();
        Ok(keys)
    }

    fn delete(&self, key: &str) -> Result<(), ArtifactError> {
        match fs::remove_file(self.path(key)?) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(key, error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::memory::MemoryArtifacts;
    use super::*;

    fn is_a_store(store: &dyn Artifacts) {
        assert_eq!(store.list("").unwrap(), [""; 0]);
        assert!(store.create("a/b/c", b"1").unwrap());
        assert!(!store.create("a/b/c", b"2").unwrap());
        assert_eq!(store.get("a/b/c").unwrap(), b"1");
        store.put("a/b/c", b"3").unwrap();
        store.put("a/bc", b"4").unwrap();
        store.put("b", b"5").unwrap();
        assert_eq!(store.get("a/b/c").unwrap(), b"3");
        assert_eq!(store.list("a/b").unwrap(), ["a/b/c", "a/bc"]);
        assert_eq!(store.list("a/b/").unwrap(), ["a/b/c"]);
        assert_eq!(store.list("c/").unwrap(), [""; 0]);
        store.delete("a/b/c").unwrap();
        store.delete("a/b/c").unwrap();
        let missing = ArtifactError::Missing {
            key: "a/b/c".into(),
        };
        assert_eq!(store.get("a/b/c"), Err(missing));
    }

    #[test]
    fn both_stores_keep_what_they_are_given() {
        is_a_store(&MemoryArtifacts::default());
        let root = tempfile::tempdir().unwrap();
        let store = FolderArtifacts::new(root.path().join("store"));
        is_a_store(&store);
        for key in ["../a", "/a", "a//b", "", "a/.b", "a\\b"] {
            assert!(store.put(key, b"1").is_err(), "{key:?}");
        }
    }
}
