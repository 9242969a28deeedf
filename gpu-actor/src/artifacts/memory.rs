//! A store in memory, for tests and for pipelines within one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ArtifactError, Artifacts};

/// Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct MemoryArtifacts(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl MemoryArtifacts {
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Artifacts for MemoryArtifacts {
    fn get(&self, key: &str) -> Result<Vec<u8>, ArtifactError> {
        let found = self.held().get(key).cloned();
        found.ok_or_else(|| ArtifactError::Missing { key: key.into() })
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.held().insert(key.into(), bytes.into());
        Ok(())
    }

    fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, ArtifactError> {
        let mut held = self.held();
        let free = !held.contains_key(key);
        if free {
            held.insert(key.into(), bytes.into());
        }
        Ok(free)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, ArtifactError> {
        let held = self.held();
        let keys = held.keys().filter(|key| key.starts_with(prefix));
        Ok(keys.cloned().collect())
    }

    fn delete(&self, key: &str) -> Result<(), ArtifactError> {
        self.held().remove(key);
        Ok(())
    }
}
