//! The store for a plain thread: the writer of a device thread has no runtime of its own.

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};

use super::{ArtifactError, Key, Stamp, Store};
use crate::units;

/// A [`Store`] whose calls return when they are done. Not for use inside a runtime: there, its calls panic.
#[derive(Debug)]
pub struct BlockingStore {
    store: Store,
    runtime: Runtime,
}

impl BlockingStore {
    /// Over a store, with a runtime of its own on the calling thread.
    ///
    /// # Errors
    /// [`ArtifactError::Runtime`].
    pub fn new(store: Store) -> Result<Self, ArtifactError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ArtifactError::Runtime)?;
        Ok(Self { store, runtime })
    }

    /// Where it is, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        self.store.name()
    }

    /// As [`Store::put`].
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn put(&self, key: &Key, bytes: impl Into<Bytes>) -> Result<Stamp, ArtifactError> {
        self.runtime.block_on(self.store.put(key, bytes))
    }

    /// As [`Store::create`].
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn create(&self, key: &Key, bytes: impl Into<Bytes>) -> Result<Stamp, ArtifactError> {
        self.runtime.block_on(self.store.create(key, bytes))
    }

    /// As [`Store::get`].
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn get(&self, key: &Key) -> Result<Bytes, ArtifactError> {
        self.runtime.block_on(self.store.get(key))
    }

    /// As [`Store::get_checked`].
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn get_checked(&self, key: &Key, wanted: &Stamp) -> Result<Bytes, ArtifactError> {
        self.runtime.block_on(self.store.get_checked(key, wanted))
    }

    /// As [`Store::size`].
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn size(&self, key: &Key) -> Result<Option<units::Bytes>, ArtifactError> {
        self.runtime.block_on(self.store.size(key))
    }

    /// As [`Store::exists`].
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn exists(&self, key: &Key) -> Result<bool, ArtifactError> {
        self.runtime.block_on(self.store.exists(key))
    }

    /// As [`Store::list`].
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn list(&self, prefix: Option<&Key>) -> Result<Vec<(Key, units::Bytes)>, ArtifactError> {
        self.runtime.block_on(self.store.list(prefix))
    }

    /// As [`Store::delete`].
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn delete(&self, key: &Key) -> Result<(), ArtifactError> {
        self.runtime.block_on(self.store.delete(key))
    }
}
