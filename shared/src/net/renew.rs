//! How a process gets its certificate: once by a token, then again and again before it expires.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use super::authority::fingerprint;
use super::client::{Client, ClientError};
use super::credential::{Credential, CredentialError, KeyRequest};
use super::endpoint::{Endpoint, EndpointSettings, connect_to_join};
use super::fault::{CloseCode, NetError};
use super::identity::Role;
use super::private_file::PrivateFileError;
use super::stream::Stream;
use super::token::Token;
use crate::ids::{ClusterName, NodeName};
use crate::units::Micros;
use crate::wire::request::{Joining, Refusal, Reply, Request};

/// Says why there is no certificate.
#[derive(Debug, Error)]
pub enum RenewError {
    /// The key, or what came back.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The file.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// The connection.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The coordinator refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Another reply.
    #[error("the coordinator answered with no certificate: is it of another version?")]
    NoCertificate,
    /// Not the authority that is believed.
    #[error(
        "the certificate is of another authority than the one that is believed: ask the operator of the cluster"
    )]
    OtherAuthority,
    /// For somebody else.
    #[error("the certificate is for {got}, and {wanted} asked")]
    OtherIdentity {
        /// As it says.
        got: String,
        /// Who asked.
        wanted: String,
    },
}

/// Who joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joiner {
    /// The cluster, where its name is known.
    pub cluster: Option<ClusterName>,
    /// What it will do.
    pub role: Role,
    /// Its name.
    pub name: NodeName,
}

/// What a joiner is given.
#[derive(Debug)]
pub struct Joined {
    /// Its credential, not yet in a file.
    pub credential: Credential,
    /// Keys of `cluster.toml` that all members share, each with its value as TOML writes it.
    pub settings: Vec<(String, String)>,
}

/// Joins a cluster with a token.
///
/// # Errors
/// [`RenewError`]; the token is used up only when a certificate was made.
pub async fn join(
    settings: &EndpointSettings,
    coordinator: SocketAddr,
    token: &Token,
    joiner: &Joiner,
) -> Result<Joined, RenewError> {
    let request = KeyRequest::new()?;
    let joining = Joining {
        token: token.reveal(),
        signing_request: request.signing_request.clone(),
        cluster: joiner.cluster.clone(),
        role: joiner.role.to_string(),
        name: joiner.name.clone(),
    };
    let (endpoint, connection) = connect_to_join(settings, coordinator, token.fingerprint).await?;
    let asked = ask_to_join(&connection, settings, joining).await;
    endpoint.close(CloseCode::Done.number(), b"all is said");
    endpoint.wait_idle().await;
    let (chain, settings) = asked?;
    let credential = request.certified(&chain)?;
    if fingerprint(credential.authority()) != token.fingerprint {
        return Err(RenewError::OtherAuthority);
    }
    let got = &credential.identity;
    if got.role != joiner.role || got.name != joiner.name {
        return Err(RenewError::OtherIdentity {
            got: got.to_string(),
            wanted: format!("{} {}", joiner.role, joiner.name),
        });
    }
    Ok(Joined {
        credential,
        settings,
    })
}

async fn ask_to_join(
    connection: &quinn::Connection,
    settings: &EndpointSettings,
    joining: Joining,
) -> Result<(String, Vec<(String, String)>), RenewError> {
    let halves = connection.open_bi().await.map_err(NetError::from)?;
    let mut stream = Stream::new(halves, settings.limits);
    stream.sender.send(&Request::Join(joining)).await?;
    stream.sender.finish();
    match stream.receiver.expect::<Reply>().await? {
        Reply::Joined { chain, settings } => Ok((chain, settings)),
        Reply::Refused(refusal) => Err(refusal.into()),
        _ => Err(RenewError::NoCertificate),
    }
}

/// Asks for a fresh certificate in the name of one that still holds: writes it to the file, then shows it.
///
/// # Errors
/// [`RenewError`]; what is shown stays as it was.
pub async fn renew(
    client: &Client,
    endpoint: &Endpoint,
    held: &Credential,
    path: &Path,
) -> Result<Credential, RenewError> {
    let request = KeyRequest::new()?;
    let ask = Request::Renew {
        signing_request: request.signing_request.clone(),
    };
    let Reply::Certificate { chain, .. } = client.request(&ask).await? else {
        return Err(RenewError::NoCertificate);
    };
    let fresh = request.certified(&chain)?;
    replaces(&fresh, held)?;
    fresh.save(path)?;
    endpoint.renew(&fresh)?;
    Ok(fresh)
}

/// Whether a credential is one more of who has another.
fn replaces(fresh: &Credential, held: &Credential) -> Result<(), RenewError> {
    if fresh.authority() != held.authority() {
        return Err(RenewError::OtherAuthority);
    }
    if fresh.identity != held.identity {
        return Err(RenewError::OtherIdentity {
            got: fresh.identity.to_string(),
            wanted: held.identity.to_string(),
        });
    }
    Ok(())
}

/// Shows the credential that lies in a file, should it have been made anew there; for a member that nobody lets in any more.
///
/// # Errors
/// [`RenewError`]; what is shown stays as it was.
pub fn show_file(endpoint: &Endpoint, held: &Credential, path: &Path) -> Result<(), RenewError> {
    let found = Credential::load(path)?;
    replaces(&found, held)?;
    Ok(endpoint.renew(&found)?)
}

/// The clock is looked at so often: it may be set, and machines sleep while no timer runs.
pub const LOOK: Duration = Duration::from_secs(60);

/// How long to wait before the clock is looked at again; none when the certificate is to be renewed now.
#[must_use]
pub fn next_look(held: &Credential, now: Micros) -> Option<Duration> {
    let left = Duration::from_micros(held.renewal().since(now).0);
    (!left.is_zero()).then(|| left.min(LOOK))
}
