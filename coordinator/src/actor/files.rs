//! Files of clients in the store of artifacts: by content hash, whole or not at all.
//!
//! - `FI-1` A client that sends keeps a file on disk, not memory: few are in memory at once, and no client decides how long.
//! - `FI-2` A file that is fetched is on disk, and never whole in memory: it is copied and proven first, then sent piece by piece.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use shared::artifact::{ArtifactError, Key, Stamp, Store};
use shared::life::JobState;
use shared::net::client::receive_body;
use shared::net::fault::{CloseCode, NetError};
use shared::net::stream::Stream;
use shared::units;
use shared::wire::request::{FileRef, JobRef, Refusal, RefusalCode, Reply, Submission};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use crate::life::ledger::Ledger;

/// Bytes of a file that is sent held at once.
const PIECE: usize = 256 << 10;

/// Where a file of this content lies.
fn key(sha256: &str) -> Result<Key, Refusal> {
    let hexadecimal = sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit());
    let key = hexadecimal.then(|| Key::new(format!("files/{}", sha256.to_ascii_lowercase())));
    match key {
        Some(Ok(key)) => Ok(key),
        _ => Err(refusal(
            RefusalCode::Invalid,
            format!("{sha256:?} is no sha256: give 64 hexadecimal digits"),
        )),
    }
}

pub(super) fn refusal(code: RefusalCode, message: String) -> Refusal {
    Refusal { code, message }
}

fn internal(error: &ArtifactError) -> Refusal {
    refusal(
        RefusalCode::Internal,
        format!("the store of artifacts: {error}"),
    )
}

/// Whether a file is here.
pub(super) async fn has(store: &Store, file: &FileRef) -> Result<Reply, Refusal> {
    let found = store.size(&key(&file.sha256)?).await;
    match found.map_err(|error| internal(&error))? {
        Some(bytes) if bytes == file.bytes => Ok(Reply::Done),
        _ => Err(refusal(
            RefusalCode::NotFound,
            format!("{} is not in the store: upload it", file.path),
        )),
    }
}

/// Takes a file whose bytes follow, by a file of a folder here.
pub(super) async fn put(
    store: &Store,
    (folder, room): (&Path, &Semaphore),
    file: &FileRef,
    largest: units::Bytes,
    stream: &mut Stream,
) -> Result<Result<Reply, Refusal>, NetError> {
    let key = match key(&file.sha256) {
        Ok(key) => key,
        Err(refusal) => return Ok(Err(refusal)),
    };
    if file.bytes > largest {
        let message = format!(
            "{} has {}, the limit is {largest}: limits.upload_mib moves it",
            file.path, file.bytes
        );
        return Ok(Err(refusal(RefusalCode::Invalid, message)));
    }
    let body = match receive(folder, file, stream).await {
        Ok(body) => body,
        Err(refusal) => return Ok(Err(refusal)),
    };
    // FI-1. It is never closed.
    let _room = room.acquire().await;
    Ok(keep(store, &key, body).await)
}

/// Takes a body into a file without a name, at its end.
async fn receive(
    folder: &Path,
    file: &FileRef,
    stream: &mut Stream,
) -> Result<tokio::fs::File, Refusal> {
    let disk = |error: std::io::Error| {
        let message = format!(
            "{}: cannot be kept in {}: {error}",
            file.path,
            folder.display()
        );
        refusal(RefusalCode::Internal, message)
    };
    let mut body = tokio::fs::File::from_std(tempfile::tempfile_in(folder).map_err(disk)?);
    let received = receive_body(&mut stream.receiver, file, &mut body).await;
    received.map_err(|error| refusal(RefusalCode::Invalid, format!("{}: {error}", file.path)))?;
    body.rewind().await.map_err(disk)?;
    Ok(body)
}

/// Puts a file into the store.
async fn keep(store: &Store, key: &Key, mut body: tokio::fs::File) -> Result<Reply, Refusal> {
    let mut bytes = Vec::new();
    let read = body.read_to_end(&mut bytes).await;
    read.map_err(|error| refusal(RefusalCode::Internal, format!("{key}: {error}")))?;
    let stored = store.put(key, bytes).await;
    stored
        .map(|_| Reply::Done)
        .map_err(|error| internal(&error))
}

/// Why a file of a submission is not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It has no content hash.
    NoHash(String),
    /// The store does not give it.
    Store(ArtifactError),
}

/// The files of a submission, by the path that its specification has.
///
/// # Errors
/// Which file is not read, and why.
pub(super) async fn of(
    store: &Store,
    submission: &Submission,
) -> Result<BTreeMap<String, Bytes>, (String, Unread)> {
    let mut files = BTreeMap::new();
    for file in &submission.files {
        let key = key(&file.sha256)
            .map_err(|refusal| (file.path.clone(), Unread::NoHash(refusal.message)))?;
        let stamp = Stamp {
            sha256: file.sha256.clone(),
            bytes: file.bytes,
        };
        let bytes = store.get_checked(&key, &stamp).await;
        let bytes = bytes.map_err(|error| (file.path.clone(), Unread::Store(error)))?;
        files.insert(file.path.clone(), bytes);
    }
    Ok(files)
}

/// Key, content hash and size of the files of a job's adapter: those that its replica wrote before the job ended, or was set
/// aside, and no others that lie there.
///
/// # Errors
/// A refusal: there is no such job, or it has no adapter.
pub(super) fn adapter(
    ledger: &Ledger,
    job: &JobRef,
) -> Result<Vec<(String, String, units::Bytes)>, Refusal> {
    let job = ledger.find(job)?;
    let (id, state) = (job.id, job.state);
    let message = match state {
        JobState::Succeeded => return Ok(job.files.clone()),
        // That of the newest state known to be good.
        JobState::Failed if job.good.is_some() => return Ok(job.files.clone()),
        JobState::Failed | JobState::Cancelled if job.durable > 0 => format!(
            "job {id} has no adapter: it is {state}; `spotmux sample --job {id}` uses its state after step {}",
            job.durable
        ),
        JobState::Failed | JobState::Cancelled => {
            format!("job {id} has no adapter: it is {state}, and no step of it was stored")
        }
        _ => format!("job {id} has no adapter yet: it is {state}; wait until it succeeded"),
    };
    Err(refusal(RefusalCode::NotFound, message))
}

/// Sends the files of an adapter, each with its name and content hash, by a file of a folder here; none that is not what its
/// replica wrote.
pub(super) async fn send_adapter(
    store: &Store,
    folder: &Path,
    files: &[(String, String, units::Bytes)],
    stream: &mut Stream,
) -> Result<Result<Reply, Refusal>, NetError> {
    for written in files {
        let (file, mut body) = match copy(store, folder, written).await {
            Ok(copied) => copied,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let units::Bytes(mut left) = file.bytes;
        stream.sender.send(&Reply::File(file)).await?;
        while left > 0 {
            let mut piece = BytesMut::zeroed(PIECE.min(usize::try_from(left).unwrap_or(PIECE)));
            let Ok(read @ 1..) = body.read(&mut piece).await else {
                // The disk under a copy that was just made: all that can be done is not to end in order.
                stream.sender.reset(CloseCode::Malformed);
                return Err(NetError::Ended { due: "file" });
            };
            piece.truncate(read);
            left -= read as u64;
            stream.sender.send_raw(piece.freeze()).await?;
        }
    }
    Ok(Ok(Reply::Done))
}

/// Copies a file that must be what was written into one without a name, at its start. FI-2
async fn copy(
    store: &Store,
    folder: &Path,
    (text, sha256, size): &(String, String, units::Bytes),
) -> Result<(FileRef, tokio::fs::File), Refusal> {
    let wrong = |error: String| refusal(RefusalCode::Internal, format!("{text}: {error}"));
    let disk =
        |error: std::io::Error| wrong(format!("cannot be copied to {}: {error}", folder.display()));
    let key = Key::new(text).map_err(|error| wrong(error.to_string()))?;
    let stamp = Stamp {
        sha256: sha256.clone(),
        bytes: *size,
    };
    let mut body = tokio::fs::File::from_std(tempfile::tempfile_in(folder).map_err(disk)?);
    let pieces = store.pieces(&key, &stamp).await;
    let mut pieces = pieces.map_err(|error| internal(&error))?;
    while let Some(piece) = pieces.next().await.map_err(|error| internal(&error))? {
        body.write_all(&piece).await.map_err(disk)?;
    }
    body.flush().await.map_err(disk)?;
    body.rewind().await.map_err(disk)?;
    let file = FileRef {
        path: text.rsplit('/').next().unwrap_or(text).to_owned(),
        sha256: stamp.sha256,
        bytes: stamp.bytes,
    };
    Ok((file, body))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::ids::{JobId, NodeName};
    use shared::units::Micros;
    use shared::wire::notice::JobNotice;

    use super::*;
    use crate::life::ledger::Submitted;
    use crate::record::{Change, Source};
    use crate::settings::testing::shape;

    fn written(bytes: &[u8]) -> (String, String, units::Bytes) {
        let stamp = Stamp::of(bytes);
        let key = "jobs/j1/adapter/adapter_config.json";
        (key.to_owned(), stamp.sha256, stamp.bytes)
    }

    /// A job as it is when it was just submitted.
    fn submitted(ledger: &mut Ledger) -> JobId {
        let spec =
            r#"{"name":"a","adapter":{"method":"lora","rank":2},"data":{"train":"d.jsonl"}}"#;
        let file = FileRef {
            path: "d.jsonl".into(),
            sha256: "00".into(),
            bytes: units::Bytes(1),
        };
        let submission = Submission {
            spec: spec.into(),
            files: vec![file],
        };
        let submitted = ledger.submit(&submission, "7", &shape(), 9);
        let Ok(Submitted::New(job, accepted)) = submitted else {
            panic!("it is new")
        };
        ledger.apply(Micros(1), &Change::Submitted { job, accepted });
        job
    }

    fn heard(job: JobId, number: u64, notice: JobNotice) -> Change {
        let from = Source {
            node: NodeName::new("n1").unwrap(),
            incarnation: 1,
            number,
        };
        Change::Heard { from, job, notice }
    }

    #[test]
    fn an_adapter_is_what_a_job_that_succeeded_told_of() {
        let mut ledger = Ledger::default();
        let job = submitted(&mut ledger);
        let early = adapter(&ledger, &JobRef::Id(job)).unwrap_err();
        assert_eq!(early.code, RefusalCode::NotFound);
        assert!(
            early.message.contains("wait until it succeeded"),
            "{early:?}"
        );
        let mut ended = ledger.clone();
        ended.apply(Micros(2), &Change::CancelAsked { job });
        let none = adapter(&ended, &JobRef::Id(job)).unwrap_err();
        assert!(
            none.message.contains("it is cancelled, and no step"),
            "{none:?}"
        );
        let files = vec![written(b"{}")];
        let exported = JobNotice::Exported {
            files: files.clone(),
        };
        ledger.apply(Micros(3), &heard(job, 1, exported));
        assert_eq!(adapter(&ledger, &JobRef::Id(job)), Ok(files));
    }

    #[test]
    fn of_a_job_that_was_set_aside_is_said_which_state_is_left() {
        let mut ledger = Ledger::default();
        let job = submitted(&mut ledger);
        let (bytes, reason) = (units::Bytes(1), "the loss is infinite".to_owned());
        let notices = [
            JobNotice::Durable { step: 3, bytes },
            JobNotice::Quarantined { step: 3, reason },
        ];
        for (number, notice) in (1..).zip(notices) {
            ledger.apply(Micros(number), &heard(job, number, notice));
        }
        let why = ledger.get(job).unwrap().reason.clone().unwrap().message;
        let none = adapter(&ledger, &JobRef::Id(job)).unwrap_err();
        for told in [&why, &none.message] {
            assert!(told.contains("its state after step 3"), "{told}");
            assert!(told.contains("spotmux sample --job j1"), "{told}");
        }
    }

    #[test]
    fn of_a_job_that_was_set_aside_the_newest_good_state_is_fetched() {
        let mut ledger = Ledger::default();
        let job = submitted(&mut ledger);
        let files = vec![written(b"{}")];
        let (step, reason) = (2, "the loss is infinite".to_owned());
        let notices = [
            JobNotice::Salvaged {
                step,
                files: files.clone(),
            },
            JobNotice::Quarantined { step: 3, reason },
        ];
        for (number, notice) in (1..).zip(notices) {
            let early = adapter(&ledger, &JobRef::Id(job)).unwrap_err();
            assert!(early.message.contains("no adapter yet"), "{early:?}");
            ledger.apply(Micros(number), &heard(job, number, notice));
        }
        let why = ledger.get(job).unwrap().reason.clone().unwrap().message;
        assert!(
            why.contains("its good state after step 2 is kept: spotmux fetch j1"),
            "{why}"
        );
        assert_eq!(adapter(&ledger, &JobRef::Id(job)), Ok(files));
    }

    #[test]
    fn a_file_that_is_not_as_it_was_written_is_not_sent() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(&root.path().display().to_string(), &BTreeMap::new()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let own = written(b"{}");
        let key = Key::new(&own.0).unwrap();
        runtime.block_on(async {
            store.put(&key, &b"{}"[..]).await.unwrap();
            let (file, mut body) = copy(&store, root.path(), &own).await.unwrap();
            let mut bytes = Vec::new();
            body.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(
                (file.path.as_str(), &bytes[..]),
                ("adapter_config.json", &b"{}"[..])
            );
            store.put(&key, &b"[]"[..]).await.unwrap();
            let refused = copy(&store, root.path(), &own).await.unwrap_err();
            assert!(refused.message.contains("damaged"), "{refused:?}");
        });
    }
}
