//! Opening the frozen model a command works on.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use gpu_actor::model::{Model, OpenOptions};
use kernels::cpu::Cpu;
use shared::job::BackboneFormat;

use crate::exit::{Exit, Failure, OrExit};
use crate::language::Language;
use crate::store::Store;
use crate::training::memory;

/// The compute threads: as many as asked for, else one per core that the system grants.
///
/// # Errors
/// [`Exit::Usage`] when 0 were asked for, [`Exit::Internal`] when the system refuses them.
pub(crate) fn cpu(threads: Option<usize>) -> Result<Cpu, Failure> {
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let exit = if threads == Some(0) {
        Exit::Usage
    } else {
        Exit::Internal
    };
    Cpu::new(threads.unwrap_or_else(cores)).or_exit(exit)
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
        memory::check_weights(
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
