//! Which files of a path make a model.
//!
//! Accepted: a folder with `config.json` and `model.safetensors` (or `model.safetensors.index.json`, used only
//! when the single file is absent, as the transformers library does), a `.gguf` file, or a folder with exactly
//! one `.gguf` file and no safetensors.
//!
//! Links: a file of a model folder must lie inside the folder once links are followed, with one exception, the
//! model hub's cache, where `models--ORG--NAME/snapshots/REVISION/FILE` links to `models--ORG--NAME/blobs/HASH`.
//! The path that the user gave may itself be a link: that was the user's choice, what a downloaded folder
//! contains was not.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use shared::excerpt::excerpt;
use thiserror::Error;

/// Tells why no model was found at a path.
#[derive(Debug, Error)]
pub enum LocateError {
    /// The path, or a file of the model, cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The path is a file, but of no kind that holds a model.
    #[error(
        "{} is not a model: give a folder with config.json and safetensors, or a .gguf file{hint}",
        path.display()
    )]
    NotAModel {
        /// The path.
        path: PathBuf,
        /// What to do with a file of this kind, or nothing.
        hint: &'static str,
    },
    /// A folder without weights in a known format.
    #[error(
        "{} has no model.safetensors, no model.safetensors.index.json and no .gguf file{hint}; it has: {found}",
        path.display()
    )]
    NoWeights {
        /// The folder.
        path: PathBuf,
        /// What the weights that are there would need.
        hint: &'static str,
        /// The first names in it.
        found: String,
    },
    /// A folder with safetensors but without `config.json`.
    #[error("{} has weights but no config.json: the sizes of the model are not guessed", path.display())]
    NoConfig {
        /// The folder.
        path: PathBuf,
    },
    /// Several GGUF files and nothing that chooses one.
    #[error("{} has several .gguf files, give the path of one: {found}", path.display())]
    SeveralGguf {
        /// The folder.
        path: PathBuf,
        /// Their names.
        found: String,
    },
    /// A link that leaves the folder.
    #[error(
        "{} links to {}, outside the model's folder: copy the file into it",
        path.display(),
        target.display()
    )]
    Escape {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A text file larger than any real one.
    #[error("{} has {bytes} bytes, at most {limit} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A text file that is not UTF-8.
    #[error("{} is not UTF-8: invalid byte at offset {offset}", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first invalid byte.
        offset: usize,
    },
}

/// The files found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    /// Folder with `config.json` and this file of weights.
    Single { folder: PathBuf, weights: PathBuf },
    /// Folder with `config.json` and this index of shards.
    Sharded { folder: PathBuf, index: PathBuf },
    /// One GGUF file.
    Gguf { file: PathBuf },
}

/// Most bytes read of a file of text (index of shards, configuration).
pub(crate) const TEXT_LIMIT: u64 = 64 << 20;

/// Finds the files that make a model.
///
/// # Errors
/// [`LocateError`] when there is none, more than one, or a link leads out of the folder.
pub(crate) fn locate(path: &Path) -> Result<Located, LocateError> {
    let real = canonical(path)?;
    if real.is_file() {
        return located_file(path, real);
    }
    let names = names(&real)?;
    let has = |name: &str| names.iter().any(|found| found == name);
    let single = has("model.safetensors");
    if single || has("model.safetensors.index.json") {
        if !has("config.json") {
            return Err(LocateError::NoConfig { path: real });
        }
        return if single {
            let weights = inside(&real, "model.safetensors")?;
            Ok(Located::Single {
                folder: real,
                weights,
            })
        } else {
            let index = inside(&real, "model.safetensors.index.json")?;
            Ok(Located::Sharded {
                folder: real,
                index,
            })
        };
    }
    let gguf: Vec<_> = names.iter().filter(|name| is_gguf(name)).collect();
    match gguf.as_slice() {
        [] => Err(no_weights(real, &names)),
        [name] => Ok(Located::Gguf {
            file: inside(&real, name)?,
        }),
        several => Err(LocateError::SeveralGguf {
            found: first_few(several.iter().map(|name| name.as_str())),
            path: real,
        }),
    }
}

/// The real path of a file of a model folder, if the folder has it.
///
/// # Errors
/// [`LocateError::Escape`] when a link leads out of the folder.
pub(crate) fn optional(folder: &Path, name: &str) -> Result<Option<PathBuf>, LocateError> {
    match folder.join(name).symlink_metadata() {
        Ok(_) => inside(folder, name).map(Some),
        Err(_) => Ok(None),
    }
}

/// The real path of a file of a model folder (itself a real path).
///
/// # Errors
/// When the file is absent or a link leads out of the folder, other than into the hub cache's own blobs.
pub(crate) fn inside(folder: &Path, name: &str) -> Result<PathBuf, LocateError> {
    let path = folder.join(name);
    let target = canonical(&path)?;
    if target.starts_with(folder) || blobs(folder).is_some_and(|blobs| target.starts_with(blobs)) {
        return Ok(target);
    }
    Err(LocateError::Escape { path, target })
}

/// Reads a file of text, never more than [`TEXT_LIMIT`].
///
/// # Errors
/// When it cannot be read, is larger, or is not UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String, LocateError> {
    let failed = |source| LocateError::Io {
        path: path.to_owned(),
        source,
    };
    let data = path.metadata().map_err(failed)?;
    if !data.is_file() {
        return Err(failed(io::Error::other("is not a regular file")));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(TEXT_LIMIT + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > TEXT_LIMIT {
        return Err(LocateError::TooLarge {
            path: path.to_owned(),
            bytes: data.len(),
            limit: TEXT_LIMIT,
        });
    }
    String::from_utf8(bytes).map_err(|error| LocateError::NotUtf8 {
        path: path.to_owned(),
        offset: error.utf8_error().valid_up_to(),
    })
}

/// The first names of a list, and how many more there are.
pub(crate) fn first_few<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 5;
    let all: Vec<_> = names.collect();
    // They are names of a file from elsewhere.
    let shown: Vec<String> = all.iter().take(SHOWN).map(|name| excerpt(name)).collect();
    let mut text = shown.join(", ");
    if all.len() > SHOWN {
        text.push_str(&format!(" and {} more", all.len() - SHOWN));
    }
    if text.is_empty() {
        text.push_str("nothing");
    }
    text
}

/// The hub's name of a model that lies in the hub's cache: `models--ORG--NAME/snapshots/REVISION`.
pub(crate) fn cached_hub_name(path: &Path) -> Option<String> {
    let folder = snapshot_root(path)?.file_name()?.to_str()?;
    let (organisation, name) = folder.strip_prefix("models--")?.split_once("--")?;
    Some(format!("{organisation}/{name}"))
}

fn snapshot_root(folder: &Path) -> Option<&Path> {
    let snapshots = folder.parent()?;
    (snapshots.file_name()? == "snapshots").then(|| snapshots.parent())?
}

fn blobs(folder: &Path) -> Option<PathBuf> {
    fs::canonicalize(snapshot_root(folder)?.join("blobs")).ok()
}

fn located_file(given: &Path, real: PathBuf) -> Result<Located, LocateError> {
    // A hub cache names the blob by its hash: the name that tells the kind is the one given.
    if [given, &real]
        .iter()
        .any(|path| has_extension(path, "gguf"))
    {
        return Ok(Located::Gguf { file: real });
    }
    let hint = match real.extension().and_then(OsStr::to_str) {
        Some("safetensors") => " (give the folder of this safetensors file)",
        Some("bin" | "pt" | "pth" | "pkl" | "ckpt") => {
            " (pickled weights can run code: convert them to safetensors)"
        }
        _ => "",
    };
    Err(LocateError::NotAModel { path: real, hint })
}

fn no_weights(path: PathBuf, names: &[String]) -> LocateError {
    let pickled = names
        .iter()
        .any(|name| has_extension(Path::new(name), "bin") || has_extension(Path::new(name), "pth"));
    LocateError::NoWeights {
        hint: if pickled {
            " (pickled weights can run code: convert them to safetensors)"
        } else {
            ""
        },
        found: first_few(names.iter().map(String::as_str)),
        path,
    }
}

fn canonical(path: &Path) -> Result<PathBuf, LocateError> {
    fs::canonicalize(path).map_err(|source| LocateError::Io {
        path: path.to_owned(),
        source,
    })
}

/// Names in a folder, sorted; what is no UTF-8 belongs to no model.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, LocateError> {
    let failed = |source| LocateError::Io {
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn is_gguf(name: &str) -> bool {
    has_extension(Path::new(name), "gguf")
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension()
        .and_then(OsStr::to_str)
        .is_some_and(|found| found.eq_ignore_ascii_case(extension))
}
