//! Durable states by parts: what each stage of a pipeline stores of a job, and how it is put together again.
//!
//! `jobs/JOB/step-NNNNNNNN/layers-FIRST-END.safetensors` is the part of one stage: the values and moments that live on
//! its layers. `jobs/JOB/step-NNNNNNNN/manifest.json` names parts that cover all layers, each with its hash, and seals
//! what they belong to. It is made once, after all its parts, and removed before them: a state is durable when its
//! manifest is there. A state read is whole, however many stages wrote it.
//!
//! | file | one line |
//! | --- | --- |
//! | `part`, `manifest` | what is written, how it is verified and joined: bytes in, bytes out |
//! | `recover` | the newest sound state of a job |
//! | `first` | a state to start from that no step made |
//! | `keeper` | the thread that stores, so that no device waits |
//! | `stored`, `memory` | the shared store (a folder or a bucket), and one for tests |

use thiserror::Error;

pub mod first;
pub mod keeper;
pub mod manifest;
pub mod memory;
pub mod part;
pub mod recover;
pub mod stored;

/// Says why a store did not do what was asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ArtifactError {
    /// Nothing is stored there.
    #[error("{key} is not in the store")]
    Missing {
        /// The key.
        key: String,
    },
    /// The store refused, or cannot be reached.
    #[error("{key}: {reason}")]
    Failed {
        /// The key.
        key: String,
        /// The store's reason.
        reason: String,
    },
}

/// Bytes by key, shared by all nodes. What is put or created is there whole or not at all.
pub trait Artifacts: Send + Sync {
    /// Reads what is stored.
    ///
    /// # Errors
    /// [`ArtifactError::Missing`] when nothing is; else when the store cannot.
    fn get(&self, key: &str) -> Result<Vec<u8>, ArtifactError>;

    /// Stores, in place of what was there.
    ///
    /// # Errors
    /// [`ArtifactError::Failed`] when the store cannot.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ArtifactError>;

    /// Stores when nothing is there; whether nothing was.
    ///
    /// # Errors
    /// [`ArtifactError::Failed`] when the store cannot.
    fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, ArtifactError>;

    /// All keys that begin so, in their order.
    ///
    /// # Errors
    /// [`ArtifactError::Failed`] when the store cannot.
    fn list(&self, prefix: &str) -> Result<Vec<String>, ArtifactError>;

    /// Removes what is stored, if anything is.
    ///
    /// # Errors
    /// [`ArtifactError::Failed`] when the store cannot.
    fn delete(&self, key: &str) -> Result<(), ArtifactError>;
}
