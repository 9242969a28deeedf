//! A gpu-actor from its start to its end.

use std::path::PathBuf;
use std::sync::Arc;

use actix::{Actor, System};
use shared::artifact::{ArtifactError, BlockingStore};
use shared::net::credential::{Credential, CredentialError};
use shared::net::endpoint::Endpoint;
use shared::net::fault::NetError;
use shared::net::router::{Router, RouterLimits};
use shared::wire::notice::Hello;
use thiserror::Error;
use tokio::sync::mpsc;

use super::hall::Hall;
use super::holder::Holder;
use super::links::Linker;
use super::opener::Opener;
use super::running::Report;
use super::service::NodeService;
use super::settings::NodeSettings;
use super::stage::{Happened, StageActor, Stop, Uplink};
use super::store::SharedStore;
use super::traces::Traces;
use super::uplink;
use crate::duty::{Duty, Event};

/// Says why a gpu-actor did not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// The backbone.
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
}

/// Runs a node until it is told to stop, by the coordinator or by `stop`.
///
/// # Errors
/// [`RunError`] when it cannot start; then nothing of it runs.
pub fn run(
    settings: NodeSettings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let opener = Arc::new(Opener::new(
        settings.model.clone(),
        settings.format,
        settings.cpu.clone(),
    ));
    let look = opener.look().map_err(|reason| RunError::Model {
        path: settings.model.clone(),
        reason,
    })?;
    let credential = Credential::load(&settings.credential)?;
    if credential.identity.name.as_str() != settings.node.as_str() {
        return Err(RunError::OtherNode {
            path: settings.credential.clone(),
            found: credential.identity.to_string(),
            node: settings.node.to_string(),
        });
    }
    let network = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("network")
        .enable_all()
        .build()?;
    let endpoint = {
        let _inside = network.enter();
        Arc::new(Endpoint::open(&settings.endpoint, &credential, true)?)
    };
    let address = match &settings.advertised {
        Some(address) => address.clone(),
        None => endpoint.address()?.to_string(),
    };
    let store = Arc::new(SharedStore(BlockingStore::new(settings.store.clone())?));
    let traces = Traces::new(settings.node.clone(), settings.spans_kept);
    let backbone = look.content_hash();
    let hello = Hello {
        node: settings.node.clone(),
        incarnation: settings.incarnation,
        address,
        backbone: backbone.clone(),
        layers: u32::try_from(look.shape.layers).unwrap_or(u32::MAX),
        memory: settings.memory,
        threads: u32::try_from(settings.cpu.threads()).unwrap_or(u32::MAX),
        device: format!("cpu {}", settings.cpu.isa()),
        term: shared::ids::Term(0),
        held: None,
        unheard: 1,
        clock: (settings.clock)(),
    };
    let hall = Arc::new(Hall::default());
    let (holder, tasks) = mpsc::unbounded_channel();
    let (told, mut uplinked) = mpsc::channel(64);
    let system = System::new();
    let actor = StageActor {
        duty: Duty::new(hello),
        uplink: None,
        holder,
        traces: Arc::clone(&traces),
        heartbeat: settings.heartbeat,
        clock: Arc::clone(&settings.clock),
    };
    let actor = system.block_on(async { actor.start() });
    let report = reporter(&network, actor.clone());
    let holder = Holder {
        linker: Linker {
            settings: settings.clone(),
            endpoint: Arc::clone(&endpoint),
            hall: Arc::clone(&hall),
        },
        opener,
        store,
        traces,
        backbone,
        base: look.name.clone().unwrap_or_else(|| look.identity()),
        shape: Arc::new(look.shape.clone()),
        report,
    };
    let router = network.block_on(async {
        Router::start(
            Arc::clone(&endpoint),
            NodeService { hall },
            RouterLimits::default(),
        )
    });
    network.spawn(uplink::run(settings.clone(), endpoint, told));
    let listener = actor.clone();
    network.spawn(async move {
        while let Some(told) = uplinked.recv().await {
            if listener.send(Uplink(told)).await.is_err() {
                return;
            }
        }
    });
    let asked = actor;
    network.spawn(async move {
        stop.await;
        // A mailbox that is gone is one that stopped.
        let _ = asked.send(Stop).await;
    });
    let main = system_handle(&system);
    let held = network.spawn(async move {
        holder.run(tasks).await;
        main.stop();
    });
    tracing::info!(node = %settings.node, "gpu-actor at work");
    system.run()?;
    network.block_on(async {
        let _ = held.await;
        router.drain(std::time::Duration::from_secs(1)).await;
    });
    network.shutdown_timeout(std::time::Duration::from_secs(2));
    Ok(())
}

fn system_handle(runner: &actix::SystemRunner) -> System {
    runner.block_on(async { System::current() })
}

/// Reports of stage threads go through the network's runtime to the actor, in their order. What waits is bounded by the
/// work of a stage: a report is a step, an evaluation or a state.
fn reporter(network: &tokio::runtime::Runtime, actor: actix::Addr<StageActor>) -> Report {
    let (out, mut reports) = mpsc::unbounded_channel::<Event>();
    network.spawn(async move {
        while let Some(event) = reports.recv().await {
            if actor.send(Happened(event)).await.is_err() {
                return;
            }
        }
    });
    Arc::new(move |event| {
        // An actor that is gone hears nothing more.
        let _ = out.send(event);
    })
}
