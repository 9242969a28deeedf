//! An object piece by piece, so that a large one is never in memory as a whole.

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use object_store::ObjectStoreExt;
use sha2::{Digest, Sha256};

use super::{ArtifactError, Key, Stamp, Store};
use crate::hexadecimal;
use crate::units;

/// The pieces of an object that must be that of a stamp.
pub struct Pieces {
    store: Store,
    key: Key,
    wanted: Stamp,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    hash: Sha256,
    bytes: u64,
}

impl Store {
    /// The bytes of an object that must be those of the stamp, piece by piece.
    ///
    /// # Errors
    /// [`ArtifactError::NotFound`], [`ArtifactError::Refused`].
    pub async fn pieces(&self, key: &Key, wanted: &Stamp) -> Result<Pieces, ArtifactError> {
        let found = self.inner.get(&self.location(key)).await;
        let found = found.map_err(|error| self.explain("read", key, error))?;
        Ok(Pieces {
            store: self.clone(),
            key: key.clone(),
            wanted: wanted.clone(),
            stream: found.into_stream(),
            hash: Sha256::new(),
            bytes: 0,
        })
    }
}

impl Pieces {
    /// The next piece; none at the end of an object that is what the stamp says. Before that, nothing is known of it.
    ///
    /// # Errors
    /// [`ArtifactError::Damaged`], [`ArtifactError::Refused`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, ArtifactError> {
        let next = self.stream.try_next().await;
        let next = next.map_err(|error| self.store.explain("read", &self.key, error))?;
        if let Some(piece) = next {
            self.hash.update(&piece);
            self.bytes += piece.len() as u64;
            return Ok(Some(piece));
        }
        let got = Stamp {
            sha256: hexadecimal::lower(&std::mem::take(&mut self.hash).finalize()),
            bytes: units::Bytes(self.bytes),
        };
        if got == self.wanted {
            return Ok(None);
        }
        Err(ArtifactError::Damaged {
            store: self.store.name.to_string(),
            key: self.key.clone(),
            wanted: Box::new(self.wanted.clone()),
            got: Box::new(got),
        })
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut told = f.debug_struct("Pieces");
        told.field("key", &self.key).field("bytes", &self.bytes);
        told.finish_non_exhaustive()
    }
}
