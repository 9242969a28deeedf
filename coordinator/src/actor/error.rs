//! Why a coordinator does not run.

use shared::net::authority::AuthorityError;
use shared::net::credential::CredentialError;
use shared::net::fault::NetError;
use thiserror::Error;

use crate::book::Gap;
use crate::store::JournalError;

/// Says why a coordinator did not start, or ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal has a gap.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// The certificate.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The port, or TLS.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Threads.
    #[error("the system gives no thread or runtime: {0}")]
    System(#[from] std::io::Error),
    /// It had to stop.
    #[error("{0}")]
    Stopped(String),
    /// A defect.
    #[error(
        "the coordinator panicked, and its journal is whole: start it again, and report the lines before this"
    )]
    Panicked,
}
