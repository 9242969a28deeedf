//! A state that a job starts from and no step made, as of an adapter that was imported: stored like any other, so that each
//! stage reads its own part, however large the whole is, and a later start needs nothing but the store.

use shared::ids::JobName;

use super::keeper::seal;
use super::manifest::StateManifest;
use super::part::Part;
use super::{ArtifactError, Artifacts};
use crate::train::identity::Identity;
use crate::train::job_state::JobState;

/// Stores the state of a job on so many layers, written under this leadership and plan; it is durable then.
///
/// # Errors
/// [`ArtifactError`] when the store cannot.
pub fn store(
    store: &dyn Artifacts,
    (job, identity): (&JobName, &Identity),
    state: JobState,
    layers: usize,
    written: (u64, u64),
) -> Result<StateManifest, ArtifactError> {
    let part = Part {
        layers: 0..layers,
        values: state.values,
        optimizer: state.optimizer,
    };
    let (reference, bytes) = part.write(job);
    store.put(&reference.key, &bytes)?;
    let (job, identity) = (job.clone(), identity.clone());
    let manifest = StateManifest::new(job, identity, written, state.progress, vec![reference]);
    seal(store, &manifest)?;
    Ok(manifest)
}
