//! Why a path gives no model.

use std::io;
use std::path::PathBuf;

use shared::model::config::ConfigError;
use thiserror::Error;

use super::gguf_error::GgufError;
use super::header::HeaderError;
use super::locate::LocateError;
use super::shards::IndexError;
use super::tensors::TensorError;

/// Tells why a model cannot be opened: which file, what in it, and what was expected.
#[derive(Debug, Error)]
pub enum ModelError {
    /// No model at the path, or a file that cannot be read.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// A file of weights cannot be mapped.
    #[error("{}: {source}", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A configuration that the engine does not compute, or a wrong one.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The reason, which names the key.
        source: ConfigError,
    },
    /// A safetensors file whose header is damaged or lies.
    #[error("{}: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: HeaderError,
    },
    /// An index that does not fit its shards.
    #[error("{}: {source}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// The reason.
        source: IndexError,
    },
    /// A GGUF file that is damaged or not supported.
    #[error("{}: {source}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: GgufError,
    },
    /// Tensors that are not those of the configuration.
    #[error("{}: {source}", path.display())]
    Tensors {
        /// Folder or file of the model.
        path: PathBuf,
        /// The reason, which names the tensors.
        source: TensorError,
    },
}
