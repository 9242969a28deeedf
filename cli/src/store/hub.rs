//! Models of the model hub: which files are needed, and fetching them into the hub's own cache.
//!
//! The hub's cache is shared with other programs (`HF_HOME`, else `~/.cache/huggingface`); our entry only records
//! where the files lie and what they were. File names come from the server: only plain ones are asked for.

use std::fs;
use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Repo, RepoType};

use super::entry::{Entry, FileRecord};
use super::hash;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::render::{self, Output};
use crate::settings::{self, Settings};

/// Files that are fetched when the model has them.
const SMALL: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
];
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// The branch that is fetched where no revision is named.
pub(super) const MAIN: &str = "main";
/// Most shards fetched.
const MAX_SHARDS: usize = 1000;

/// Whether a text is `owner/name`.
pub(super) fn is_name(text: &str) -> bool {
    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty()
            && part.chars().all(plain)
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    text.split_once('/')
        .is_some_and(|(owner, name)| part(owner) && part(name))
}

/// Fetches a model and records it.
pub(super) fn fetch(
    name: &str,
    revision: Option<&str>,
    settings: &Settings,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Entry, Failure> {
    let asked = revision.unwrap_or(MAIN);
    let failed = |error: ApiError| failure(name, asked, &error);
    let mut builder = ApiBuilder::from_env().with_progress(false).with_retries(2);
    if let Some(token) = &settings.hub_token {
        builder = builder.with_token(Some(token.clone()));
    }
    let api = builder.build().map_err(failed)?;
    let at =
        |revision: &str| Repo::with_revision(name.to_owned(), RepoType::Model, revision.to_owned());
    let info = api.repo(at(asked)).info().map_err(failed)?;
    if !is_hash(&info.sha) {
        return Err(Failure::new(
            Exit::NotFound,
            format!("the hub names {:?} as the commit of {name}", info.sha),
        ));
    }
    // From here on one commit, so that all files belong together.
    let repo = api.repo(at(&info.sha));
    let names: Vec<&str> = info
        .siblings
        .iter()
        .map(|file| file.rfilename.as_str())
        .collect();
    let wanted = choose(name, &names)?;
    let mut files = Vec::new();
    let mut snapshot = PathBuf::new();
    for file in wanted {
        interrupt.check()?;
        let path = one_file(&api, &repo, name, file, output).map_err(|error| match error {
            FileError::Api(error) => failed(error),
            FileError::Failure(failure) => failure,
        })?;
        let (bytes, sha256) = hash::file(&path)?;
        check_blob(&path, &sha256)?;
        snapshot = path.parent().map(Path::to_path_buf).unwrap_or_default();
        files.push(FileRecord {
            name: file.to_owned(),
            bytes,
            sha256,
        });
    }
    let source = format!("model hub {name} at {}", info.sha);
    Ok(Entry::elsewhere(name, source, asked, snapshot, files))
}

enum FileError {
    Api(ApiError),
    Failure(Failure),
}

impl From<ApiError> for FileError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

fn one_file(
    api: &Api,
    repo: &ApiRepo,
    model: &str,
    file: &str,
    output: &Output,
) -> Result<PathBuf, FileError> {
    let found = api.metadata(&repo.url(file))?;
    // Both become names in the cache.
    if !is_hash(found.etag()) || !is_hash(found.commit_hash()) {
        let message = format!(
            "the hub gives no usable hash for {file} of {model}: {:?}",
            found.etag()
        );
        return Err(FileError::Failure(Failure::new(Exit::NotFound, message)));
    }
    let bar = Bar(Progress::bytes(output, file, found.size() as u64));
    Ok(repo.download_with_progress(file, bar)?)
}

/// Whether a text is a hash in hexadecimal.
fn is_hash(text: &str) -> bool {
    (32..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Large files are kept under their SHA-256: it must be theirs.
fn check_blob(path: &Path, sha256: &str) -> Result<(), Failure> {
    let blob = fs::canonicalize(path)?;
    let promised = blob
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if promised.len() == 64 && promised != sha256 {
        // A damaged blob would be found there again by the next attempt.
        let _ = fs::remove_file(&blob);
        let message = format!(
            "{} arrived with SHA-256 {sha256}, the hub promised {promised}",
            path.display()
        );
        return Err(
            Failure::new(Exit::NotFound, message).hint("try again: the damaged file was removed")
        );
    }
    Ok(())
}

/// The files a model needs, of those there are.
fn choose<'a>(model: &str, names: &[&'a str]) -> Result<Vec<&'a str>, Failure> {
    let find = |wanted: &str| names.iter().copied().find(|name| *name == wanted);
    let mut chosen: Vec<&str> = SMALL.iter().filter_map(|name| find(name)).collect();
    if let Some(single) = find(SINGLE) {
        chosen.push(single);
    } else if let Some(index) = find(INDEX) {
        let is_shard = |name: &&&str| {
            let number = name
                .strip_prefix("model-")
                .and_then(|rest| rest.strip_suffix(".safetensors"));
            number.is_some_and(|number| {
                number
                    .bytes()
                    .all(|c| c.is_ascii_alphanumeric() || c == b'-')
            })
        };
        let shards: Vec<&str> = names.iter().filter(is_shard).copied().collect();
        if shards.is_empty() || shards.len() > MAX_SHARDS {
            let message = format!(
                "{model} has an index and {} shards: 1 to {MAX_SHARDS} are fetched",
                shards.len()
            );
            return Err(Failure::new(Exit::NotFound, message));
        }
        chosen.push(index);
        chosen.extend(shards);
    } else {
        let gguf: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| name.ends_with(".gguf") && !name.contains('/'))
            .collect();
        match gguf.as_slice() {
            [only] => return Ok(vec![*only]),
            [] => {
                let message = format!("{model} has no {SINGLE}, no {INDEX} and no .gguf file");
                return Err(Failure::new(Exit::NotFound, message)
                    .hint("pickled weights (.bin) are not read: look for a converted copy"));
            }
            several => {
                let message = format!(
                    "{model} has {} .gguf files and no safetensors: which one is not guessed",
                    several.len()
                );
                return Err(Failure::new(Exit::NotFound, message).hint(format!(
                    "fetch one of {} by hand and give its path",
                    several.join(", ")
                )));
            }
        }
    }
    if find("config.json").is_none() {
        let message =
            format!("{model} has weights but no config.json: the sizes of a model are not guessed");
        return Err(Failure::new(Exit::NotFound, message));
    }
    Ok(chosen)
}

fn failure(name: &str, revision: &str, error: &ApiError) -> Failure {
    let text = error.to_string();
    let says = |status: &str| text.contains(&format!("status: {status}"));
    let message = format!("cannot fetch {name} at {revision} from the model hub: {text}");
    let failure = Failure::new(Exit::NotFound, message);
    if says("401") || says("403") {
        return failure.hint(format!(
            "the name is wrong, or the model is private or gated: accept its terms on its page and set {}",
            settings::HUB_TOKEN
        ));
    }
    if says("404") {
        return failure.hint("check the spelling of owner/name and of the revision");
    }
    failure.hint(format!(
        "without a network, put config.json, the tokenizer files and the safetensors into a folder and give its path, as in: spotmux train jobs.toml --model {}",
        render::shell_word(name.rsplit('/').next().unwrap_or(name))
    ))
}

/// Shows a download by our progress.
struct Bar(Progress);

impl hf_hub::api::Progress for Bar {
    fn init(&mut self, size: usize, _name: &str) {
        self.0.set_total(size as u64);
        self.0.set(0);
    }

    fn update(&mut self, size: usize) {
        self.0.add(size as u64);
    }

    fn finish(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn only_plain_files_are_asked_for() {
        let names = [
            "config.json",
            "tokenizer.json",
            "pytorch_model.bin",
            INDEX,
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model-../../x.safetensors",
            "original/model.safetensors",
        ];
        let chosen = choose("a/b", &names).unwrap();
        assert_eq!(chosen.len(), 5, "{chosen:?}");
        assert!(
            chosen
                .iter()
                .all(|name| !name.contains("..") && !name.contains('/'))
        );
    }

    #[test]
    fn what_cannot_be_opened_is_not_fetched() {
        assert!(choose("a/b", &["config.json", "pytorch_model.bin"]).is_err());
        assert!(choose("a/b", &["model.safetensors"]).is_err());
        assert!(
            choose("a/b", &["x.gguf", "y.gguf"]).unwrap_err().hints[0].contains("x.gguf, y.gguf")
        );
        assert_eq!(choose("a/b", &["README.md", "x.gguf"]).unwrap(), ["x.gguf"]);
    }

    #[test]
    fn names_of_the_hub() {
        assert!(is_name("Qwen/Qwen3-0.6B"));
        for bad in ["Qwen", "a/b/c", "../b", "a/..", "/b", "a/", "a b/c"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
