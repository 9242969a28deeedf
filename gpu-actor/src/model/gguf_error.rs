//! Why a GGUF file is no model.

use shared::model::config::ConfigError;
use thiserror::Error;

use super::gguf_check::GgufCheckError;

/// Tells why a GGUF file is not a model the engine computes.
#[derive(Debug, Error)]
pub enum GgufError {
    /// The header is damaged or lies.
    #[error(transparent)]
    Header(#[from] GgufCheckError),
    /// The library refused what passed our checks.
    #[error("the GGUF reader refused the file: {reason}")]
    Library {
        /// Its reason.
        reason: String,
    },
    /// A metadata key without a safe default is absent.
    #[error("{key} is missing: it is not guessed")]
    Missing {
        /// The key.
        key: String,
    },
    /// A metadata key holds another kind of value.
    #[error("{key} is of type {found}, expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// What it should hold.
        expected: &'static str,
        /// The type found.
        found: String,
    },
    /// A feature that the engine does not compute.
    #[error("{key} is {found}, which is not supported: supported is {supported}")]
    Unsupported {
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// What is supported.
        supported: String,
    },
    /// Values that contradict each other or their bounds.
    #[error("{key} {reason}")]
    Inconsistent {
        /// The key.
        key: String,
        /// The contradiction.
        reason: String,
    },
    /// Sizes that do not fit each other.
    #[error(transparent)]
    Sizes(#[from] ConfigError),
}
