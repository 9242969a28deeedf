//! Adapter folders on disk, whole or not at all.
//!
//! `adapter_config.json` and `adapter_model.safetensors` as the PEFT library has them; serial bottlenecks in
//! `adapter.safetensors` as the `adapters` library has them ([`adapter_hub`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data::regular;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use shared::job::AdapterSpec;
use shared::model::ModelShape;
use thiserror::Error;

use super::adapter_hub;
use super::config::{self, ConfigError, Found};
use super::layout::Layout;
use super::tensors::{self, NamedTensor, Tensors, TensorsError};
use super::weights_file::{self, Fault};
use crate::durable::{self, DurableError};
use crate::stage::reparam;

/// Name of the configuration file.
pub const CONFIG: &str = "adapter_config.json";
/// Name of the weights file in the PEFT library's layout.
pub const WEIGHTS: &str = "adapter_model.safetensors";
/// Name of the weights file in the `adapters` library's layout.
pub const HUB_WEIGHTS: &str = "adapter.safetensors";
/// Largest configuration read.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// Says why an adapter folder could not be written or read.
#[derive(Debug, Error)]
pub enum AdapterFileError {
    /// Writing failed; nothing is left behind.
    #[error(transparent)]
    Write(#[from] DurableError),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The weights file is not safetensors, or lies about itself.
    #[error("{path} cannot be read as safetensors: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A pickle, which could run any program.
    #[error("{path} is a pickle and is not read: save the adapter again with use_safetensors=True")]
    Pickle {
        /// The file.
        path: PathBuf,
    },
    /// The configuration cannot be used.
    #[error("{path}: {source}")]
    Config {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// The method and the backbone do not fit.
    #[error("{path}: {problems}")]
    Misfit {
        /// The folder.
        path: PathBuf,
        /// Every problem, one a line.
        problems: String,
    },
    /// The tensors are not those of the configuration.
    #[error("{path}: {source}")]
    Tensors {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        source: TensorsError,
    },
}

/// An adapter read from a folder.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Its method.
    pub spec: AdapterSpec,
    /// Its layout on the backbone asked for.
    pub layout: Layout,
    /// Its values in flat storage order.
    pub values: Vec<f32>,
    /// What the file calls its base model.
    pub base: Option<String>,
}

/// The tensors of an exported adapter. A reparameterised prefix is written as the prefix it computes.
#[must_use]
pub fn export_tensors(layout: &Layout, values: &[f32], shape: &ModelShape) -> Tensors {
    match &layout.prefix {
        Some(site) if site.projection.is_some() => {
            let prefix = reparam::prefix(site, values, shape);
            let width = prefix.len() / site.tokens;
            let tensor = NamedTensor {
                shape: vec![site.tokens, width],
                values: prefix,
            };
            BTreeMap::from([("prompt_embeddings".to_owned(), tensor)])
        }
        _ => tensors::to_tensors(layout, values),
    }
}

/// An adapter to be written.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// What to call it, where the layout has names.
    pub name: &'a str,
    /// Its method.
    pub spec: &'a AdapterSpec,
    /// Its layout.
    pub layout: &'a Layout,
    /// Its values in flat storage order.
    pub values: &'a [f32],
    /// Its backbone.
    pub shape: &'a ModelShape,
    /// The base model's hub id or content hash.
    pub base: &'a str,
}

impl Export<'_> {
    /// Configuration and weights: their names and bytes.
    #[must_use]
    pub fn files(&self) -> [(&'static str, Vec<u8>); 2] {
        let (shape, base) = (self.shape, self.base);
        let (config, name, tensors) = match self.spec {
            AdapterSpec::Bottleneck(bottleneck) if adapter_hub::holds(self.spec) => {
                let name = adapter_hub::safe_name(self.name);
                let layout = adapter_hub::renamed(self.layout, &name);
                let tensors = tensors::to_tensors(&layout, self.values);
                let config = adapter_hub::write(bottleneck, shape, base, &name);
                (config, HUB_WEIGHTS, tensors)
            }
            spec => {
                let tensors = export_tensors(self.layout, self.values, shape);
                (config::write(spec, shape, base), WEIGHTS, tensors)
            }
        };
        let text = serde_json::to_vec_pretty(&config).expect("a JSON value has a text");
        [(CONFIG, text), (name, serialize(&tensors))]
    }
}

/// Writes an adapter folder that its library loads; refuses to replace one that is there.
///
/// `extra` files (a model card, provenance) are written with it.
///
/// # Errors
/// [`AdapterFileError::Write`] when the folder exists or the disk refuses; nothing half written stays.
pub fn write(
    folder: &Path,
    export: &Export<'_>,
    extra: &[(&str, Vec<u8>)],
) -> Result<(), AdapterFileError> {
    let mut files: Vec<(&str, Vec<u8>)> = export.files().into();
    files.extend(extra.iter().cloned());
    durable::write_folder(folder, &files)?;
    Ok(())
}

/// The bytes of a safetensors file with these tensors in f32.
#[must_use]
pub fn serialize(tensors: &Tensors) -> Vec<u8> {
    let bytes: Vec<(&String, &[usize], &[u8])> = tensors
        .iter()
        .map(|(name, t)| (name, t.shape.as_slice(), bytemuck::cast_slice(&t.values)))
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes)
            .expect("a tensor has as many values as its shape says");
        (name.as_str(), view)
    });
    #[expect(
        clippy::disallowed_types,
        reason = "the library asks for it; one entry has no order"
    )]
    let metadata = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize(views, Some(metadata)).expect("sound tensors serialize")
}

/// Reads an adapter folder for a backbone of this shape.
///
/// # Errors
/// [`AdapterFileError`] naming the file and what is wrong: a missing tensor is an error, never a random start.
pub fn read(folder: &Path, shape: &ModelShape) -> Result<Imported, AdapterFileError> {
    let path = || folder.to_path_buf();
    let config_path = folder.join(CONFIG);
    let text = read_config(&config_path)?;
    let config = config::read(&text).map_err(|source| AdapterFileError::Config {
        path: path(),
        source,
    })?;
    let Found { spec, base, .. } = config.clone();
    let problems = spec.problems(shape);
    if !problems.is_empty() {
        let problems = problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n");
        return Err(AdapterFileError::Misfit {
            path: path(),
            problems,
        });
    }
    let found = read_tensors(&weights(folder, &config)?)?;
    let wrong = |source| AdapterFileError::Tensors {
        path: path(),
        source,
    };
    tensors::prove_places(&spec, shape, &found).map_err(wrong)?;
    // The places of a sparse delta are drawn by a seed, and then taken from the file.
    let mut layout = Layout::new(&spec, shape, 0);
    let values = match &config.hub_name {
        None => tensors::from_tensors(&mut layout, found),
        Some(name) => {
            let mut renamed = adapter_hub::renamed(&layout, name);
            let found = found
                .into_iter()
                .map(|(key, tensor)| (adapter_hub::with_head(key), tensor));
            tensors::from_tensors(&mut renamed, found.collect())
        }
    };
    let values = values.map_err(wrong)?;
    Ok(Imported {
        spec,
        layout,
        values,
        base,
    })
}

/// The weights file of an adapter folder with this configuration.
///
/// # Errors
/// [`AdapterFileError::Pickle`] when there is but the pickle that the `adapters` library writes by default.
pub fn weights(folder: &Path, config: &Found) -> Result<PathBuf, AdapterFileError> {
    if config.hub_name.is_none() {
        return Ok(folder.join(WEIGHTS));
    }
    let (path, pickle) = (folder.join(HUB_WEIGHTS), folder.join("pytorch_adapter.bin"));
    if !path.exists() && pickle.exists() {
        return Err(AdapterFileError::Pickle { path: pickle });
    }
    Ok(path)
}

/// Reads a configuration file.
///
/// # Errors
/// [`AdapterFileError::Read`] when it is no regular file, too long, or not UTF-8.
pub fn read_config(path: &Path) -> Result<String, AdapterFileError> {
    regular::read_text(path, MAX_CONFIG_BYTES).map_err(|source| AdapterFileError::Read {
        path: path.to_path_buf(),
        source,
    })
}

/// Reads every tensor of a safetensors file as f32.
///
/// # Errors
/// [`AdapterFileError::Read`] or [`AdapterFileError::Format`].
pub fn read_tensors(path: &Path) -> Result<Tensors, AdapterFileError> {
    let path_of = || path.to_path_buf();
    weights_file::read(path).map_err(|fault| match fault {
        Fault::Read(source) => AdapterFileError::Read {
            path: path_of(),
            source,
        },
        Fault::Header(error) => AdapterFileError::Format {
            path: path_of(),
            reason: error.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use shared::model::Family;

    use super::*;
    use crate::model::tiny::TinySpec;

    /// Its configuration alone asks for a million million places.
    #[test]
    fn places_that_no_file_has_are_never_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let mut shape = TinySpec::smallest(Family::Llama).shape();
        shape.intermediate = 1 << 40;
        let text = r#"{"method": "diff", "density": 1.0, "targets": ["down_proj"]}"#;
        let spec: AdapterSpec = serde_json::from_str(text).unwrap();
        let config = config::write(&spec, &shape, "a/b").to_string();
        std::fs::write(folder.path().join(CONFIG), config).unwrap();
        let key = "base_model.model.model.layers.0.mlp.down_proj.diff_columns";
        for (name, said) in [("other", "missing"), (key, "places")] {
            let tensor = NamedTensor {
                shape: vec![2],
                values: vec![0.0, 1.0],
            };
            let tensors = BTreeMap::from([(name.to_owned(), tensor)]);
            std::fs::write(folder.path().join(WEIGHTS), serialize(&tensors)).unwrap();
            let error = read(folder.path(), &shape).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(key), "{error}");
        }
    }
}
