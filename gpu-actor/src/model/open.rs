//! Opening a model: locate, prove, fit, assemble.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use shared::model::{ModelShape, config};

use super::assemble::Assembly;
use super::locate::{self, Located, inside, optional, read_text};
use super::mapping::Mapping;
use super::shards::Index;
use super::tensors::{self, StoredTensor, TensorError, Tensors};
use super::{Ends, Model, ModelError, OpenOptions, TokenizerSource, gguf, header, names};

/// What the files of a model say, before weights are made.
struct Found {
    shape: ModelShape,
    tensors: Tensors,
    tokenizer: TokenizerSource,
    name: Option<String>,
    /// Folder or file, for messages.
    path: PathBuf,
}

/// Opens the model at a path.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Model, ModelError> {
    let found = match locate::locate(path)? {
        Located::Single { folder, weights } => {
            let tensors = one_file(&weights)?;
            hugging_face(path, folder, tensors)?
        }
        Located::Sharded { folder, index } => {
            let tensors = sharded(&folder, &index)?;
            hugging_face(path, folder, tensors)?
        }
        Located::Gguf { file } => gguf(file)?,
    };
    let path = found.path.clone();
    assemble(found, options).map_err(|source| ModelError::Tensors { path, source })
}

fn assemble(mut found: Found, options: &OpenOptions) -> Result<Model, TensorError> {
    tensors::fit(&mut found.tensors, &found.shape)?;
    let layers = options.layers.clone().unwrap_or(0..found.shape.layers);
    if layers.start > layers.end || layers.end > found.shape.layers {
        return Err(TensorError::Layers {
            first: layers.start,
            end: layers.end,
            layers: found.shape.layers,
        });
    }
    let assembly = Assembly {
        shape: &found.shape,
        tensors: &found.tensors,
        format: options.format,
        check_finite: options.check_finite,
        cpu: &options.cpu,
    };
    let ends = Ends::of(&layers, &found.shape);
    let held = |held: bool, name| held.then(|| assembly.matrix(name)).transpose();
    let mut files: Vec<Weak<Mapping>> = Vec::new();
    for tensor in found.tensors.values() {
        let file = Arc::downgrade(&tensor.file);
        if !files.iter().any(|known| known.ptr_eq(&file)) {
            files.push(file);
        }
    }
    Ok(Model {
        files,
        embedding: held(ends.embedding, names::EMBEDDING)?,
        head: held(ends.head, names::HEAD)?,
        final_norm: assembly.vector(names::FINAL_NORM)?,
        first_layer: layers.start,
        layers: assembly.layers(layers)?,
        tokenizer: found.tokenizer,
        name: found.name,
        shape: found.shape,
    })
}

fn hugging_face(given: &Path, folder: PathBuf, tensors: Tensors) -> Result<Found, ModelError> {
    let path = inside(&folder, "config.json")?;
    let text = read_text(&path)?;
    let wrong = |path: &Path| {
        let path = path.to_owned();
        |source| ModelError::Config { path, source }
    };
    let mut shape = config::parse(&text).map_err(wrong(&path))?;
    if let Some(path) = optional(&folder, "generation_config.json")? {
        config::add_generation(&mut shape, &read_text(&path)?).map_err(wrong(&path))?;
    }
    // The cache's own folder name is better evidence than what a training run once wrote.
    let name = locate::cached_hub_name(&folder)
        .or_else(|| locate::cached_hub_name(given))
        .or_else(|| config::hub_name(&text));
    Ok(Found {
        shape,
        tensors,
        tokenizer: TokenizerSource::of_folder(&folder)?,
        name,
        path: folder,
    })
}

fn gguf(path: PathBuf) -> Result<Found, ModelError> {
    let file = map(&path)?;
    match gguf::read(&file) {
        Ok(model) => Ok(Found {
            shape: model.shape,
            tensors: model.tensors,
            tokenizer: match model.tokenizer {
                Some(parts) => TokenizerSource::Gguf {
                    file: path.clone(),
                    parts: Box::new(parts),
                },
                None => TokenizerSource::Missing,
            },
            name: model.name.filter(|name| is_portable(name)),
            path,
        }),
        Err(source) => Err(ModelError::Gguf { path, source }),
    }
}

/// Whether a name from a file says nothing about the machine that wrote it.
fn is_portable(name: &str) -> bool {
    let path_like = name.contains(['/', '\\', '~']) && !config::is_hub_name(name);
    !name.trim().is_empty() && name.len() <= 200 && !path_like && !name.contains(char::is_control)
}

fn map(path: &Path) -> Result<Arc<Mapping>, ModelError> {
    Mapping::open(path)
        .map(Arc::new)
        .map_err(|source| ModelError::Map {
            path: path.to_owned(),
            source,
        })
}

fn one_file(path: &Path) -> Result<Tensors, ModelError> {
    let file = map(path)?;
    let found = header::read(file.as_ref().as_ref()).map_err(|source| ModelError::Header {
        path: path.to_owned(),
        source,
    })?;
    Ok(found
        .into_iter()
        .map(|tensor| {
            let stored = StoredTensor {
                format: tensor.format,
                shape: tensor.shape,
                file: Arc::clone(&file),
                range: tensor.range,
                interleaved_heads: None,
            };
            (tensor.name, stored)
        })
        .collect())
}

fn sharded(folder: &Path, path: &Path) -> Result<Tensors, ModelError> {
    let wrong = |source| ModelError::Index {
        path: path.to_owned(),
        source,
    };
    let index = Index::parse(&read_text(path)?).map_err(wrong)?;
    index.check_present(folder).map_err(wrong)?;
    let mut shards = Vec::new();
    for shard in index.shards() {
        shards.push((shard, one_file(&inside(folder, shard)?)?));
    }
    let found = shards.iter().flat_map(|(shard, tensors)| {
        tensors
            .iter()
            .map(|(name, tensor)| (*shard, name.as_str(), tensor.range.len() as u64))
    });
    index.check_tensors(found).map_err(wrong)?;
    // Each tensor is in the one shard that the index names, so none overwrites another here.
    Ok(shards
        .into_iter()
        .flat_map(|(_, tensors)| tensors)
        .collect())
}
