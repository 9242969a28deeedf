//! Adapters on disk, as commands name them: `OUTPUT/NAME` of a job, or the PEFT folder itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_actor::model::Model;
use gpu_actor::peft::files::{self, Imported};
use gpu_actor::stage::adapter::Adapter;
use shared::model::ModelShape;

use crate::exit::{Exit, Failure, OrExit};

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
    /// The adapter, ready to be attached.
    pub(crate) fn adapter(self) -> Adapter {
        Adapter::new(Arc::new(self.found.layout), self.found.values, SEED)
    }
}

/// Opens an adapter for a model.
///
/// # Errors
/// [`Exit::NotFound`] when there is none, [`Exit::BadInput`] when it is wrong or does not fit the model.
pub(crate) fn open(given: &Path, shape: &ModelShape) -> Result<Opened, Failure> {
    let folder = locate(given)?;
    let found = files::read(&folder, shape).or_exit(Exit::BadInput)?;
    Ok(Opened { folder, found })
}

/// Says so when an adapter names another base model than this one; nothing when they are the same, or cannot be
/// compared: a name against a hash, or no name at all.
pub(crate) fn other_base(named: Option<&str>, model: &Model) -> Option<String> {
    let named = named?;
    let own = if named.starts_with("sha256:") {
        format!("sha256:{}", model.content_hash())
    } else {
        model.name.clone().filter(|_| is_hub_id(named))?
    };
    let same = named.eq_ignore_ascii_case(&own);
    (!same).then(|| format!("the adapter was made for {named}, this model is {own}"))
}

/// Whether a name is that of a model hub, owner and model, and not a path of the machine it was made on.
fn is_hub_id(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    parts.len() == 2
        && parts
            .iter()
            .all(|part| !part.is_empty() && !part.starts_with('.'))
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
    } else {
        failure.hint("give OUTPUT/NAME of a trained job, or a folder in the PEFT layout")
    })
}
