//! What can be wrong with a `config.json`.

use thiserror::Error;

/// Tells which key of a model configuration is wrong, and what would be accepted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// The text is no JSON object.
    #[error("not a JSON object: {reason}")]
    Syntax {
        /// The parser's reason with line and column.
        reason: String,
    },
    /// A key that has no safe default is absent or null.
    #[error("{key} is missing: the size or name must be stated, it is not guessed")]
    Missing {
        /// The key.
        key: String,
    },
    /// A key holds another kind of value.
    #[error("{key} is {found}, expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// What it should hold.
        expected: &'static str,
        /// What it holds, shortened.
        found: String,
    },
    /// A number outside its bounds.
    #[error("{key} is {found}, allowed is {allowed}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// The bounds.
        allowed: String,
    },
    /// A feature that the engine does not compute.
    #[error("{key} is {found}, which is not supported: supported is {supported}")]
    Unsupported {
        /// The key.
        key: String,
        /// The value, shortened.
        found: String,
        /// What is supported.
        supported: String,
    },
    /// A model family that the engine does not compute.
    #[error("model_type {found:?} is not supported: known are {known}")]
    UnknownModel {
        /// The family named.
        found: String,
        /// The families known.
        known: String,
    },
    /// Two keys that contradict each other.
    #[error("{key}: {reason}")]
    Inconsistent {
        /// The key to correct.
        key: String,
        /// The contradiction.
        reason: String,
    },
}
