//! A gpu-actor from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, System};
use shared::actor::exit::ExitReason;
use shared::artifact::BlockingStore;
use shared::net::endpoint::Endpoint;
use shared::net::router::{Router, RouterLimits};
use shared::net::runtime;
use shared::telemetry::serve;
use shared::wire::notice::Departure;
use tokio::sync::{mpsc, oneshot, watch};

use super::device_thread::DeviceThread;
use super::error::RunError;
use super::fetching::Fetched;
use super::hall::Hall;
use super::holder::Holder;
use super::links::Linker;
use super::meters::Meters;
use super::resident::Resident;
use super::service::NodeService;
use super::settings::NodeSettings;
use super::stage::{AtRisk, Leave, StageActor};
use super::traces::Traces;
use super::{fetching, inbound, introduction, uplink};
use crate::artifacts::stored::SharedStore;
use crate::duty::Duty;

/// Runs a node until the coordinator tells it to stop. Once `leave` says so it tells the coordinator that it goes, and
/// stays until it is let go or its time is over. Meanwhile `risk` says why its machine may be taken.
///
/// # Errors
/// [`RunError`] when it cannot start, then nothing of it runs; or when it panicked.
pub fn run(
    settings: NodeSettings,
    leave: impl Future<Output = Departure> + Send + 'static,
    risk: watch::Receiver<Option<String>>,
) -> Result<(), RunError> {
    let credential = introduction::credential(&settings)?;
    let (network, endpoint) = runtime::start(&settings.endpoint, &credential)?;
    let mut leave = Box::pin(leave);
    let fetched = match network.block_on(fetched(&settings, &endpoint, &mut leave)) {
        None => return Ok(()),
        Some(fetched) => fetched?,
    };
    let backbone = introduction::backbone(&settings, fetched.as_ref())?;
    let store = BlockingStore::new(settings.store.clone())?;
    let store = Arc::new(SharedStore::new(store));
    // The store has a runtime, which must not be dropped inside of another: the last one to let go is this thread.
    let last_hold = Arc::clone(&store);
    let meters = Meters::new((settings.steady)());
    if let Some(address) = settings.metrics {
        let health = meters.health(Arc::clone(&settings.steady));
        serve::start(&network, address, meters.registry(), health);
    }
    let device = DeviceThread::start()?;
    let traces = Traces::new(
        settings.node.clone(),
        settings.spans_kept,
        Arc::clone(&settings.steady),
    );
    let hello = introduction::hello(&backbone, &settings, endpoint.address()?);
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
        steady: Arc::clone(&settings.steady),
        meters: Arc::clone(&meters),
        program: Resident::now(),
        leaving: None,
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
        opener: backbone.opener,
        store,
        traces,
        meters,
        backbone: backbone.hash,
        base: backbone.base,
        shape: Arc::new(backbone.look.shape),
        report: inbound::reporter(&network, actor.clone()),
        device,
    };
    let router = network.block_on(async {
        Router::start(
            Arc::clone(&endpoint),
            NodeService {
                hall,
                shelf: backbone.shelf,
            },
            RouterLimits::default(),
        )
    });
    let (end, ending) = oneshot::channel();
    let mut up = network.spawn(uplink::run(settings.clone(), endpoint, told, ending));
    network.spawn(inbound::pass_on(uplinked, actor.clone()));
    network.spawn(pass_risk_on(risk, actor.clone()));
    network.spawn(async move {
        let departure = leave.await;
        tracing::info!(within = %departure.within, cause = %departure.cause, "this node leaves");
        // A mailbox that is gone is one that stopped.
        let _ = actor.send(Leave(departure)).await;
    });
    let mut holds = network.spawn(holder.run(tasks));
    // Whoever of them panics, the process must not stay without it.
    let watched = network.spawn(async move {
        let panicked = || ExitReason::Panicked("see the lines before this".into());
        let exit = tokio::select! {
            held = &mut holds => held.unwrap_or_else(|_| panicked()),
            _ = &mut up => panicked(),
            _ = gone => panicked(),
        };
        // Nobody hears it only when the uplink panicked.
        let _ = end.send(());
        main.stop();
        exit
    });
    tracing::info!(node = %settings.node, "gpu-actor at work");
    system.run()?;
    let exit = network.block_on(watched);
    network.block_on(router.drain(Duration::from_secs(1)));
    network.shutdown_timeout(Duration::from_secs(2));
    drop(last_hold);
    match exit {
        Ok(ExitReason::Asked) => Ok(()),
        Ok(ExitReason::Failed(reason)) => Err(RunError::TooOften(reason)),
        Ok(ExitReason::Panicked(_)) | Err(_) => Err(RunError::Panicked),
    }
}

/// Tells the actor of each change until nobody watches.
async fn pass_risk_on(mut risk: watch::Receiver<Option<String>>, actor: Addr<StageActor>) {
    // What was said before anybody listened is a change too.
    risk.mark_changed();
    while risk.changed().await.is_ok() {
        let cause = risk.borrow_and_update().clone();
        if actor.send(AtRisk(cause)).await.is_err() {
            return;
        }
    }
}

/// The backbone from another member, where it is not here; nothing when the node is to go meanwhile: it holds nothing.
async fn fetched(
    settings: &NodeSettings,
    endpoint: &Arc<Endpoint>,
    leave: &mut (impl Future<Output = Departure> + Unpin),
) -> Option<Result<Option<Fetched>, RunError>> {
    let Some(fetch) = &settings.fetch else {
        return Some(Ok(None));
    };
    tracing::info!(path = %settings.model.display(), "the backbone is not here: it is fetched");
    tokio::select! {
        got = fetching::run(settings, fetch, endpoint) => Some(got.map(Some)),
        _ = leave => None,
    }
}
