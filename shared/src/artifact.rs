//! The store of artifacts: what outlives a process, in a folder or a bucket.
//!
//! - `AR-1` What a key shows is whole: an object appears at once, after its bytes are durable.
//! - `AR-2` [`Store::create`] never replaces: of two who create one key, one is told that it exists.
//! - `AR-3` Damage is found by who knows the [`Stamp`]: [`Store::get_checked`], [`Store::pieces`].
//!
//! Large things are written first and what names them last, with [`Store::create`] or [`Store::put`].

mod address;
mod blocking;
mod key;
mod pieces;
mod stamp;

pub use address::{Address, AddressError};
pub use blocking::BlockingStore;
pub use key::{BadKey, Key};
pub use pieces::Pieces;
pub use stamp::Stamp;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path as Location;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use thiserror::Error;

use crate::units;

/// Largest object read into memory, in bytes, unless told otherwise: 4 GiB.
pub const MOST_BYTES: u64 = 4 << 30;

/// Says why the store did not do what was asked.
#[derive(Debug, Error)]
pub enum ArtifactError {
    /// Where it is.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Nothing there.
    #[error("{store} has no {key}")]
    NotFound {
        /// The store.
        store: String,
        /// The key.
        key: Key,
    },
    /// Something there.
    #[error("{store} has {key} already, and it is never replaced")]
    Exists {
        /// The store.
        store: String,
        /// The key.
        key: Key,
    },
    /// Not what was written.
    #[error(
        "{key} in {store} is damaged: it should be {wanted}, and is {got}; take an older one, or restore it"
    )]
    Damaged {
        /// The store.
        store: String,
        /// The key.
        key: Key,
        /// As it should be.
        wanted: Box<Stamp>,
        /// As it is.
        got: Box<Stamp>,
    },
    /// Over the limit.
    #[error(
        "{key} in {store} has {bytes} bytes, and the limit is {limit}, which is fixed: it is none of ours, or was made by a release that takes larger ones"
    )]
    TooLong {
        /// The store.
        store: String,
        /// The key.
        key: Key,
        /// Its size.
        bytes: u64,
        /// Largest allowed.
        limit: u64,
    },
    /// The system or the service refuses.
    #[error("cannot {what} in {store}: {source}")]
    Refused {
        /// What was tried.
        what: String,
        /// The store.
        store: String,
        /// Its reason.
        source: object_store::Error,
    },
    /// No runtime for the blocking side.
    #[error("cannot start a runtime for the store: {0}")]
    Runtime(std::io::Error),
}

/// A folder or a bucket.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    prefix: Location,
    name: Arc<str>,
    most: u64,
}

impl Store {
    /// Opens a path, a `file://` or an `s3://bucket/prefix`. The options are those of the service, as `region`,
    /// `access_key_id`, `secret_access_key`, `token`, `endpoint`; a folder has none.
    ///
    /// # Errors
    /// [`ArtifactError::Address`]. Whether a bucket answers is found out with the first operation.
    pub fn open(address: &str, options: &BTreeMap<String, String>) -> Result<Self, ArtifactError> {
        let address: Address = address.parse()?;
        let (inner, prefix) = address.connect(options)?;
        Ok(Self {
            inner,
            prefix,
            name: address.to_string().into(),
            most: MOST_BYTES,
        })
    }

    /// Reads no object larger than this.
    #[must_use]
    pub fn with_most(self, most: units::Bytes) -> Self {
        Self {
            most: most.0,
            ..self
        }
    }

    /// Where it is, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes an object, in place of one that may be there.
    ///
    /// # Errors
    /// [`ArtifactError::Refused`].
    pub async fn put(&self, key: &Key, bytes: impl Into<Bytes>) -> Result<Stamp, ArtifactError> {
        self.write(key, bytes.into(), PutMode::Overwrite).await
    }

    /// Writes an object that is not there yet.
    ///
    /// # Errors
    /// [`ArtifactError::Exists`], [`ArtifactError::Refused`].
    pub async fn create(&self, key: &Key, bytes: impl Into<Bytes>) -> Result<Stamp, ArtifactError> {
        self.write(key, bytes.into(), PutMode::Create).await
    }

    async fn write(&self, key: &Key, bytes: Bytes, mode: PutMode) -> Result<Stamp, ArtifactError> {
        let stamp = Stamp::of(&bytes);
        let options = PutOptions::from(mode);
        let payload = PutPayload::from_bytes(bytes);
        let written = self
            .inner
            .put_opts(&self.location(key), payload, options)
            .await;
        written.map_err(|error| self.explain("write", key, error))?;
        Ok(stamp)
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// [`ArtifactError::NotFound`], [`ArtifactError::TooLong`], [`ArtifactError::Refused`].
    pub async fn get(&self, key: &Key) -> Result<Bytes, ArtifactError> {
        let explain = |error| self.explain("read", key, error);
        let found = self.inner.get(&self.location(key)).await.map_err(explain)?;
        let (bytes, limit) = (found.meta.size, self.most);
        if bytes > limit {
            return Err(ArtifactError::TooLong {
                store: self.name.to_string(),
                key: key.clone(),
                bytes,
                limit,
            });
        }
        found.bytes().await.map_err(explain)
    }

    /// The bytes of an object that must be those of the stamp.
    ///
    /// # Errors
    /// As [`Self::get`], and [`ArtifactError::Damaged`].
    pub async fn get_checked(&self, key: &Key, wanted: &Stamp) -> Result<Bytes, ArtifactError> {
        let bytes = self.get(key).await?;
        let got = Stamp::of(&bytes);
        if got == *wanted {
            return Ok(bytes);
        }
        Err(ArtifactError::Damaged {
            store: self.name.to_string(),
            key: key.clone(),
            wanted: Box::new(wanted.clone()),
            got: Box::new(got),
        })
    }

    /// Whether an object is there, and how large.
    ///
    /// # Errors
    /// [`ArtifactError::Refused`].
    pub async fn size(&self, key: &Key) -> Result<Option<units::Bytes>, ArtifactError> {
        match self.inner.head(&self.location(key)).await {
            Ok(meta) => Ok(Some(units::Bytes(meta.size))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.explain("look at", key, error)),
        }
    }

    /// Whether an object is there.
    ///
    /// # Errors
    /// [`ArtifactError::Refused`].
    pub async fn exists(&self, key: &Key) -> Result<bool, ArtifactError> {
        Ok(self.size(key).await?.is_some())
    }

    /// The keys below a prefix, which ends at a `/`, in order, each with its size; all keys when there is no prefix.
    ///
    /// # Errors
    /// [`ArtifactError::Refused`].
    pub async fn list(
        &self,
        prefix: Option<&Key>,
    ) -> Result<Vec<(Key, units::Bytes)>, ArtifactError> {
        let below = prefix.map_or_else(|| self.prefix.clone(), |prefix| self.location(prefix));
        let listed: Vec<_> =
            self.inner
                .list(Some(&below))
                .try_collect()
                .await
                .map_err(|source| ArtifactError::Refused {
                    what: format!("list {below}"),
                    store: self.name.to_string(),
                    source,
                })?;
        let keys = listed.into_iter().filter_map(|meta| {
            let parts = meta.location.prefix_match(&self.prefix)?;
            let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
            // What is no key of ours, somebody else put there.
            let key = Key::new(parts.join("/")).ok()?;
            Some((key, units::Bytes(meta.size)))
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        Ok(keys)
    }

    /// Removes an object; one that is not there is no error.
    ///
    /// # Errors
    /// [`ArtifactError::Refused`].
    pub async fn delete(&self, key: &Key) -> Result<(), ArtifactError> {
        match self.inner.delete(&self.location(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.explain("delete", key, error)),
        }
    }

    fn location(&self, key: &Key) -> Location {
        let parts = key.as_str().split('/');
        Location::from_iter(self.prefix.parts().chain(parts.map(Into::into)))
    }

    fn explain(&self, what: &str, key: &Key, error: object_store::Error) -> ArtifactError {
        let (store, key) = (self.name.to_string(), key.clone());
        match error {
            object_store::Error::NotFound { .. } => ArtifactError::NotFound { store, key },
            object_store::Error::AlreadyExists { .. } => ArtifactError::Exists { store, key },
            source => ArtifactError::Refused {
                what: format!("{what} {key}"),
                store,
                source,
            },
        }
    }
}

#[cfg(test)]
mod tests;
