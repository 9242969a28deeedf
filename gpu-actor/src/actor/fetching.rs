//! The backbone from another member, for a node that has not got it: asked of the coordinator what it is made of and who
//! has it, streamed from a node, or from the coordinator when no node can, checked file by file.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shared::net::backoff::Backoff;
use shared::net::client::{Client, ClientError};
use shared::net::endpoint::Endpoint;
use shared::net::fault::NetError;
use shared::net::identity::Role;
use shared::units::Bytes;
use shared::wire::request::{BackboneView, FileRef, Reply, Request};
use tokio::time::timeout;

use super::error::RunError;
use super::settings::{Fetch, NodeSettings};

/// How long a member may take to greet.
const GREETING: Duration = Duration::from_secs(5);
/// Digits of the backbone's identity that name its folder.
const DIGITS: usize = 16;

/// A backbone that is whole in a folder of this node.
#[derive(Debug)]
pub(super) struct Fetched {
    /// Its folder or file.
    pub(super) model: PathBuf,
    /// The content hash that it must have.
    pub(super) identity: String,
    /// What adapters call their base model.
    pub(super) base: String,
}

/// Fetches the backbone, and tries again until it is there; a fault that no try can mend ends it.
///
/// # Errors
/// [`RunError::Unfetched`].
pub(super) async fn run(
    settings: &NodeSettings,
    fetch: &Fetch,
    endpoint: &Arc<Endpoint>,
) -> Result<Fetched, RunError> {
    let (least, most) = (Duration::from_millis(200), Duration::from_secs(10));
    let mut backoff = Backoff::new(least, most, settings.incarnation);
    loop {
        match attempt(settings, fetch, endpoint).await {
            Ok(fetched) => return Ok(fetched),
            Err(Trouble::Final(reason)) => {
                let path = settings.model.clone();
                return Err(RunError::Unfetched { path, reason });
            }
            Err(Trouble::Passing(reason)) => {
                tracing::warn!(reason, "the backbone is not fetched yet");
            }
        }
        backoff.pause().await;
    }
}

/// Why a try came to nothing.
enum Trouble {
    /// Another may come to something.
    Passing(String),
    /// None will.
    Final(String),
}

async fn attempt(
    settings: &NodeSettings,
    fetch: &Fetch,
    endpoint: &Arc<Endpoint>,
) -> Result<Fetched, Trouble> {
    let passing = |error: &dyn std::fmt::Display| Trouble::Passing(error.to_string());
    let coordinator = greet(endpoint, settings.coordinator, Role::Coordinator)
        .await
        .map_err(|error| passing(&error))?;
    let told = coordinator.request(&Request::Backbone).await;
    let view = match told.map_err(|error| passing(&error))? {
        Reply::Backbone(view) => view,
        _ => {
            return Err(Trouble::Final(
                "the coordinator tells of no backbone".into(),
            ));
        }
    };
    let digits: String = view.identity.chars().take(DIGITS).collect();
    if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let reason = format!("{:?} is no identity of a backbone", view.identity);
        return Err(Trouble::Final(reason));
    }
    let whole = fetch.folder.join(&digits);
    if !whole.exists() {
        fits(&view, fetch.most)?;
        let beside = fetch.folder.join(format!("{digits}.partial"));
        let refused = |error: std::io::Error| {
            Trouble::Final(format!("cannot write {}: {error}", beside.display()))
        };
        std::fs::create_dir_all(&beside).map_err(refused)?;
        for file in &view.files {
            one(settings, endpoint, &coordinator, &view, file, &beside).await?;
        }
        std::fs::rename(&beside, &whole).map_err(refused)?;
        tracing::info!(folder = %whole.display(), "backbone fetched");
    }
    Ok(Fetched {
        model: whole,
        identity: view.identity,
        base: view.base,
    })
}

fn fits(view: &BackboneView, Bytes(most): Bytes) -> Result<(), Trouble> {
    let size = view.files.iter().map(|file| file.bytes.0);
    let size = size.fold(0, u64::saturating_add);
    if size <= most {
        return Ok(());
    }
    Err(Trouble::Final(format!(
        "the backbone has {}, and gpu_actor.fetch_gib allows {}: raise it, or copy the backbone to this machine",
        Bytes(size),
        Bytes(most)
    )))
}

/// A file from the first member that has it: nodes first, the coordinator last.
async fn one(
    settings: &NodeSettings,
    endpoint: &Arc<Endpoint>,
    coordinator: &Client,
    view: &BackboneView,
    file: &FileRef,
    folder: &Path,
) -> Result<(), Trouble> {
    let mut told = Vec::new();
    for (node, address) in &view.nodes {
        if *node == settings.node {
            continue;
        }
        match from_node(endpoint, address, file, folder).await {
            Ok(()) => {
                tracing::info!(file = file.path, %node, "file of the backbone fetched");
                return Ok(());
            }
            Err(error) => told.push(format!("node {node}: {}", passed(error)?)),
        }
    }
    match coordinator.fetch_backbone_file(file, folder).await {
        Ok(()) => {
            tracing::info!(
                file = file.path,
                "file of the backbone fetched from the coordinator"
            );
            Ok(())
        }
        Err(error) => {
            told.push(format!("the coordinator: {}", passed(error)?));
            Err(Trouble::Passing(format!(
                "{}: {}",
                file.path,
                told.join("; ")
            )))
        }
    }
}

/// What this machine itself refuses, no other member mends.
fn passed(error: ClientError) -> Result<String, Trouble> {
    match error {
        ClientError::Local { .. } => Err(Trouble::Final(error.to_string())),
        other => Ok(other.to_string()),
    }
}

async fn from_node(
    endpoint: &Arc<Endpoint>,
    address: &str,
    file: &FileRef,
    folder: &Path,
) -> Result<(), ClientError> {
    let lost = |reason: String| ClientError::Net(NetError::Lost { reason });
    let mut found = address
        .to_socket_addrs()
        .map_err(|error| lost(error.to_string()))?;
    let Some(address) = found.next() else {
        return Err(lost("its address names no machine".into()));
    };
    let client = greet(endpoint, address, Role::GpuActor).await?;
    client.fetch_backbone_file(file, folder).await
}

async fn greet(
    endpoint: &Arc<Endpoint>,
    address: SocketAddr,
    role: Role,
) -> Result<Client, NetError> {
    let silent = NetError::Lost {
        reason: format!("no answer within {} s", GREETING.as_secs()),
    };
    let greeted = timeout(GREETING, endpoint.connect(address, role)).await;
    Ok(Client::over(greeted.map_err(|_| silent)??))
}
