//! The shared store of artifacts as the engine sees it.

use shared::artifact::{ArtifactError as StoreError, BlockingStore, Key};

use crate::artifacts::{ArtifactError, Artifacts};

/// A store for the threads of a stage.
#[derive(Debug)]
pub(super) struct SharedStore(pub(super) BlockingStore);

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
