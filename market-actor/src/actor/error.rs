//! Why a market actor does not run.

use std::io;
use std::path::PathBuf;

use shared::net::credential::CredentialError;
use shared::net::fault::NetError;
use thiserror::Error;

use crate::broker::kept::KeptError;
use crate::custody::record::RecordError;
use crate::provider::ProviderError;

/// Says why a market actor did not start, or ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// The certificate.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The port, or TLS.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The record of machines.
    #[error("{}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: RecordError,
    },
    /// What was kept over a restart.
    #[error("{}: {source}", path.display())]
    Kept {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeptError,
    },
    /// The provider cannot be set up.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Another one runs.
    #[error("{} is held by another market actor of this cluster: end it first", path.display())]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read or written: nothing is asked for that is not on record.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Threads.
    #[error("the system gives no thread or runtime: {0}")]
    System(#[from] io::Error),
    /// A defect of a part.
    #[error(
        "what {part} of the market actor has ended; its record of machines is whole: start it again, and report the lines before this"
    )]
    Ended {
        /// What it did.
        part: &'static str,
    },
    /// A defect.
    #[error(
        "the market actor panicked; its record of machines is whole: start it again, and report the lines before this"
    )]
    Panicked,
}
