//! Files of clients in the store of artifacts: by content hash, whole or not at all.

use std::collections::BTreeMap;

use bytes::Bytes;
use shared::artifact::{ArtifactError, Key, Stamp, Store};
use shared::net::client::receive_body;
use shared::net::fault::NetError;
use shared::net::stream::Stream;
use shared::wire::request::{FileRef, Refusal, RefusalCode, Reply, Submission};

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

/// Takes a file whose bytes follow.
pub(super) async fn put(
    store: &Store,
    file: &FileRef,
    largest: shared::units::Bytes,
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
    let mut body = Vec::new();
    if let Err(error) = receive_body(&mut stream.receiver, file, &mut body).await {
        let message = format!("{}: {error}", file.path);
        return Ok(Err(refusal(RefusalCode::Invalid, message)));
    }
    Ok(store
        .put(&key, body)
        .await
        .map(|_| Reply::Done)
        .map_err(|error| internal(&error)))
}

/// The files of a submission, by the path that its specification has.
pub(super) async fn of(
    store: &Store,
    submission: &Submission,
) -> Result<BTreeMap<String, Bytes>, String> {
    let mut files = BTreeMap::new();
    for file in &submission.files {
        let key = key(&file.sha256).map_err(|refusal| refusal.message)?;
        let stamp = Stamp {
            sha256: file.sha256.clone(),
            bytes: file.bytes,
        };
        let bytes = store.get_checked(&key, &stamp).await;
        let bytes = bytes.map_err(|error| format!("{}: {error}", file.path))?;
        files.insert(file.path.clone(), bytes);
    }
    Ok(files)
}

/// Sends the files of an adapter, each with its name and content hash.
pub(super) async fn send_adapter(
    store: &Store,
    job: &str,
    stream: &mut Stream,
) -> Result<Result<Reply, Refusal>, NetError> {
    let prefix = match Key::new(format!("jobs/{job}/adapter")) {
        Ok(prefix) => prefix,
        Err(error) => return Ok(Err(refusal(RefusalCode::Invalid, error.to_string()))),
    };
    let listed = match store.list(Some(&prefix)).await {
        Ok(listed) => listed,
        Err(error) => return Ok(Err(internal(&error))),
    };
    if listed.is_empty() {
        let message = format!("job {job} has no adapter in the store yet: wait until it succeeded");
        return Ok(Err(refusal(RefusalCode::NotFound, message)));
    }
    for (key, _) in listed {
        let bytes = match store.get(&key).await {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(internal(&error))),
        };
        let stamp = Stamp::of(&bytes);
        let name = key.as_str().rsplit('/').next().unwrap_or_default();
        let file = FileRef {
            path: name.to_owned(),
            sha256: stamp.sha256,
            bytes: stamp.bytes,
        };
        stream.sender.send(&Reply::File(file)).await?;
        stream.sender.send_raw(bytes).await?;
    }
    Ok(Ok(Reply::Done))
}
