//! The backbone from another member, for a node that has not got it: asked of the coordinator what it is made of and who
//! has it, streamed from a node, or from the coordinator when no node can, checked file by file.

mod kept;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shared::net::backoff::Backoff;
use shared::net::client::{Client, ClientError};
use shared::net::endpoint::Endpoint;
use shared::net::fault::NetError;
use shared::net::identity::Role;
use shared::units::Bytes;
use shared::wire::request::{BackboneView, FileRef, RefusalCode, Reply, Request};
use tokio::net::lookup_host;
use tokio::time::timeout;

use self::kept::Kept;
use super::error::RunError;
use super::settings::{Fetch, NodeSettings};

/// How long a member may take to greet.
const GREETING: Duration = Duration::from_secs(5);

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
/// [`RunError::Model`].
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
                let reason = format!(
                    "it is absent, and the backbone cannot be had from another member: {reason}"
                );
                return Err(RunError::Model { path, reason });
            }
            Err(Trouble::Passing(reason)) => {
                tracing::warn!(reason, "the backbone is not fetched yet");
            }
        }
        backoff.pause().await;
    }
}

/// Why a try came to nothing.
#[derive(Debug, PartialEq, Eq)]
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
    let Reply::Backbone(view) = told.map_err(|error| passing(&error))? else {
        let reason = "the coordinator tells of no backbone";
        return Err(Trouble::Final(reason.into()));
    };
    let kept = Kept::of(&view, &settings.node, &fetch.folder);
    let whole = kept.is_whole(&view.files).await;
    if !whole.map_err(|error| Trouble::Final(error.to_string()))? {
        fits(&view, fetch.most)?;
        let beside = &kept.beside;
        let refused = |error: std::io::Error| {
            Trouble::Final(format!("cannot write {}: {error}", beside.display()))
        };
        kept.begin().await.map_err(refused)?;
        for file in &view.files {
            one(settings, endpoint, &coordinator, &view, file, beside).await?;
        }
        kept.settle().await.map_err(refused)?;
        tracing::info!(folder = %kept.whole.display(), "backbone fetched");
    }
    Ok(Fetched {
        model: kept.whole,
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
    match from_coordinator(coordinator, file, folder).await {
        Ok(()) => {
            tracing::info!(
                file = file.path,
                "file of the backbone fetched from the coordinator"
            );
            Ok(())
        }
        Err(error) => Err(of_coordinator(error, &told, file)),
    }
}

/// From the coordinator; once more when what came was wrong, since that may have been what an earlier try left, which
/// is taken away then.
async fn from_coordinator(
    coordinator: &Client,
    file: &FileRef,
    folder: &Path,
) -> Result<(), ClientError> {
    match coordinator.fetch_backbone_file(file, folder).await {
        Err(ClientError::File { .. }) => coordinator.fetch_backbone_file(file, folder).await,
        outcome => outcome,
    }
}

/// What the coordinator's error means, after those of nodes. It told what its files are: when it has not got one, or
/// another, then its file changed since it started, and no try mends that.
fn of_coordinator(error: ClientError, told: &[String], file: &FileRef) -> Trouble {
    let changed = match &error {
        ClientError::File { .. } => true,
        ClientError::Refused(refusal) => refusal.code == RefusalCode::NotFound,
        _ => false,
    };
    match passed(error) {
        Ok(said) if changed => Trouble::Final(format!(
            "the coordinator's own {} is not what it told of it ({said}): put the file right there, and restart the \
             coordinator",
            file.path
        )),
        Ok(said) => {
            let mut told = told.to_vec();
            told.push(format!("the coordinator: {said}"));
            Trouble::Passing(format!("{}: {}", file.path, told.join("; ")))
        }
        Err(trouble) => trouble,
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
    let found = timeout(GREETING, lookup_host(address)).await;
    let found = found.map_err(|_| lost(format!("its name {address} is not looked up in time")))?;
    let mut found = found.map_err(|error| lost(error.to_string()))?;
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

#[cfg(test)]
mod tests {
    use shared::wire::request::Refusal;

    use super::*;

    #[test]
    fn a_coordinator_whose_own_file_changed_ends_the_tries_and_other_faults_do_not() {
        let file = FileRef {
            path: "config.json".into(),
            sha256: String::new(),
            bytes: Bytes(2),
        };
        let trouble = |error| of_coordinator(error, &["node n1: gone".into()], &file);
        let refused = |code| {
            let message = "here it has 3 bytes".to_owned();
            trouble(ClientError::Refused(Refusal { code, message }))
        };
        let differs = trouble(ClientError::File {
            path: file.path.clone(),
            what: "its sha256 is 1, not 2".into(),
        });
        for fault in [differs, refused(RefusalCode::NotFound)] {
            assert!(
                matches!(&fault, Trouble::Final(why) if why.contains("restart the coordinator")),
                "{fault:?}"
            );
        }
        let passing = "config.json: node n1: gone; the coordinator: ";
        for fault in [
            refused(RefusalCode::Busy),
            trouble(ClientError::Net(NetError::Ended { due: "reply" })),
        ] {
            assert!(
                matches!(&fault, Trouble::Passing(why) if why.starts_with(passing)),
                "{fault:?}"
            );
        }
    }
}
