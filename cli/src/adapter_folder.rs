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
use crate::training::{proof, record};

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
    /// How its base model compares with a model.
    pub(crate) fn compared(&self, model: &Model) -> Compared {
        compare(&base_of(&self.folder), model)
    }

    /// The same where the adapter is but read: a model of its base's name is taken for it, without a look at all weights.
    pub(crate) fn compared_for_reading(&self, model: &Model) -> Compared {
        let base = base_of(&self.folder);
        let names = base.named.as_deref().zip(model.name.as_deref());
        match names.is_some_and(|(named, own)| apart(named, own).is_none()) {
            true => Compared::Same,
            false => compare(&base, model),
        }
    }

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
    pub(crate) fn judge(self, said: &str, what: &str) -> Result<String, Failure> {
        match self {
            Self::Taken => Ok(format!("note: {said}")),
            Self::Refused => Err(Failure::new(Exit::BadInput, said.to_owned()).hint(format!(
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

/// What an adapter says of the base model that it was made for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Base {
    /// Its name.
    pub(crate) named: Option<String>,
    /// Its content hash, where the record beside the adapter has it.
    sha256: Option<String>,
}

/// What the adapter in a folder says of its base model.
pub(crate) fn base_of(folder: &Path) -> Base {
    Base {
        named: named_base(folder),
        sha256: record::base_sha256(folder),
    }
}

/// How the base model of an adapter compares with a model, each with a sentence on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// It is the same.
    Same,
    /// It is another.
    Other(String),
    /// The model has no name to compare.
    Nameless(String),
    /// The adapter says nothing that could be compared with it.
    Unsaid(String),
}

impl Compared {
    /// That it is another.
    pub(crate) fn other(&self) -> Option<&str> {
        match self {
            Self::Other(said) => Some(said),
            _ => None,
        }
    }

    /// Why it is not known whether it is another.
    pub(crate) fn unknown(&self) -> Option<&str> {
        match self {
            Self::Nameless(said) | Self::Unsaid(said) => Some(said),
            _ => None,
        }
    }

    /// What is worth a note where an adapter is but read: nothing of one that says nothing which holds on other machines.
    pub(crate) fn noted(&self) -> Option<&str> {
        match self {
            Self::Other(said) | Self::Nameless(said) => Some(said),
            _ => None,
        }
    }
}

/// Compares the base model of an adapter with a model: by the content hash where a record has it, else by what the adapter names.
/// A model of the same name and another hash may be the same in another format: that is not known.
pub(crate) fn compare(base: &Base, model: &Model) -> Compared {
    compare_with(base, model.name.as_deref(), || model.content_hash())
}

/// The same with the name of a model and its content hash, which costs a look at all weights.
pub(crate) fn compare_with(
    base: &Base,
    own: Option<&str>,
    hash: impl FnOnce() -> String,
) -> Compared {
    const NO_MORE: &str = "its shapes fit, and no more is known";
    let named = base.named.as_deref();
    let by_name = named.and_then(|named| named.strip_prefix("sha256:"));
    if let Some(made_for) = base.sha256.as_deref().or(by_name) {
        return by_hash(named, made_for, own, &hash());
    }
    let Some(named) = named else {
        return Compared::Unsaid(format!(
            "the adapter names no base model, so that it could not be compared with this one: {NO_MORE}"
        ));
    };
    let shown = excerpt(named);
    if !is_hub_id(named) && !is_title(named) {
        return Compared::Unsaid(format!(
            "the adapter names {shown} as its base model, a place on the machine it was made on, which could not be compared \
             with this one: {NO_MORE}"
        ));
    }
    let Some(own) = own else {
        return Compared::Nameless(format!(
            "the adapter was made for {shown}, and this model has no name to compare: {NO_MORE}"
        ));
    };
    match apart(named, own) {
        None => Compared::Same,
        Some(said) if is_hub_id(named) || is_title(own) => Compared::Other(said),
        Some(_) => Compared::Unsaid(format!(
            "the adapter names {shown} as its base model, no name of a model hub, which could not be compared with this one, \
             {own}: {NO_MORE}"
        )),
    }
}

fn by_hash(named: Option<&str>, made_for: &str, own: Option<&str>, hash: &str) -> Compared {
    if made_for.eq_ignore_ascii_case(hash) {
        return Compared::Same;
    }
    let called = |name: Option<&str>, hash: &str| match name {
        Some(name) if !name.starts_with("sha256:") => {
            format!("{} (sha256:{})", excerpt(name), excerpt(hash))
        }
        _ => format!("sha256:{}", excerpt(hash)),
    };
    let said = format!(
        "the adapter was made for {}, this model is {}: one with other weights, or these in another format",
        called(named, made_for),
        called(own, hash)
    );
    let of_one_name = named
        .zip(own)
        .is_some_and(|(named, own)| apart(named, own).is_none());
    match of_one_name {
        // What it is kept as changes the hash: the same model is not refused for that.
        true => Compared::Unsaid(said),
        false => Compared::Other(said),
    }
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

/// Whether a name is that of a model hub, owner and model, and not a path of the machine it was made on.
fn is_hub_id(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    parts.len() == 2
        && parts
            .iter()
            .all(|part| !part.is_empty() && !part.starts_with('.'))
}

/// Whether a name is a title, as a GGUF has one, and not a path.
fn is_title(name: &str) -> bool {
    !name.contains(['/', '\\']) && !name.starts_with(['.', '~'])
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

    #[test]
    fn titles_are_compared_and_a_hash_decides_where_one_is_recorded() {
        let compared = |named: Option<&str>, sha256: Option<&str>, own: Option<&str>| {
            let base = Base {
                named: named.map(str::to_owned),
                sha256: sha256.map(str::to_owned),
            };
            compare_with(&base, own, || "ab12".to_owned())
        };
        let title = Some("Tiny 1M v2");
        assert_eq!(compared(title, None, title), Compared::Same);
        let other = compared(title, None, Some("Tiny 1M v3"));
        let said = "the adapter was made for Tiny 1M v2, this model is Tiny 1M v3";
        assert_eq!(other, Compared::Other(said.to_owned()));
        assert!(matches!(
            compared(title, None, Some("a/b")),
            Compared::Unsaid(_)
        ));
        assert!(matches!(compared(title, None, None), Compared::Nameless(_)));
        assert!(compared(Some("a/b"), None, title).other().is_some());
        for place in ["/home/a", "./a", "~a", "a/b/c", "C:\\a"] {
            let said = compared(Some(place), None, title);
            assert!(said.unknown().unwrap().contains("a place on the machine"));
            assert_eq!((said.noted(), said.other()), (None, None), "{place}");
        }
        // The hash knows better than any name.
        assert_eq!(compared(Some("a/b"), Some("ab12"), title), Compared::Same);
        let format = compared(title, Some("cd34"), title);
        assert!(format.unknown().unwrap().contains("in another format"));
        let other = compared(title, Some("cd34"), Some("Tiny"));
        let said = other.other().unwrap();
        assert!(
            said.contains("Tiny 1M v2 (sha256:cd34)") && said.contains("Tiny (sha256:ab12)"),
            "{said}"
        );
        assert_eq!(compared(Some("sha256:ab12"), None, None), Compared::Same);
        assert!(compared(Some("sha256:cd34"), None, title).other().is_some());
        assert!(compared(None, None, title).unknown().is_some());
    }
}
