//! Why a gpu-actor does not run.

use std::path::PathBuf;

use shared::artifact::ArtifactError;
use shared::net::credential::CredentialError;
use shared::net::fault::NetError;
use thiserror::Error;

/// Says why a gpu-actor did not start, or ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// The backbone: absent, unreadable or another, or not to be had from other members.
    #[error("model.path {path}: {reason}")]
    Model {
        /// Where it should be.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The certificate.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The certificate of another node.
    #[error(
        "{path} is the certificate of {found}, this node is {node}: issue one for it with `spotmux ca issue`"
    )]
    OtherNode {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// This node.
        node: String,
    },
    /// The port, or TLS.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The store of artifacts.
    #[error(transparent)]
    Store(#[from] ArtifactError),
    /// Threads.
    #[error("the system gives no thread or runtime: {0}")]
    System(#[from] std::io::Error),
    /// A defect that comes again.
    #[error("{0}: durable states are whole; start it again, and report the lines before this")]
    TooOften(String),
    /// A defect.
    #[error(
        "the gpu-actor panicked, and durable states are whole: start it again, and report the lines before this"
    )]
    Panicked,
}
