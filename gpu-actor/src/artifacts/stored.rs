//! The shared store of artifacts as the engine sees it.

use shared::artifact::{ArtifactError as StoreError, BlockingStore, Key};

use super::{ArtifactError, Artifacts};

/// A store for the threads of a stage; not for use inside a runtime.
#[derive(Debug)]
pub struct SharedStore(BlockingStore);

impl SharedStore {
    /// Over a folder or a bucket.
    #[must_use]
    pub fn new(store: BlockingStore) -> Self {
        Self(store)
    }
}

fn failed(key: &str, reason: &dyn std::fmt::Display) -> ArtifactError {
    ArtifactError::Failed {
        key: key.to_owned(),
        reason: reason.to_string(),
    }
}

fn key(text: &str) -> Result<Key, ArtifactError> {
    Key::new(text).map_err(|error| failed(text, &error))
}

fn told(text: &str) -> impl Fn(StoreError) -> ArtifactError + '_ {
    |error| match error {
        StoreError::NotFound { .. } => ArtifactError::Missing {
            key: text.to_owned(),
        },
        other => failed(text, &other),
    }
}

impl Artifacts for SharedStore {
    fn get(&self, text: &str) -> Result<Vec<u8>, ArtifactError> {
        let bytes = self.0.get(&key(text)?).map_err(told(text))?;
        Ok(bytes.into())
    }

    fn put(&self, text: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        let put = self.0.put(&key(text)?, bytes.to_vec());
        put.map(|_| ()).map_err(told(text))
    }

    fn create(&self, text: &str, bytes: &[u8]) -> Result<bool, ArtifactError> {
        match self.0.create(&key(text)?, bytes.to_vec()) {
            Ok(_) => Ok(true),
            Err(StoreError::Exists { .. }) => Ok(false),
            Err(error) => Err(told(text)(error)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, ArtifactError> {
        let found = self.0.list(Some(&key(prefix.trim_end_matches('/'))?));
        let found = found.map_err(told(prefix))?;
        let keys = found.into_iter().map(|(key, _)| key.as_str().to_owned());
        let mut keys: Vec<String> = keys.filter(|key| key.starts_with(prefix)).collect();
        keys.sort();
        Ok(keys)
    }

    fn delete(&self, text: &str) -> Result<(), ArtifactError> {
        match self.0.delete(&key(text)?) {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(told(text)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use shared::artifact::Store;

    use super::*;
    use crate::artifacts::memory::MemoryArtifacts;

    fn is_a_store(store: &dyn Artifacts) {
        assert_eq!(store.list("a/").unwrap(), [""; 0]);
        assert!(store.create("a/b/c", b"1").unwrap());
        assert!(!store.create("a/b/c", b"2").unwrap());
        assert_eq!(store.get("a/b/c").unwrap(), b"1");
        store.put("a/b/c", b"3").unwrap();
        store.put("a/bc", b"4").unwrap();
        assert_eq!(store.get("a/b/c").unwrap(), b"3");
        assert_eq!(store.list("a/").unwrap(), ["a/b/c", "a/bc"]);
        assert_eq!(store.list("a/b/").unwrap(), ["a/b/c"]);
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
        let folder = root.path().join("store").display().to_string();
        let store = Store::open(&folder, &BTreeMap::new()).unwrap();
        let store = SharedStore::new(BlockingStore::new(store).unwrap());
        is_a_store(&store);
        for key in ["../a", "/a", "a//b", ""] {
            assert!(store.put(key, b"1").is_err(), "{key:?}");
        }
    }
}
