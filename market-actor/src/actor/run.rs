//! A market actor from its start to its end.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, System};
use shared::hexadecimal;
use shared::net::credential::Credential;
use shared::net::endpoint::Endpoint;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use super::error::RunError;
use super::hands::Hands;
use super::journal::Journal;
use super::market::MarketActor;
use super::messages::{Ended, Stop};
use super::recording::Recording;
use super::settings::MarketSettings;
use super::{files, hands, line, thinking};
use crate::broker::{Broker, Start};

/// Calls and requests that may wait.
const WAITING: usize = 1024;

/// Runs a market actor until `stop` says so; machines stay as they are, and the next one goes on with them.
///
/// # Errors
/// [`RunError`] when it cannot start, then nothing of it runs; or when it had to stop.
pub fn run(
    settings: MarketSettings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    fs::create_dir_all(&settings.folder).map_err(|source| RunError::File {
        path: settings.folder.clone(),
        source,
    })?;
    let (journal, entries) = Journal::open(&settings.record())?;
    let credential = Credential::load(&settings.credential)?;
    let network = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("network")
        .enable_all()
        .build()?;
    let endpoint = {
        let _inside = network.enter();
        Arc::new(Endpoint::open(&settings.endpoint, &credential, false)?)
    };
    let kept = files::kept(&settings.state())?;
    let wall = &settings.clocks.wall;
    let provider = settings.offered.clone().provider(&settings.folder, wall)?;
    let mut run = [0; 4];
    // Without randomness two starts may make the same token, and the second is taken for the first.
    getrandom::fill(&mut run).map_err(std::io::Error::from)?;
    let start = Start {
        terms: settings.terms.clone(),
        entries: &entries,
        kept,
        bounds: settings.bounds,
        notice: provider.notice(),
        run: &hexadecimal::lower(&run),
    };
    let broker = Broker::resumed(start, settings.clocks.now());
    let held = broker.custody().held().len();
    let (to_hands, orders) = mpsc::channel(WAITING);
    let (to_line, asks) = mpsc::channel(WAITING);
    let (to_thinker, questions) = mpsc::channel(WAITING);
    let (ending, ended) = oneshot::channel();
    let name = provider.name().to_owned();
    let actor = MarketActor {
        broker,
        journal,
        recording: Recording::new(settings.sightings(), settings.terms.slot),
        settings: settings.clone(),
        hands: to_hands,
        line: to_line,
        thoughts: to_thinker,
        ending: Some(ending),
    };
    let system = System::new();
    let (actor, main) = system.block_on(async { (actor.start(), System::current()) });
    let hands = Hands::of(provider, settings.patience)?;
    let parts = [
        (
            "plans and learns",
            network.spawn(thinking::run(questions, actor.clone().recipient())),
        ),
        (
            "calls the provider",
            network.spawn(hands::run(hands, orders, actor.clone(), settings.look)),
        ),
        (
            "asks the coordinator",
            network.spawn(line::run(
                settings,
                endpoint,
                credential,
                asks,
                actor.clone(),
            )),
        ),
    ];
    for (part, work) in parts {
        let actor = actor.clone();
        network.spawn(async move {
            // None ends while the actor lives, but by a panic.
            let _ = work.await;
            let _ = actor.send(Ended(part)).await;
        });
    }
    network.spawn(async move {
        stop.await;
        // An actor that is gone has stopped.
        let _ = actor.send(Stop).await;
    });
    let watched = network.spawn(async move {
        let outcome = ended.await;
        main.stop();
        outcome
    });
    tracing::info!(provider = name, machines = held, "market actor at work");
    system.run()?;
    let outcome = network.block_on(watched);
    network.shutdown_timeout(Duration::from_secs(2));
    match outcome {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) | Err(_) => Err(RunError::Panicked),
    }
}
