//! Opening the frozen model a command works on.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use gpu_actor::model::{Model, OpenOptions, arithmetic};
use kernels::cpu::Cpu;
use shared::job::{BackboneFormat, Products};
use shared::model::ModelShape;

use crate::exit::{Exit, Failure, OrExit};
use crate::language::Language;
use crate::machine::{self, Available};
use crate::render;
use crate::settings::Settings;
use crate::store::Store;

/// The compute threads: as many as asked for, but never more than cores that the system grants, which is the default.
/// The number changes no result, so a file from a larger machine trains on a smaller one.
///
/// # Errors
/// [`Exit::Usage`] when 0 were asked for, [`Exit::Internal`] when the system refuses them.
pub(crate) fn cpu(threads: Option<usize>) -> Result<Cpu, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let asked = threads.unwrap_or(cores);
    if asked > cores {
        tracing::warn!(
            asked,
            cores,
            "more threads than cores would only wait for each other: using one a core"
        );
    }
    let exit = if asked == 0 {
        Exit::Usage
    } else {
        Exit::Internal
    };
    Cpu::new(asked.min(cores)).or_exit(exit)
}

/// The same, set to an arithmetic of frozen products.
///
/// # Errors
/// As [`cpu`].
pub(crate) fn cpu_with(threads: Option<usize>, products: Products) -> Result<Cpu, Failure> {
    let cpu = arithmetic::set(cpu(threads)?, products);
    if products == Products::Split && cpu.isa().name() != "amx" {
        tracing::warn!(
            instructions = cpu.isa().name(),
            "this processor has no AMX: products = \"split\" is right here but many times slower than \"f32\""
        );
    }
    Ok(cpu)
}

/// A model with its language.
#[derive(Debug)]
pub(crate) struct Backbone {
    /// The frozen weights.
    pub(crate) model: Arc<Model>,
    /// Tokenizer and chat template.
    pub(crate) language: Language,
}

impl Backbone {
    /// Opens the model that a command or file names; paths are relative to `base`.
    ///
    /// # Errors
    /// [`Exit::NotFound`] when there is none, [`Exit::BadInput`] when something in it is wrong.
    pub(crate) fn open(
        store: &Store,
        name: &str,
        base: &Path,
        format: BackboneFormat,
        cpu: &Cpu,
    ) -> Result<Self, Failure> {
        let model = model(store, name, base, format, cpu)?;
        let language = Language::of(&model.tokenizer, None)?;
        Ok(Self {
            model: Arc::new(model),
            language,
        })
    }

    /// Bytes of its matrices as held.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let matrices = self.model.matrices();
        matrices.map(|weight| weight.byte_len() as u64).sum()
    }
}

/// Opens the weights alone.
///
/// # Errors
/// [`Exit::NotFound`] when there is no such model, [`Exit::BadInput`] when something in it is wrong.
pub(crate) fn model(
    store: &Store,
    name: &str,
    base: &Path,
    format: BackboneFormat,
    cpu: &Cpu,
) -> Result<Model, Failure> {
    let path = store.resolve(name, base)?;
    if format != BackboneFormat::AsShipped {
        // A look at the sizes costs nothing: the file is only mapped.
        let look = OpenOptions {
            check_finite: false,
            ..OpenOptions::new(cpu.clone())
        };
        check_weights(
            &Model::open(&path, &look).or_exit(Exit::BadInput)?.shape,
            format,
        )?;
    }
    let options = OpenOptions {
        format,
        ..OpenOptions::new(cpu.clone())
    };
    Model::open(&path, &options).or_exit(Exit::BadInput)
}

/// Opens the weights that a command names, as they were shipped, only to look at them.
///
/// # Errors
/// As [`model`], and when the cache of models cannot be found.
pub(crate) fn as_shipped(settings: &Settings, name: &str) -> Result<Model, Failure> {
    let (store, cpu) = (Store::new(settings)?, cpu(None)?);
    model(
        &store,
        name,
        Path::new("."),
        BackboneFormat::AsShipped,
        &cpu,
    )
}

/// Refuses a model whose weights alone would not fit, before they are converted.
fn check_weights(shape: &ModelShape, format: BackboneFormat) -> Result<(), Failure> {
    let bytes = match format {
        // Mapped from the file: the system takes pages in and out.
        BackboneFormat::AsShipped => return Ok(()),
        BackboneFormat::F32 => shape.parameters() * 4,
        BackboneFormat::Bf16 => shape.parameters() * 2,
    };
    match machine::available() {
        Some(available) if bytes > available.bytes => Err(weights_too_large(bytes, &available)),
        _ => Ok(()),
    }
}

fn weights_too_large(bytes: u64, available: &Available) -> Failure {
    let message = format!(
        "the backbone needs {} in this format, {} are available ({})",
        render::bytes(bytes),
        render::bytes(available.bytes),
        available.bound
    );
    Failure::new(Exit::WouldNotFit, message)
        .hint("set engine.backbone = \"as-shipped\": weights are then used as they lie in the file")
}
