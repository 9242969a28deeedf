//! Turns the files of a submission into token rows in the store, beside everything else.

use std::sync::Arc;

use actix::Recipient;
use shared::artifact::{Key, Stamp, Store};
use shared::ids::JobId;
use shared::job::JobSpec;
use shared::life::{Reason, ReasonClass};
use shared::wire::request::Submission;

use super::files;
use super::messages::{Prepare, Prepared};
use super::preparing::{self as rows, Rows};
use super::settings::{CoordinatorSettings, Language};
use crate::record::Inputs;

/// Reads, checks and tokenizes samples beside everything else.
pub(super) fn start(network: &tokio::runtime::Handle, settings: &CoordinatorSettings) -> Prepare {
    let handle = network.clone();
    let (store, language) = (settings.store.clone(), Arc::clone(&settings.language));
    let shape = Arc::new(settings.decisions.backbone.shape.clone());
    Box::new(
        move |job: JobId, submission: Submission, actor: Recipient<Prepared>| {
            let (store, language, shape) =
                (store.clone(), Arc::clone(&language), Arc::clone(&shape));
            handle.spawn(async move {
                let work = async move { prepare(&store, &language, &shape, &submission).await };
                let outcome = tokio::spawn(work).await.unwrap_or_else(|panic| {
                    Err(Reason {
                        class: ReasonClass::System,
                        message: format!("preparing the job panicked: report a bug ({panic})"),
                    })
                });
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
    let made = tokio::task::spawn_blocking(move || rows::rows(&spec, &files, &shape, &language));
    let Rows {
        bytes,
        init_tokens,
        measure,
        samples,
    } = made
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
        measure: Some(Box::new(measure)),
        samples,
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
