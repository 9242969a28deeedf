//! Connections between the processes of a cluster: QUIC, with TLS both ways.
//!
//! | room | one line |
//! | --- | --- |
//! | [`authority`] | the certificate authority of a cluster |
//! | [`token`] | one-time tokens to join |
//! | [`identity`] | who a process is, as its certificate says |
//! | [`credential`] | certificate and key, as a file |
//! | [`enroll`] | who gets a certificate: the coordinator's side |
//! | [`renew`] | joining, and fresh certificates before old ones expire |
//! | [`endpoint`] | the socket; connecting to a peer |
//! | [`stream`] | messages and raw bytes over a stream |
//! | [`router`] | taking connections and streams |
//! | [`runtime`] | the thread of the network of a process, and its port |
//! | [`permit`] | who may do what |
//! | [`shelf`] | files of the backbone handed to other members |
//! | `resume` | such a file fetched in as many tries as it takes |
//! | [`client`] | requests to the coordinator, files up and down |
//! | [`backoff`] | how long to wait before the next try |
//! | [`fault`] | what goes wrong |
//!
//! docs/protocol.md tells the same from outside.

pub mod authority;
pub mod backoff;
pub mod client;
pub mod credential;
pub mod endpoint;
pub mod enroll;
pub mod fault;
pub mod identity;
mod keyring;
pub mod permit;
mod plain_name;
mod private_file;
pub mod renew;
pub mod resume;
pub mod router;
pub mod runtime;
pub mod shelf;
pub mod stream;
pub mod token;

pub use private_file::PrivateFileError;

#[cfg(test)]
mod tests;
