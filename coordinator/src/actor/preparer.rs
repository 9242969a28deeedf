//! Turns the files of a submission into token rows in the store, beside everything else.
//!
//! - `PP-1` Few jobs are read at once, and of several together no more than [`MIB`] of files: each has its files and its rows in
//!   memory. So it is after a restart, when all that were not read come at once.
//! - `PP-2` A store that does not answer fails no job before `bounds.outage`; it is asked again, later each time.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use shared::actor::waits::Waits;
use shared::artifact::{ArtifactError, Key, Stamp, Store};
use shared::ids::JobId;
use shared::job::JobSpec;
use shared::life::{Reason, ReasonClass};
use shared::units::Micros;
use shared::wire::request::Submission;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::files;
use super::messages::{Prepare, Prepared};
use super::preparing::{self as rows, Rows};
use super::settings::{Clock, CoordinatorSettings, Language};
use crate::record::Inputs;

/// Jobs whose files are read at once.
const AT_ONCE: usize = 2;

/// MiB of files of several jobs that are read at once; one job alone may have more.
const MIB: u32 = 1024;

/// Room for jobs whose files are read. PP-1
struct Room {
    jobs: Semaphore,
    mib: Semaphore,
}

impl Room {
    fn new() -> Self {
        Self {
            jobs: Semaphore::new(AT_ONCE),
            mib: Semaphore::new(MIB as usize),
        }
    }

    /// Waits until there is room for files of so many bytes, and keeps it.
    async fn take(&self, bytes: u64) -> (SemaphorePermit<'_>, SemaphorePermit<'_>) {
        const OPEN: &str = "a semaphore of preparing is never closed";
        let mib = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(MIB);
        let job = self.jobs.acquire().await.expect(OPEN);
        let mib = self.mib.acquire_many(mib.min(MIB)).await.expect(OPEN);
        (job, mib)
    }
}

/// Between two tries.
const WAITS: Waits = Waits {
    first: Micros::of_millis(1_000),
    most: Micros::of_millis(30_000),
};

/// Why a job is not prepared.
#[derive(Debug)]
enum Trouble {
    /// The store does not answer, or refuses.
    Store(String),
    /// The next try ends as this one.
    Told(Reason),
}

impl Trouble {
    /// What the store says of a file.
    fn of(what: &str, error: &ArtifactError) -> Self {
        match error {
            ArtifactError::Refused { .. } => Self::Store(format!("{what}: {error}")),
            _ => Self::Told(Reason {
                class: ReasonClass::DataError,
                message: format!("{what}: {error}: submit the job again, under another name"),
            }),
        }
    }
}

/// Reads, checks and tokenizes samples beside everything else.
pub(super) fn start(network: &tokio::runtime::Handle, settings: &CoordinatorSettings) -> Prepare {
    let handle = network.clone();
    let (store, language) = (settings.store.clone(), Arc::clone(&settings.language));
    let shape = Arc::new(settings.decisions.backbone.shape.clone());
    let (outage, steady) = (
        settings.decisions.bounds.outage,
        Arc::clone(&settings.steady),
    );
    let room = Arc::new(Room::new());
    Box::new(
        move |job: JobId, submission: Submission, actor: Recipient<Prepared>| {
            let (store, language, shape) =
                (store.clone(), Arc::clone(&language), Arc::clone(&shape));
            let (steady, room) = (Arc::clone(&steady), Arc::clone(&room));
            let sizes = submission.files.iter().map(|file| file.bytes.0);
            let bytes = sizes.fold(0, u64::saturating_add);
            let submission = Arc::new(submission);
            let once = move || {
                let (store, language, shape) =
                    (store.clone(), Arc::clone(&language), Arc::clone(&shape));
                let (room, submission) = (Arc::clone(&room), Arc::clone(&submission));
                let work = async move {
                    let _room = room.take(bytes).await;
                    prepare(&store, &language, &shape, &submission).await
                };
                async move {
                    tokio::spawn(work).await.unwrap_or_else(|panic| {
                        Err(Trouble::Told(Reason {
                            class: ReasonClass::System,
                            message: format!("preparing the job panicked: report a bug ({panic})"),
                        }))
                    })
                }
            };
            handle.spawn(async move {
                let outcome = patiently(job, outage, &steady, once, pause).await;
                // An actor that is gone finds the job unprepared when it is back.
                let _ = actor.send(Prepared(job, outcome)).await;
            });
        },
    )
}

/// Tries until the store answers, or has not for as long as is borne. PP-2
async fn patiently<T, O, P>(
    job: JobId,
    outage: Micros,
    steady: &Clock,
    mut once: impl FnMut() -> O,
    pause: impl Fn(Duration) -> P,
) -> Result<T, Reason>
where
    O: Future<Output = Result<T, Trouble>>,
    P: Future<Output = ()>,
{
    let mut failed: Option<Micros> = None;
    let mut failures = 0;
    loop {
        let reason = match once().await {
            Ok(prepared) => return Ok(prepared),
            Err(Trouble::Told(reason)) => return Err(reason),
            Err(Trouble::Store(reason)) => reason,
        };
        let now = steady();
        let since = *failed.get_or_insert(now);
        if now.since(since) >= outage {
            return Err(Reason {
                class: ReasonClass::System,
                message: format!(
                    "{reason}; and so for longer than {outage} (store.outage_seconds)"
                ),
            });
        }
        tracing::warn!(%job, reason, "the job is not prepared yet");
        failures += 1;
        pause(Duration::from_micros(WAITS.after(failures).0)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shell waits before it asks a store again"
)]
async fn pause(so_long: Duration) {
    tokio::time::sleep(so_long).await;
}

async fn prepare(
    store: &Store,
    language: &Arc<Language>,
    shape: &Arc<shared::model::ModelShape>,
    submission: &Submission,
) -> Result<Inputs, Trouble> {
    let told = |class: ReasonClass, message: String| Trouble::Told(Reason { class, message });
    let system = |message: String| told(ReasonClass::System, message);
    let spec: JobSpec = serde_json::from_str(&submission.spec).map_err(|error| {
        let message = format!("the specification cannot be read: {error}");
        told(ReasonClass::UserError, message)
    })?;
    let files = files::of(store, submission).await;
    let files = files.map_err(|(path, error)| match error {
        files::Unread::NoHash(message) => told(ReasonClass::UserError, message),
        files::Unread::Store(error) => Trouble::of(&path, &error),
    })?;
    let init_from = match &spec.init_from {
        None => None,
        Some(folder) => Some(adapter(store, folder, &files).await?),
    };
    let (language, shape) = (Arc::clone(language), Arc::clone(shape));
    let made = tokio::task::spawn_blocking(move || rows::rows(&spec, &files, &shape, &language));
    let Rows {
        bytes,
        init_tokens,
        measure,
        samples,
    } = made
        .await
        .map_err(|_| system("reading the samples panicked: report a bug".into()))?
        .map_err(Trouble::Told)?;
    let stamp = Stamp::of(&bytes);
    let key = Key::new(format!("rows/{}", stamp.sha256)).map_err(|e| system(e.to_string()))?;
    let stored = store.put(&key, bytes).await;
    stored.map_err(|error| Trouble::of("the token rows", &error))?;
    Ok(Inputs {
        rows: key.as_str().to_owned(),
        rows_sha256: stamp.sha256,
        init_from,
        init_tokens,
        measure: Some(Box::new(measure)),
        samples,
    })
}

/// Stores the two files of an adapter under names that its reader knows.
async fn adapter(
    store: &Store,
    folder: &str,
    files: &std::collections::BTreeMap<String, bytes::Bytes>,
) -> Result<[(String, String); 2], Trouble> {
    let data_error = |message: String| {
        Trouble::Told(Reason {
            class: ReasonClass::UserError,
            message,
        })
    };
    let mut stored = Vec::new();
    for (path, bytes) in files.iter().filter(|(path, _)| lies_in(path, folder)) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stamp = Stamp::of(bytes);
        let key = Key::new(format!("adapters/{}/{name}", stamp.sha256));
        let key = key.map_err(|error| data_error(format!("init_from: {error}")))?;
        let put = store.put(&key, bytes.clone()).await;
        put.map_err(|error| Trouble::of("the adapter to start from", &error))?;
        stored.push((key.as_str().to_owned(), stamp.sha256));
    }
    stored.sort();
    <[_; 2]>::try_from(stored).map_err(|found| {
        data_error(format!(
            "init_from: {} of the two files of the adapter came with the job: submit it again, under another name",
            found.len()
        ))
    })
}

/// Whether a file lies in a folder, and in no folder of it.
fn lies_in(path: &str, folder: &str) -> bool {
    let inside = path.strip_prefix(folder.trim_end_matches('/'));
    let name = inside.and_then(|inside| inside.strip_prefix('/'));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;
    use std::future::ready;
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;

    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.build().unwrap().block_on(work)
    }

    /// What becomes of a job whose tries end like this, and when.
    fn tried(mut tries: impl FnMut() -> Result<u8, Trouble>) -> (Result<u8, Reason>, Micros) {
        let now = Arc::new(AtomicU64::new(7_000_000));
        let (time, passed) = (Arc::clone(&now), Arc::clone(&now));
        let steady: Clock = Arc::new(move || Micros(time.load(Ordering::Acquire)));
        let pause = move |so_long: Duration| {
            let so_long = u64::try_from(so_long.as_micros()).unwrap();
            passed.fetch_add(so_long, Ordering::AcqRel);
            ready(())
        };
        let outage = Micros::of_millis(60_000);
        let once = || ready(tries());
        let outcome = block_on(patiently(JobId(1), outage, &steady, once, pause));
        (outcome, Micros(now.load(Ordering::Acquire) - 7_000_000))
    }

    fn away() -> Result<u8, Trouble> {
        Err(Trouble::Store("no route".into()))
    }

    #[test]
    fn pp_1_few_jobs_and_few_bytes_are_read_at_once() {
        let room = Room::new();
        let full = u64::from(MIB) << 20;
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut take = |bytes| {
            let mut taking = Box::pin(room.take(bytes));
            match taking.as_mut().poll(&mut context) {
                std::task::Poll::Ready(taken) => Some(taken),
                std::task::Poll::Pending => None,
            }
        };
        let large = take(9 * full);
        assert!(large.is_some(), "one may be as large as it is");
        assert!(take(1).is_none(), "nobody else is read beside it");
        drop(large);
        let half = take(full / 2);
        assert!(take(full / 2 + 1).is_none());
        let other = take(full / 2);
        assert!(half.is_some() && other.is_some());
        drop((half, other));
        let small: Vec<_> = (0..AT_ONCE).map(|_| take(0)).collect();
        assert!(small.iter().all(Option::is_some));
        assert!(take(0).is_none());
    }

    #[test]
    fn pp_2_a_store_that_comes_back_in_time_fails_no_job() {
        let mut left = 5;
        let (outcome, after) = tried(|| {
            left -= 1;
            if left == 0 { Ok(9) } else { away() }
        });
        assert_eq!(outcome, Ok(9));
        assert_eq!(after, Micros::of_millis(15_000));
        let (outcome, after) = tried(away);
        let reason = outcome.unwrap_err();
        assert_eq!(reason.class, ReasonClass::System);
        assert!(reason.message.starts_with("no route"), "{reason:?}");
        assert!(after >= Micros::of_millis(60_000), "{after}");
        let wrong = || Reason {
            class: ReasonClass::DataError,
            message: "no text".into(),
        };
        let (outcome, after) = tried(|| Err(Trouble::Told(wrong())));
        assert_eq!((outcome, after), (Err(wrong()), Micros(0)));
    }

    #[test]
    fn an_adapter_is_what_lies_in_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(&root.path().display().to_string(), &BTreeMap::new()).unwrap();
        let paths = [
            "old/adapter_config.json",
            "old/adapter_model.safetensors",
            "old.jsonl",
            "older/adapter_config.json",
        ];
        let files: BTreeMap<String, Bytes> = paths
            .iter()
            .map(|path| ((*path).to_owned(), Bytes::from_static(path.as_bytes())))
            .collect();
        for folder in ["old", "old/"] {
            let found = block_on(adapter(&store, folder, &files)).unwrap();
            let mut names = found.map(|(key, _)| key.rsplit('/').next().unwrap().to_owned());
            names.sort();
            assert_eq!(names, ["adapter_config.json", "adapter_model.safetensors"]);
        }
        let none = block_on(adapter(&store, "ol", &files)).unwrap_err();
        assert!(matches!(none, Trouble::Told(_)), "{none:?}");
    }
}
