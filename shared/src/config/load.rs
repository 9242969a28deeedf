//! Layers of settings: defaults < file < environment < flags, and where each value came from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use config::{Config, ConfigError, FileFormat};
use thiserror::Error;

use super::check::{self, ModelFacts, Origins};
use super::layer::{self, Layer, Said};
use super::schema::ClusterConfig;
use super::{Origin, Problem, env};

/// Largest file read.
const LIMIT: u64 = 1 << 20;

/// Says why there is no configuration.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Something is wrong, all of it listed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Problem>),
    /// The layers do not make a whole.
    #[error("{path}: the settings do not make a whole: {source}")]
    Whole {
        /// The file.
        path: String,
        /// What is missing.
        source: ConfigError,
    },
}

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub config: ClusterConfig,
    /// Where each key was said; what is not here is a default.
    pub origins: Origins,
    /// The file.
    pub path: PathBuf,
    /// The folder that its paths are relative to.
    pub folder: PathBuf,
}

impl Loaded {
    /// A path of the file, from where the process stands.
    #[must_use]
    pub fn path_of(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// Where a key was said.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// What cannot be, given the backbone.
    #[must_use]
    pub fn problems_with(&self, model: ModelFacts) -> Vec<Problem> {
        check::problems(&self.config, &self.origins, Some(model))
    }
}

/// Loads a file, then what variables and flags (`section.key=value`) say over it. Variables that do not start with
/// [`env::PREFIX`] are none of ours.
///
/// # Errors
/// [`LoadError`]; everything wrong is told at once.
pub fn load(
    path: &Path,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &[String],
) -> Result<Loaded, LoadError> {
    let shown = path.display().to_string();
    let text = read(path).map_err(|source| LoadError::Read {
        path: shown.clone(),
        source,
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let file = layer::of_file(&shown, text);
    let nodes = nodes_in(&file);
    let mut over = Layer::default();
    for (name, word) in variables {
        if let Some(key) = env::key_of(&name) {
            let origin = Origin::Environment { name };
            add(&mut over, layer::of_word(&key, &word, origin));
        }
    }
    for flag in flags {
        let said = match flag.split_once('=') {
            Some((key, word)) => layer::of_word(key.trim(), word.trim(), Origin::Flag),
            None => Err(Problem {
                origin: Origin::Flag,
                key: flag.clone(),
                message: "has no value: write section.key=value".into(),
            }),
        };
        add(&mut over, said.and_then(|said| of_a_node(said, nodes)));
    }
    let mut problems = file.problems;
    problems.extend(over.problems);
    if !problems.is_empty() {
        return Err(LoadError::Wrong(problems));
    }
    let config = whole(text, &over.said).map_err(|source| LoadError::Whole {
        path: shown,
        source,
    })?;
    let said = file.said.into_iter().chain(over.said);
    let origins: Origins = said.map(|said| (said.key, said.origin)).collect();
    let problems = check::problems(&config, &origins, None);
    if !problems.is_empty() {
        return Err(LoadError::Wrong(problems));
    }
    Ok(Loaded {
        config,
        origins,
        folder: path.parent().map(Path::to_path_buf).unwrap_or_default(),
        path: path.to_path_buf(),
    })
}

fn add(layer: &mut Layer, said: Result<Said, Problem>) {
    match said {
        Ok(said) => layer.said.push(said),
        Err(problem) => layer.problems.push(problem),
    }
}

/// The nodes that a file lists.
fn nodes_in(file: &Layer) -> usize {
    let names = file
        .said
        .iter()
        .filter(|said| said.key.starts_with("node["));
    names.filter(|said| said.key.ends_with("].name")).count()
}

/// A flag changes a node that is there; it adds none.
fn of_a_node(said: Said, nodes: usize) -> Result<Said, Problem> {
    let index = said
        .key
        .strip_prefix("node[")
        .and_then(|rest| rest.split_once(']'));
    match index {
        Some((index, _)) if index.parse::<usize>().map_or(true, |index| index >= nodes) => {
            Err(Problem {
                origin: said.origin,
                key: said.key,
                message: format!(
                    "the file lists {nodes} nodes, counted from 0: add [[node]] there"
                ),
            })
        }
        _ => Ok(said),
    }
}

fn whole(text: &str, over: &[Said]) -> Result<ClusterConfig, ConfigError> {
    let mut builder = Config::builder()
        .add_source(Config::try_from(&ClusterConfig::default())?)
        .add_source(config::File::from_str(text, FileFormat::Toml));
    for said in over {
        builder = builder.set_override(&said.key, value_of(&said.value))?;
    }
    builder.build()?.try_deserialize()
}

fn value_of(value: &toml::Value) -> config::Value {
    match value {
        toml::Value::Integer(count) => (*count).into(),
        toml::Value::Boolean(flag) => (*flag).into(),
        toml::Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let wrong = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
    if !path.metadata()?.is_file() {
        return Err(wrong("is not a regular file".into()));
    }
    let mut text = String::new();
    File::open(path)?
        .take(LIMIT + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > LIMIT {
        return Err(wrong(format!("has more than {LIMIT} bytes, the limit")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
