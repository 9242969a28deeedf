//! The backbone of a plan: its sizes, how its weights are kept, and its language where there is one. No weight is read.

use std::path::Path;

use anyhow::Context;
use coordinator::plan::profile::Weights;
use data::regular;
use gpu_actor::model::{Model, OpenOptions, TokenizerSource};
use shared::model::{ModelShape, config};

use crate::backbone;
use crate::exit::{Exit, Failure, OrExit};
use crate::language::Language;
use crate::measuring::gather;
use crate::planning::shapes;
use crate::settings::Settings;
use crate::store::Store;

/// Largest `config.json` read.
const LIMIT: u64 = 1 << 20;

/// What planning needs to know of a backbone.
#[derive(Debug)]
pub(crate) struct Planned {
    /// Its sizes.
    pub(crate) shape: ModelShape,
    /// How blocks are kept.
    pub(crate) blocks: Weights,
    /// How embedding and head are kept.
    pub(crate) tables: Weights,
    /// How it writes and reads, where its files are here.
    pub(crate) language: Option<Language>,
    /// What it is called.
    pub(crate) name: String,
}

/// Looks at a model that a command or a file names, with blocks kept otherwise where asked for.
///
/// # Errors
/// [`Exit::NotFound`] when there is none, [`Exit::BadInput`] when something in it is wrong.
pub(crate) fn look(
    name: &str,
    base: &Path,
    weights: Option<Weights>,
    settings: &Settings,
) -> Result<Planned, Failure> {
    let mut planned = match Store::new(settings)?.resolve(name, base) {
        Ok(path) => match sizes_alone(&path) {
            Some(file) => of_sizes(&file, name)?,
            None => of_files(&path, name)?,
        },
        Err(failure) if failure.exit == Exit::NotFound => match shapes::named(name) {
            Some(shape) => of_shape(shape?, name.to_owned()),
            None => return Err(failure.hint(shapes::hint(name))),
        },
        Err(failure) => return Err(failure),
    };
    if let Some(weights) = weights {
        planned.blocks = weights;
        // Formats of few bits are for blocks: tables stay as they are, or in 16 bits.
        if !matches!(weights, Weights::Q4 | Weights::Q8) {
            planned.tables = weights;
        }
    }
    Ok(planned)
}

/// The `config.json` of a model whose weights are not here.
fn sizes_alone(path: &Path) -> Option<std::path::PathBuf> {
    if path.extension().is_some_and(|end| end == "json") {
        return Some(path.to_owned());
    }
    let file = path.join("config.json");
    let mut inside = path.read_dir().ok()?.filter_map(Result::ok);
    let is_weights = |name: &str| name.ends_with(".safetensors") || name.ends_with(".gguf");
    let weights = inside.any(|entry| entry.file_name().to_str().is_some_and(is_weights));
    (!weights && file.is_file()).then_some(file)
}

fn of_sizes(file: &Path, name: &str) -> Result<Planned, Failure> {
    let text = regular::read_text(file, LIMIT)
        .with_context(|| format!("cannot read {}", file.display()))
        .or_exit(Exit::BadInput)?;
    let shape = config::parse(&text)
        .with_context(|| file.display().to_string())
        .or_exit(Exit::BadInput)?;
    let name = config::hub_name(&text).unwrap_or_else(|| name.to_owned());
    Ok(of_shape(shape, name))
}

/// A backbone of which only sizes are known.
pub(crate) fn of_shape(shape: ModelShape, name: String) -> Planned {
    Planned {
        name,
        shape,
        blocks: Weights::Bf16,
        tables: Weights::Bf16,
        language: None,
    }
}

fn of_files(path: &Path, name: &str) -> Result<Planned, Failure> {
    let options = OpenOptions {
        check_finite: false,
        ..OpenOptions::new(backbone::cpu(Some(1))?)
    };
    let model = Model::open(path, &options).or_exit(Exit::BadInput)?;
    let (blocks, tables) = gather::kept(&model);
    let language = match &model.tokenizer {
        TokenizerSource::Missing => None,
        source => Some(Language::of(source, None)?),
    };
    Ok(Planned {
        name: name.to_owned(),
        shape: model.shape.clone(),
        blocks,
        tables,
        language,
    })
}
