//! `spotmux fetch`: the adapter of a job, as files of the PEFT layout.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use shared::ids::{EventNumber, JobId};
use shared::job::JobSpec;
use shared::wire::request::{FileRef, JobRef, Reply, Request};

use crate::adapter_folder;
use crate::args::FetchArgs;
use crate::control::{Flow, unfitting};
use crate::desk::{Desk, named};
use crate::exit::{Exit, Failure, OrExit};
use crate::render::{self, Align, Table};
use crate::store;
use crate::training::place::PROVENANCE;
use crate::training::record::{FileRecord, Record};

/// Runs the command.
pub(crate) fn run(args: &FetchArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let folder = &args.folder;
    let mut model = None;
    let files = fetch(&args.job, folder, desk, |beside, files| {
        match described(&args.job, beside, files, desk) {
            Ok((record, called)) => {
                model = called;
                let place = beside.join(PROVENANCE);
                fs::write(&place, record.bytes()?)
                    .map_err(|error| Failure::from(error).about(folder))
            }
            Err(failure) if failure.exit == Exit::Interrupted => Err(failure),
            // What is asked after the files came costs none of them.
            Err(failure) => {
                let why = failure.message();
                desk.output
                    .note(format!("note: {PROVENANCE} is not written: {why}"));
                Ok(())
            }
        }
    })?;
    let mut table = Table::new(&[
        ("file", Align::Left),
        ("size", Align::Right),
        ("sha256", Align::Left),
    ]);
    for file in &files {
        table.row([
            file.path.clone(),
            render::bytes(file.bytes.0),
            file.sha256.clone(),
        ]);
    }
    let told = json!({ "job": named(&args.job), "folder": folder, "files": files });
    desk.output.result(&told, &table.text())?;
    let model = model.map_or_else(|| "MODEL".into(), |model| render::shell_word(&model));
    let word = render::shell_word(&folder.display().to_string());
    desk.output.next(&[
        format!("spotmux adapter inspect {word}"),
        format!("spotmux generate --model {model} --adapter {word} 'Your prompt'"),
    ]);
    Ok(Exit::Done)
}

/// Where an adapter that was fetched came from, as far as the cluster tells, and what a command calls its model.
fn described(
    job: &JobRef,
    adapter: &Path,
    fetched: &[FileRef],
    desk: &Desk<'_>,
) -> Result<(Record, Option<String>), Failure> {
    let view = desk.job(&Request::Job(job.clone()))?;
    let spec: JobSpec = serde_json::from_str(&view.spec)
        .context("its specification cannot be read")
        .or_exit(Exit::Coordinator)?;
    let cluster = desk.status()?;
    let named = adapter_folder::named_base(adapter);
    let base = named.unwrap_or_else(|| cluster.model.clone());
    let model = store::called(&base).or_else(|| store::called(&cluster.model));
    let record = Record {
        spotmux: env!("CARGO_PKG_VERSION").into(),
        job: view.name.to_string(),
        cluster: Some(cluster.name),
        id: Some(view.id.to_string()),
        trace: Some(view.trace),
        job_sha256: None,
        base_sha256: base.strip_prefix("sha256:").map(str::to_owned),
        base,
        data_sha256: rows(view.id, desk)?,
        start_sha256: None,
        seed: spec.seed,
        step: view.step,
        tokens: view.tokens,
        first_loss: view.first_loss,
        last_loss: view.last_loss,
        first_eval: view.first_eval,
        last_eval: view.last_eval.map(|(loss, _)| loss),
        files: fetched.iter().map(FileRecord::of_fetched).collect(),
    };
    Ok((record, model))
}

/// The content hash of a job's token rows, as the event says that made them; empty where it is not told.
fn rows(job: JobId, desk: &Desk<'_>) -> Result<String, Failure> {
    let request = Request::Events {
        job: Some(JobRef::Id(job)),
        after: EventNumber::default(),
        follow: false,
    };
    let mut rows = String::new();
    desk.control.stream(&request, &mut |reply| {
        let batch = match reply {
            Reply::Events(batch) => batch,
            Reply::Done => return Ok(Flow::Enough),
            other => return Err(unfitting(&other)),
        };
        let Some(event) = batch.iter().find(|event| event.kind == "job_queued") else {
            return Ok(Flow::More);
        };
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        rows = data["rows_sha256"].as_str().unwrap_or_default().to_owned();
        Ok(Flow::Enough)
    })?;
    Ok(rows)
}

/// Fetches into a folder that appears whole or not at all; `more` puts what else belongs there into the one that becomes it.
///
/// # Errors
/// [`Exit::BadInput`] when the folder is there; what the cluster refuses; when it cannot be written.
pub(crate) fn fetch(
    job: &JobRef,
    folder: &Path,
    desk: &Desk<'_>,
    more: impl FnOnce(&Path, &[FileRef]) -> Result<(), Failure>,
) -> Result<Vec<FileRef>, Failure> {
    if folder.symlink_metadata().is_ok() {
        let message = format!(
            "{} is there already: choose another folder, or remove it",
            folder.display()
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let cannot = || format!("cannot write {}", folder.display());
    fs::create_dir_all(parent)
        .with_context(cannot)
        .or_exit(Exit::Internal)?;
    let beside = tempfile::Builder::new()
        .prefix(".spotmux-")
        .tempdir_in(parent)
        .with_context(cannot)
        .or_exit(Exit::Internal)?;
    let files = desk
        .control
        .download(&Request::Fetch(job.clone()), beside.path())
        .map_err(|failure| match failure.exit {
            // Of a file of the folder beside, which nobody named.
            Exit::Internal => failure.about(folder),
            Exit::NotFound if failure.message().contains("has no adapter yet") => {
                failure.hint(format!("spotmux job {} --wait", named(job)))
            }
            _ => failure,
        })?;
    more(beside.path(), &files)?;
    fs::rename(beside.path(), folder)
        .with_context(cannot)
        .or_exit(Exit::Internal)?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::life::JobState;
    use shared::units::Bytes;
    use shared::wire::request::RefusalCode;
    use shared::wire::view::Level;

    use super::*;
    use crate::args::ClusterArgs;
    use crate::control::scripted::{Scripted, refused};
    use crate::desk::tests::at;
    use crate::shown::samples;

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let args = FetchArgs {
            job: JobRef::Id(JobId(3)),
            folder: folder.path().join("a/b"),
            cluster: ClusterArgs::default(),
        };
        let file = FileRef {
            path: "adapter_config.json".into(),
            sha256: "00".into(),
            bytes: Bytes(5),
        };
        let half = {
            let file = file.clone();
            Scripted::new(move |_, _| {
                let mut replies = vec![Reply::File(file.clone())];
                replies.extend(refused(RefusalCode::Internal, "the store is away"));
                replies
            })
        };
        at(&half, None, |desk| run(&args, desk)).unwrap_err();
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 0);
        let whole = Scripted::new(move |_, _| vec![Reply::File(file.clone()), Reply::Done]);
        at(&whole, None, |desk| run(&args, desk)).unwrap();
        assert!(args.folder.join("adapter_config.json").is_file());
        let again = at(&whole, None, |desk| run(&args, desk)).unwrap_err();
        assert!(again.message().contains("there already"));
    }

    #[test]
    fn what_was_fetched_says_where_it_came_from() {
        let folder = tempfile::tempdir().unwrap();
        let args = FetchArgs {
            job: JobRef::Id(JobId(3)),
            folder: folder.path().join("a"),
            cluster: ClusterArgs::default(),
        };
        let control = Scripted::new(|request, _| match request {
            Request::Fetch(_) => {
                let file = FileRef {
                    path: "adapter_config.json".into(),
                    sha256: "00".into(),
                    bytes: Bytes(5),
                };
                vec![Reply::File(file), Reply::Done]
            }
            Request::Job(_) => {
                let mut job = samples::job(3, "a", JobState::Succeeded);
                job.spec =
                    r#"{"name":"a","seed":5,"adapter":{"method":"ia3"},"data":{"train":"d"}}"#
                        .into();
                vec![Reply::Job(Box::new(job))]
            }
            Request::Status => {
                let mut cluster = samples::cluster();
                cluster.model = "sha256:ab".into();
                vec![Reply::Cluster(cluster)]
            }
            Request::Events { .. } => {
                let mut event = samples::event(8, Level::Info, "job_queued", "");
                event.data = r#"{"rows_sha256":"cd"}"#.into();
                vec![Reply::Events(vec![event]), Reply::Done]
            }
            other => panic!("{other:?}"),
        });
        at(&control, None, |desk| run(&args, desk)).unwrap();
        let text = fs::read_to_string(args.folder.join(PROVENANCE)).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        let told = ["job", "id", "base", "base_sha256", "data_sha256"].map(|key| &record[key]);
        assert_eq!(told, ["a", "j3", "sha256:ab", "ab", "cd"]);
        assert_eq!(
            (&record["seed"], &record["files"][0]["bytes"]),
            (&5.into(), &5.into())
        );
        assert_eq!(record.get("job_sha256"), None, "it is not known here");
    }

    #[test]
    fn one_that_is_too_early_is_told_how_to_wait() {
        let folder = tempfile::tempdir().unwrap();
        let early = Scripted::new(|_, _| {
            let message = "job j3 has no adapter yet: it is running; wait until it succeeded";
            refused(RefusalCode::NotFound, message)
        });
        let place = folder.path().join("a");
        let fetched = at(&early, None, |desk| {
            fetch(&JobRef::Id(JobId(3)), &place, desk, |_, _| Ok(()))
        });
        assert_eq!(fetched.unwrap_err().hints, ["spotmux job j3 --wait"]);
        let never = Scripted::new(|_, _| refused(RefusalCode::NotFound, "there is no job j3"));
        let fetched = at(&never, None, |desk| {
            fetch(&JobRef::Id(JobId(3)), &place, desk, |_, _| Ok(()))
        });
        assert!(fetched.unwrap_err().hints.is_empty());
    }
}
