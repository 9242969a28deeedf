//! A coordinator from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, System};
use shared::net::authority::Authority;
use shared::net::credential::Credential;
use shared::net::enroll::Enroller;
use shared::net::router::{Router, RouterLimits};
use shared::net::runtime;
use shared::net::token::TokenStore;
use shared::telemetry::serve;
use tokio::sync::{Semaphore, oneshot};

use super::coordinator::CoordinatorActor;
use super::error::RunError;
use super::leadership::Leadership;
use super::library::Library;
use super::messages::{Ending, Stop};
use super::meters::Meters;
use super::preparer;
use super::renewal;
use super::requests::CoordinatorService;
use super::settings::CoordinatorSettings;

/// Uploads that are in memory at once, on their way from the disk to the store.
const UPLOADS: usize = 2;

/// Runs a coordinator until the cluster is shut down or `stop` says so; in the latter case the cluster stays as it is.
///
/// # Errors
/// [`RunError`] when it cannot start, then nothing of it runs; or when it had to stop.
pub fn run(
    settings: CoordinatorSettings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let credential = Credential::load(&settings.credential)?;
    let enroller = match &settings.authority {
        None => None,
        Some(path) => {
            let tokens = TokenStore::new(&settings.tokens);
            let life = settings.certificate_life;
            Some(Arc::new(Enroller::new(
                Authority::load(path)?,
                tokens,
                life,
                settings.told_to_joiners.clone(),
            )))
        }
    };
    // The port before the lease: who cannot be reached must not lead.
    let (network, endpoint) = runtime::start(&settings.endpoint, &credential)?;
    let meters = Meters::new((settings.steady)());
    let leadership = Leadership::take(&settings, &meters)?;
    let term = leadership.term;
    if let Some(address) = settings.metrics {
        let health = meters.health(Arc::clone(&settings.steady));
        serve::start(&network, address, meters.registry(), health);
    }
    let (ending, ended) = oneshot::channel();
    let system = System::new();
    let prepare = preparer::start(network.handle(), &settings);
    let actor = CoordinatorActor::new(leadership, settings.clone(), meters, prepare, ending);
    let (actor, main) = system.block_on(async { (actor.start(), System::current()) });
    let service = CoordinatorService {
        actor: actor.clone(),
        settings: settings.clone(),
        enroller: enroller.clone(),
        library: Library::new(
            settings.decisions.backbone.identity.clone(),
            settings.backbone.clone(),
        ),
        in_memory: Semaphore::new(UPLOADS),
    };
    let router = network
        .block_on(async { Router::start(Arc::clone(&endpoint), service, RouterLimits::default()) });
    match enroller {
        Some(enroller) => network.spawn(renewal::run(settings.clone(), endpoint, enroller)),
        None => network.spawn(renewal::look(settings.clone(), endpoint)),
    };
    network.spawn(async move {
        stop.await;
        // An actor that is gone has stopped.
        let _ = actor.send(Stop).await;
    });
    // An actor that panicked is dropped, and with it the sender: the process must not stay without it.
    let watched = network.spawn(async move {
        let ending = ended.await;
        main.stop();
        ending
    });
    tracing::info!(cluster = %settings.decisions.cluster, %term, "coordinator at work");
    system.run()?;
    network.block_on(router.drain(Duration::from_secs(1)));
    let ending = network.block_on(watched);
    network.shutdown_timeout(Duration::from_secs(2));
    match ending {
        Ok(Ok(Ending::Asked)) => Ok(()),
        Ok(Ok(Ending::Failed(reason))) => Err(RunError::Stopped(reason)),
        Ok(Err(_)) | Err(_) => Err(RunError::Panicked),
    }
}
