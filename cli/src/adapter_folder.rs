//! Adapters on disk, as commands name them: `OUTPUT/NAME` of a job, or the PEFT folder itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_actor::model::Model;
use gpu_actor::peft::config;
use gpu_actor::peft::files::{self, Imported};
use gpu_actor::stage::adapter::Adapter;
use shared::excerpt::excerpt;
use shared::model::ModelShape;

use crate::exit::{Exit, Failure, OrExit};
use crate::render;
use crate::training::proof;

/// Seed of what does not depend on one once it is trained.
const SEED: u64 = 0;

/// An adapter and where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// The folder with `adapter_config.json`.
    pub(crate) folder: PathBuf,
    /// What it holds.
    pub(crate) found: Imported,
}

impl Opened {
    /// The adapter, ready to be attached.
    pub(crate) fn adapter(self) -> Adapter {
        Adapter::new(Arc::new(self.found.layout), self.found.values, SEED)
    }
}

/// What a command does with an adapter, or a checkpoint, of another base model than the one that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherBase {
    /// Ends, and says which it was made for.
    Refused,
    /// Says so and goes on: it was asked to.
    Taken,
}

impl OtherBase {
    /// As the flag `--other-base` says.
    pub(crate) fn asked(flag: bool) -> Self {
        match flag {
            true => Self::Taken,
            false => Self::Refused,
        }
    }

    /// Judges what is said of another base model; what is left is a note.
    ///
    /// # Errors
    /// [`Exit::BadInput`] with it where it is refused; `what` the command would do nevertheless ends the hint.
    pub(crate) fn judge(self, said: String, what: &str) -> Result<String, Failure> {
        match self {
            Self::Taken => Ok(format!("note: {said}")),
            Self::Refused => Err(Failure::new(Exit::BadInput, said).hint(format!(
                "give the model it was made for, or --other-base to {what} nevertheless"
            ))),
        }
    }
}

/// Opens an adapter for a model; where a record lies beside it, its files are those of the record.
///
/// # Errors
/// [`Exit::NotFound`] when there is none, [`Exit::BadInput`] when it is wrong, damaged, or does not fit the model.
pub(crate) fn open(given: &Path, shape: &ModelShape) -> Result<Opened, Failure> {
    let folder = locate(given)?;
    let found = files::read(&folder, shape).or_exit(Exit::BadInput)?;
    proof::prove(&folder)?;
    Ok(Opened { folder, found })
}

/// Says so when an adapter names another base model than this one; nothing when they are the same, or cannot be
/// compared: a name against a hash, or no name at all.
pub(crate) fn other_base(named: Option<&str>, model: &Model) -> Option<String> {
    let named = named?;
    let own = if named.starts_with("sha256:") {
        format!("sha256:{}", model.content_hash())
    } else {
        model.name.clone().filter(|_| is_hub_id(named))?
    };
    apart(named, &own)
}

/// Why the base model that an adapter names cannot be compared with this one; nothing where it can.
pub(crate) fn not_compared(named: Option<&str>, model: &Model) -> Option<String> {
    const NO_MORE: &str = "its shapes fit, and no more is known";
    match named {
        None => Some(format!(
            "the adapter names no base model, so that it could not be compared with this one: {NO_MORE}"
        )),
        Some(named) if named.starts_with("sha256:") => None,
        Some(named) if !is_hub_id(named) => Some(format!(
            "the adapter names {} as its base model, a place on the machine it was made on, which could not be compared \
             with this one: {NO_MORE}",
            excerpt(named)
        )),
        Some(named) => model.name.is_none().then(|| unnamed(named)),
    }
}

fn unnamed(named: &str) -> String {
    format!(
        "the adapter was made for {}, and this model has no name to compare: its shapes fit, and no more is known",
        excerpt(named)
    )
}

fn apart(named: &str, own: &str) -> Option<String> {
    let same = named.eq_ignore_ascii_case(own);
    (!same).then(|| {
        format!(
            "the adapter was made for {}, this model is {own}",
            excerpt(named)
        )
    })
}

/// The same of the adapter in a folder, for a model that is known by its name alone: only names of a model hub are compared.
pub(crate) fn other_base_by_name(folder: &Path, own: &str) -> Option<String> {
    let named = named_base(folder)?;
    (is_hub_id(&named) && is_hub_id(own)).then(|| apart(&named, own))?
}

/// The base model that the adapter in a folder names.
pub(crate) fn named_base(folder: &Path) -> Option<String> {
    let text = files::read_config(&folder.join(files::CONFIG)).ok()?;
    config::read(&text).ok()?.base
}

/// What is to be said of the base model that an adapter names, beside one that it fits by its shapes: that it is another, or that
/// this one has no name to compare; nothing where they are the same, or the adapter says nothing that holds on other machines.
pub(crate) fn of_base(named: Option<&str>, model: &Model) -> Option<String> {
    let nameless = || {
        let named = named.filter(|named| model.name.is_none() && is_hub_id(named))?;
        Some(unnamed(named))
    };
    other_base(named, model).or_else(nameless)
}

/// Whether a name is that of a model hub, owner and model, and not a path of the machine it was made on.
fn is_hub_id(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    parts.len() == 2
        && parts
            .iter()
            .all(|part| !part.is_empty() && !part.starts_with('.'))
}

/// The folder with `adapter_config.json`.
///
/// # Errors
/// [`Exit::NotFound`] when there is none, [`Exit::BadInput`] when it is no regular file.
pub(crate) fn locate(given: &Path) -> Result<PathBuf, Failure> {
    let inner = given.join("adapter");
    for folder in [given, &inner] {
        let config = folder.join(files::CONFIG);
        match config.metadata() {
            Ok(found) if found.is_file() => return Ok(folder.to_path_buf()),
            Ok(_) => {
                let message = format!("{} is not a regular file", config.display());
                return Err(Failure::new(Exit::BadInput, message));
            }
            Err(_) => {}
        }
    }
    let message = format!(
        "{} has no {}, and neither has {}",
        given.display(),
        files::CONFIG,
        inner.display()
    );
    let failure = Failure::new(Exit::NotFound, message);
    Err(if given.join("checkpoints").is_dir() {
        failure.hint("the job is not finished: its adapter is written at the end")
    } else if let Some(job) = a_job_within(given) {
        failure.hint(format!(
            "it is a folder of results: give the job, as {}",
            render::shell_word(&job.display().to_string())
        ))
    } else {
        failure.hint("give OUTPUT/NAME of a trained job, or a folder in the PEFT layout")
    })
}

/// The first job with an adapter in a folder of results.
fn a_job_within(output: &Path) -> Option<PathBuf> {
    let entries = output.read_dir().ok()?.flatten().map(|entry| entry.path());
    let done = entries.filter(|job| inner(job).is_some());
    done.min()
}

/// The adapter inside the folder of a job, where one lies there.
pub(crate) fn inner(job: &Path) -> Option<PathBuf> {
    let adapter = job.join("adapter");
    adapter.join(files::CONFIG).is_file().then_some(adapter)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn another_base_is_told_where_both_have_a_name_of_the_hub() {
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["q_proj"],"base_model_name_or_path":"a/b"}"#;
        fs::write(folder.path().join(files::CONFIG), config).unwrap();
        assert_eq!(named_base(folder.path()).as_deref(), Some("a/b"));
        let told = |own| other_base_by_name(folder.path(), own);
        assert_eq!(told("A/B"), None, "it is the same");
        assert_eq!(told("model"), None, "it is a path of another machine");
        assert!(
            told("a/c")
                .unwrap()
                .contains("made for a/b, this model is a/c")
        );
    }
}
