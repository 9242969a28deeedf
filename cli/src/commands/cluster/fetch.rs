//! `spotmux fetch`: the adapter of a job, as files of the PEFT layout.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::json;
use shared::wire::request::{FileRef, JobRef, Request};

use crate::args::FetchArgs;
use crate::desk::{Desk, named};
use crate::exit::{Exit, Failure, OrExit};
use crate::render::{self, Align, Table};

/// Runs the command.
pub(crate) fn run(args: &FetchArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let folder = &args.folder;
    let files = fetch(&args.job, folder, desk)?;
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
    let word = render::shell_word(&folder.display().to_string());
    desk.output.next(&[
        format!("spotmux adapter inspect {word}"),
        format!("spotmux generate --model MODEL --adapter {word} 'Your prompt'"),
    ]);
    Ok(Exit::Done)
}

/// Fetches into a folder that appears whole or not at all.
///
/// # Errors
/// [`Exit::BadInput`] when the folder is there; what the cluster refuses; when it cannot be written.
pub(crate) fn fetch(job: &JobRef, folder: &Path, desk: &Desk<'_>) -> Result<Vec<FileRef>, Failure> {
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
    fs::rename(beside.path(), folder)
        .with_context(cannot)
        .or_exit(Exit::Internal)?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::ids::JobId;
    use shared::units::Bytes;
    use shared::wire::request::{RefusalCode, Reply};

    use super::*;
    use crate::args::ClusterArgs;
    use crate::control::scripted::{Scripted, refused};
    use crate::desk::tests::at;

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
    fn one_that_is_too_early_is_told_how_to_wait() {
        let folder = tempfile::tempdir().unwrap();
        let early = Scripted::new(|_, _| {
            let message = "job j3 has no adapter yet: it is running; wait until it succeeded";
            refused(RefusalCode::NotFound, message)
        });
        let place = folder.path().join("a");
        let fetched = at(&early, None, |desk| {
            fetch(&JobRef::Id(JobId(3)), &place, desk)
        });
        assert_eq!(fetched.unwrap_err().hints, ["spotmux job j3 --wait"]);
        let never = Scripted::new(|_, _| refused(RefusalCode::NotFound, "there is no job j3"));
        let fetched = at(&never, None, |desk| {
            fetch(&JobRef::Id(JobId(3)), &place, desk)
        });
        assert!(fetched.unwrap_err().hints.is_empty());
    }
}
