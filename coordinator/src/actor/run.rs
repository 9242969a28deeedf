//! A coordinator from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, System};
use shared::artifact::{Key, Stamp, Store};
use shared::ids::{EventNumber, JobId};
use shared::job::JobSpec;
use shared::life::{Reason, ReasonClass};
use shared::net::authority::{Authority, AuthorityError};
use shared::net::credential::{Credential, CredentialError};
use shared::net::endpoint::Endpoint;
use shared::net::fault::NetError;
use shared::net::router::{Router, RouterLimits};
use shared::wire::request::Submission;
use thiserror::Error;
use tokio::sync::mpsc;

use super::certificates::Certificates;
use super::coordinator::{CoordinatorActor, Prepare, Prepared, Stop};
use super::files;
use super::journal::Writer;
use super::preparing::{self, Rows};
use super::requests::CoordinatorService;
use super::settings::{CoordinatorSettings, Language};
use crate::book::Gap;
use crate::life::cluster::{Coordinator, Now};
use crate::record::Inputs;
use crate::store::sqlite::Sqlite;
use crate::store::{Journal, JournalError};

/// Says why a coordinator did not start, or ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal has a gap.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// The certificate.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The port, or TLS.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Threads.
    #[error("the system gives no thread or runtime: {0}")]
    System(#[from] std::io::Error),
    /// It had to stop.
    #[error("{0}")]
    Stopped(String),
}

/// Runs a coordinator until the cluster is shut down or `stop` says so; in the latter case the cluster stays as it is.
///
/// # Errors
/// [`RunError`] when it cannot start, then nothing of it runs; or when it had to stop.
pub fn run(
    settings: CoordinatorSettings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let credential = Credential::load(&settings.credential)?;
    let certificates = match &settings.authority {
        None => None,
        Some(path) => Some(Arc::new(Certificates::new(
            Authority::load(path)?,
            &settings.tokens,
            settings.certificate_life,
            Arc::clone(&settings.wall),
        ))),
    };
    let network = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("network")
        .enable_all()
        .build()?;
    // The port before the lease: who cannot be reached must not lead.
    let endpoint = {
        let _inside = network.enter();
        Arc::new(Endpoint::open(&settings.endpoint, &credential, true)?)
    };
    let mut journal = Sqlite::open(&settings.journal)?;
    let lease = take_lease(&mut journal, &settings)?;
    let book = journal.load()?.book()?;
    let kept = settings.decisions.limits.events_kept as u64;
    let after = EventNumber(book.last.0.saturating_sub(kept));
    let recent = journal.records(after, u32::try_from(kept).unwrap_or(u32::MAX))?;
    let (told, written) = mpsc::unbounded_channel();
    let term = lease.term;
    let writer = Writer::start(Box::new(journal), lease, settings.lease, told)?;
    let now = Now {
        steady: (settings.steady)(),
        wall: (settings.wall)(),
    };
    let begun = Coordinator::begin(now, settings.decisions.clone(), term, book, &recent);
    let (failed, mut failures) = mpsc::unbounded_channel();
    let system = System::new();
    let prepare = preparer(&network, &settings);
    let actor = CoordinatorActor::new(begun, settings.clone(), (writer, written), prepare, failed);
    let actor = system.block_on(async { actor.start() });
    let service = CoordinatorService {
        actor: actor.clone(),
        settings: settings.clone(),
        certificates: certificates.clone(),
    };
    let router = network
        .block_on(async { Router::start(Arc::clone(&endpoint), service, RouterLimits::default()) });
    if let Some(certificates) = certificates {
        network.spawn(renew_own(settings.clone(), endpoint, certificates));
    }
    network.spawn(async move {
        stop.await;
        // An actor that is gone has stopped.
        let _ = actor.send(Stop).await;
    });
    tracing::info!(cluster = %settings.decisions.cluster, %term, "coordinator at work");
    system.run()?;
    network.block_on(router.drain(Duration::from_secs(1)));
    network.shutdown_timeout(Duration::from_secs(2));
    match failures.try_recv() {
        Ok(reason) => Err(RunError::Stopped(reason)),
        Err(_) => Ok(()),
    }
}

/// Takes the lease; one that a coordinator before left behind expires within its time.
fn take_lease(
    journal: &mut dyn Journal,
    settings: &CoordinatorSettings,
) -> Result<crate::store::Lease, JournalError> {
    loop {
        match journal.take_lease(&settings.owner, settings.lease) {
            Err(JournalError::Led { owner, term, left }) if left <= settings.lease => {
                tracing::info!(owner, %term, %left, "waiting for the lease");
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the shell waits for a lease to expire, which nobody announces"
                )]
                std::thread::sleep(Duration::from_micros(left.0.clamp(50_000, 500_000)));
            }
            taken => return taken,
        }
    }
}

/// Reads, checks and tokenizes samples beside everything else.
fn preparer(network: &tokio::runtime::Runtime, settings: &CoordinatorSettings) -> Prepare {
    let handle = network.handle().clone();
    let (store, language) = (settings.store.clone(), Arc::clone(&settings.language));
    let shape = Arc::new(settings.decisions.backbone.shape.clone());
    Box::new(
        move |job: JobId, submission: Submission, actor: Addr<CoordinatorActor>| {
            let (store, language, shape) =
                (store.clone(), Arc::clone(&language), Arc::clone(&shape));
            handle.spawn(async move {
                let outcome = prepare(&store, &language, &shape, &submission).await;
                // An actor that is gone finds the job unprepared when it is back.
                let _ = actor.send(Prepared(job, outcome)).await;
            });
        },
    )
}

async fn prepare(
    store: &Store,
    language: &Arc<Language>,
    shape: &Arc<shared::model::ModelShape>,
    submission: &Submission,
) -> Result<Inputs, Reason> {
    let system = |message: String| Reason {
        class: ReasonClass::System,
        message,
    };
    let spec: JobSpec = serde_json::from_str(&submission.spec).map_err(|error| Reason {
        class: ReasonClass::UserError,
        message: format!("the specification cannot be read: {error}"),
    })?;
    let files = files::of(store, submission).await.map_err(system)?;
    let init_from = match &spec.init_from {
        None => None,
        Some(folder) => Some(adapter(store, folder, &files).await?),
    };
    let (language, shape) = (Arc::clone(language), Arc::clone(shape));
    let made =
        tokio::task::spawn_blocking(move || preparing::rows(&spec, &files, &shape, &language));
    let Rows { bytes, init_tokens } = made
        .await
        .map_err(|_| system("reading the samples panicked: report a bug".into()))??;
    let stamp = Stamp::of(&bytes);
    let key = Key::new(format!("rows/{}", stamp.sha256)).map_err(|e| system(e.to_string()))?;
    let stored = store.put(&key, bytes).await;
    stored.map_err(|error| system(error.to_string()))?;
    Ok(Inputs {
        rows: key.as_str().to_owned(),
        rows_sha256: stamp.sha256,
        init_from,
        init_tokens,
    })
}

/// Stores the two files of an adapter under names that its reader knows.
async fn adapter(
    store: &Store,
    folder: &str,
    files: &std::collections::BTreeMap<String, bytes::Bytes>,
) -> Result<[(String, String); 2], Reason> {
    let data_error = |message: String| Reason {
        class: ReasonClass::UserError,
        message,
    };
    let mut stored = Vec::new();
    for (path, bytes) in files.iter().filter(|(path, _)| path.starts_with(folder)) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stamp = Stamp::of(bytes);
        let key = Key::new(format!("adapters/{}/{name}", stamp.sha256));
        let key = key.map_err(|error| data_error(format!("init_from: {error}")))?;
        let put = store.put(&key, bytes.clone()).await;
        put.map_err(|error| Reason {
            class: ReasonClass::System,
            message: error.to_string(),
        })?;
        stored.push((key.as_str().to_owned(), stamp.sha256));
    }
    stored.sort();
    <[_; 2]>::try_from(stored).map_err(|found| {
        data_error(format!(
            "init_from: {} of the two files of the adapter came with the job: submit it again",
            found.len()
        ))
    })
}

/// The coordinator's own certificate is renewed by its own authority.
async fn renew_own(
    settings: CoordinatorSettings,
    endpoint: Arc<Endpoint>,
    certificates: Arc<Certificates>,
) {
    loop {
        let Ok(held) = Credential::load(&settings.credential) else {
            return;
        };
        let now = (settings.wall)();
        #[expect(
            clippy::disallowed_methods,
            reason = "the shell waits until a certificate is to be renewed"
        )]
        tokio::time::sleep(shared::net::renew::until_renewal(&held, now)).await;
        let life = certificates.life();
        let fresh = certificates
            .authority()
            .issue(&held.identity, life, (settings.wall)());
        let renewed = fresh.map_err(|error| error.to_string()).and_then(|fresh| {
            fresh
                .save(&settings.credential)
                .map_err(|error| error.to_string())?;
            endpoint.renew(&fresh).map_err(|error| error.to_string())
        });
        if let Err(error) = renewed {
            tracing::warn!(error, "the coordinator's certificate is not renewed");
            return;
        }
    }
}
