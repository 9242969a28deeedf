//! A gpu-actor from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, System};
use shared::artifact::BlockingStore;
use shared::net::endpoint::Endpoint;
use shared::net::router::{Router, RouterLimits};
use shared::telemetry::serve;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use super::error::RunError;
use super::hall::Hall;
use super::holder::Holder;
use super::links::Linker;
use super::meters::Meters;
use super::opener::Opener;
use super::service::NodeService;
use super::settings::NodeSettings;
use super::stage::{StageActor, Stop};
use super::store::SharedStore;
use super::traces::Traces;
use super::{inbound, introduction, uplink};
use crate::duty::Duty;

/// Runs a node until it is told to stop, by the coordinator or by `stop`.
///
/// # Errors
/// [`RunError`] when it cannot start, then nothing of it runs; or when it panicked.
pub fn run(
    settings: NodeSettings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let opener = Arc::new(Opener::new(
        settings.model.clone(),
        settings.format,
        settings.cpu.clone(),
    ));
    let look = introduction::look(&opener, &settings)?;
    let credential = introduction::credential(&settings)?;
    let network = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("network")
        .enable_all()
        .build()?;
    let endpoint = {
        let _inside = network.enter();
        Arc::new(Endpoint::open(&settings.endpoint, &credential, true)?)
    };
    let store = Arc::new(SharedStore(BlockingStore::new(settings.store.clone())?));
    // The store has a runtime, which must not be dropped inside of another: the last one to let go is this thread.
    let last_hold = Arc::clone(&store);
    let meters = Meters::new((settings.clock)());
    if let Some(address) = settings.metrics {
        let health = meters.health(Arc::clone(&settings.clock));
        serve::start(&network, address, meters.registry(), health);
    }
    let traces = Traces::new(settings.node.clone(), settings.spans_kept);
    let hello = introduction::hello(&look, &settings, endpoint.address()?);
    let backbone = hello.backbone.clone();
    let hall = Arc::new(Hall::default());
    let (holder, tasks) = mpsc::unbounded_channel();
    let (told, uplinked) = mpsc::channel(64);
    let (alive, gone) = oneshot::channel();
    let system = System::new();
    let actor = StageActor {
        duty: Duty::new(hello),
        uplink: None,
        holder,
        traces: Arc::clone(&traces),
        heartbeat: settings.heartbeat,
        clock: Arc::clone(&settings.clock),
        meters: Arc::clone(&meters),
        _alive: alive,
    };
    let (actor, main) = system.block_on(async { (actor.start(), System::current()) });
    let holder = Holder {
        linker: Linker {
            settings: settings.clone(),
            endpoint: Arc::clone(&endpoint),
            hall: Arc::clone(&hall),
            meters: Arc::clone(&meters),
        },
        opener,
        store,
        traces,
        meters,
        backbone,
        base: look.name.clone().unwrap_or_else(|| look.identity()),
        shape: Arc::new(look.shape.clone()),
        report: inbound::reporter(&network, actor.clone()),
    };
    let router = network.block_on(async {
        Router::start(
            Arc::clone(&endpoint),
            NodeService { hall },
            RouterLimits::default(),
        )
    });
    let mut up = network.spawn(uplink::run(settings.clone(), endpoint, told));
    network.spawn(inbound::pass_on(uplinked, actor.clone()));
    network.spawn(async move {
        stop.await;
        // A mailbox that is gone is one that stopped.
        let _ = actor.send(Stop).await;
    });
    let mut holds = network.spawn(holder.run(tasks));
    // Whoever of them panics, the process must not stay without it.
    let watched = network.spawn(async move {
        let whole = tokio::select! {
            held = &mut holds => held.is_ok(),
            _ = &mut up => false,
            _ = gone => false,
        };
        main.stop();
        whole
    });
    tracing::info!(node = %settings.node, "gpu-actor at work");
    system.run()?;
    let whole = network.block_on(watched).unwrap_or(false);
    network.block_on(router.drain(Duration::from_secs(1)));
    network.shutdown_timeout(Duration::from_secs(2));
    drop(last_hold);
    whole.then_some(()).ok_or(RunError::Panicked)
}
