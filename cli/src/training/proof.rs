//! Whether the files of an adapter are those that the record beside them says.

use std::path::{Path, PathBuf};

use gpu_actor::train::store;

use super::place::{PROVENANCE, Place};
use super::record;
use crate::exit::{Exit, Failure};
use crate::render;

/// Holds the files of an adapter folder against the record beside them; without one there is nothing to hold them against.
///
/// # Errors
/// [`Exit::BadInput`] with the file that is not as it was written, and what is left to make the adapter of.
pub(crate) fn prove(adapter: &Path) -> Result<(), Failure> {
    let Some(damage) = record::damage_in(adapter) else {
        return Ok(());
    };
    let message = format!("{} is damaged: {damage}", adapter.display());
    let mut failure = Failure::new(Exit::BadInput, message);
    if let Some(checkpoint) = checkpoint_beside(adapter) {
        failure = failure.hint(format!(
            "a sound checkpoint of the job is left, and the adapter is made anew of it by: spotmux adapter export {} \
             --model MODEL --output DIR",
            render::shell_word(&checkpoint.display().to_string())
        ));
    }
    Err(failure.hint(format!(
        "of files that were changed on purpose, remove the {PROVENANCE} beside them"
    )))
}

/// The newest good checkpoint of the job whose adapter it is, where it lies in the folder of one.
fn checkpoint_beside(adapter: &Path) -> Option<PathBuf> {
    let job = Place::at(adapter.parent()?);
    let own = adapter.canonicalize().ok()? == job.adapter().canonicalize().ok()?;
    let good = job.set_aside().map(|(_, proof)| proof);
    let saved = own.then(|| store::open(adapter.parent()?, good).ok()?)??;
    Some(saved.path)
}
