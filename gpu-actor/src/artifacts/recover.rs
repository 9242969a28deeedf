//! The newest sound state of a job in a store.

use shared::ids::JobName;
use thiserror::Error;

use super::manifest::{self, ManifestError, StateManifest};
use super::part::{self, Part, PartError};
use super::{ArtifactError, Artifacts};
use crate::peft::layout::Layout;
use crate::train::identity::Identity;
use crate::train::job_state::JobState;
use crate::train::proof::Proof;

/// Says why a job's states cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RecoverError {
    /// The store cannot be read.
    #[error("the store cannot be read: {0}")]
    Store(#[from] ArtifactError),
    /// The newest sound state is of something else.
    #[error("{key} is a state of a job that differs in {}: submit it under another name", keys.join(", "))]
    Differs {
        /// The manifest.
        key: String,
        /// What differs.
        keys: Vec<String>,
    },
    /// A state of another release is in the way.
    #[error(
        "{key} is of format version {found}, this program reads and writes version {}: go on with the release that wrote it",
        manifest::VERSION
    )]
    Version {
        /// The manifest.
        key: String,
        /// Its version.
        found: u64,
    },
}

/// A state to go on from.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// Its manifest.
    pub manifest: StateManifest,
    /// The state, whole.
    pub state: JobState,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The newest sound state, if there is one.
    pub recovered: Option<Recovered>,
    /// Newer ones that are torn or changed: key and reason.
    pub skipped: Vec<(String, String)>,
}

/// Why one state is not used.
enum Unsound {
    Skip(String),
    Stop(RecoverError),
}

/// Finds the newest sound state of a job; older ones are used when newer are torn, changed or lack a part.
///
/// # Errors
/// [`RecoverError`] when the store cannot be read, or the newest sound state belongs to something else or is of another
/// release.
pub fn newest(
    store: &dyn Artifacts,
    job: &JobName,
    identity: &Identity,
    layout: &Layout,
) -> Result<Found, RecoverError> {
    loop {
        let steps = || -> Result<Vec<u64>, ArtifactError> {
            let keys = store.list(&part::job_folder(job))?;
            Ok(manifest::steps(job, &keys))
        };
        let before = steps()?;
        let found = among(store, job, &before, identity, layout)?;
        // Whoever still stores states of this job removes old ones as new ones come: what is missing may be one of those.
        if found.skipped.is_empty() || steps()?.first() <= before.first() {
            return Ok(found);
        }
    }
}

/// The newest sound state of a job that is proven: what one that was set aside can go on from.
///
/// # Errors
/// As [`newest`].
pub fn newest_proven(
    store: &dyn Artifacts,
    job: &JobName,
    proof: Proof,
    identity: &Identity,
    layout: &Layout,
) -> Result<Found, RecoverError> {
    let keys = store.list(&part::job_folder(job))?;
    let mut steps = manifest::steps(job, &keys);
    steps.retain(|step| proof.holds(*step));
    among(store, job, &steps, identity, layout)
}

/// The manifests of a job that can be read, the newest first, whatever they belong to; whether their parts are sound is
/// found by who reads those.
///
/// # Errors
/// [`RecoverError`] when the store cannot be read, or a manifest is of another release.
pub fn manifests(store: &dyn Artifacts, job: &JobName) -> Result<Vec<StateManifest>, RecoverError> {
    let keys = store.list(&part::job_folder(job))?;
    let mut found = Vec::new();
    for step in manifest::steps(job, &keys) {
        let key = manifest::key(job, step);
        let text = match store.get(&key) {
            Ok(text) => text,
            // Whoever stores newer ones removes old ones.
            Err(ArtifactError::Missing { .. }) => continue,
            Err(failed @ ArtifactError::Failed { .. }) => return Err(failed.into()),
        };
        match StateManifest::read(&text) {
            Ok(manifest) if manifest.job == *job => found.push(manifest),
            Ok(_) | Err(ManifestError::Damaged(_)) => {}
            Err(ManifestError::Version(version)) => {
                return Err(RecoverError::Version {
                    key,
                    found: version,
                });
            }
        }
    }
    Ok(found)
}

fn among(
    store: &dyn Artifacts,
    job: &JobName,
    steps: &[u64],
    identity: &Identity,
    layout: &Layout,
) -> Result<Found, RecoverError> {
    let mut skipped = Vec::new();
    for &step in steps {
        let key = manifest::key(job, step);
        match one(store, job, step, identity, layout) {
            Ok(recovered) => {
                return Ok(Found {
                    recovered: Some(recovered),
                    skipped,
                });
            }
            Err(Unsound::Skip(reason)) => skipped.push((key, reason)),
            Err(Unsound::Stop(error)) => return Err(error),
        }
    }
    Ok(Found {
        recovered: None,
        skipped,
    })
}

fn one(
    store: &dyn Artifacts,
    job: &JobName,
    step: u64,
    identity: &Identity,
    layout: &Layout,
) -> Result<Recovered, Unsound> {
    let key = manifest::key(job, step);
    let text = get(store, &key)?;
    let manifest = StateManifest::read(&text).map_err(|error| match error {
        ManifestError::Version(found) => {
            let key = key.clone();
            Unsound::Stop(RecoverError::Version { key, found })
        }
        ManifestError::Damaged(reason) => Unsound::Skip(reason),
    })?;
    if manifest.progress.step != step || manifest.job != *job {
        let (job, step) = (&manifest.job, manifest.progress.step);
        let reason = format!("it is of job {job} and step {step}, its place is not");
        return Err(Unsound::Skip(reason));
    }
    let keys = manifest.identity.differences(identity);
    if !keys.is_empty() {
        return Err(Unsound::Stop(RecoverError::Differs { key, keys }));
    }
    if !part::covers(&manifest.parts, layout.layers.len()) {
        return Err(Unsound::Skip("its parts do not cover all layers".into()));
    }
    let mut parts = Vec::with_capacity(manifest.parts.len());
    for reference in &manifest.parts {
        let bytes = get(store, &reference.key)?;
        let read = Part::read(reference, &bytes, manifest.optimizer_steps, layout);
        parts.push(read.map_err(|error| Unsound::Skip(error.to_string()))?);
    }
    let whole = part::join(layout, &parts);
    let whole = whole.map_err(|error: PartError| Unsound::Skip(error.to_string()))?;
    let state = JobState {
        values: whole.values,
        optimizer: whole.optimizer,
        progress: manifest.progress.clone(),
    };
    Ok(Recovered { manifest, state })
}

fn get(store: &dyn Artifacts, key: &str) -> Result<Vec<u8>, Unsound> {
    store.get(key).map_err(|error| match error {
        ArtifactError::Missing { .. } => Unsound::Skip(error.to_string()),
        failed @ ArtifactError::Failed { .. } => Unsound::Stop(RecoverError::Store(failed)),
    })
}

/// Reads what a stage of these layers needs of a state.
///
/// # Errors
/// A sentence, when a part cannot be read or is not what the manifest says.
pub fn slice(
    store: &dyn Artifacts,
    manifest: &StateManifest,
    layout: &Layout,
    span: std::ops::Range<usize>,
) -> Result<Part, String> {
    let needed = |part: &&part::PartRef| {
        let layers = part.layers();
        layers.start < span.end && span.start < layers.end
    };
    let mut parts = Vec::new();
    for reference in manifest.parts.iter().filter(needed) {
        let bytes = store
            .get(&reference.key)
            .map_err(|error| error.to_string())?;
        let read = Part::read(reference, &bytes, manifest.optimizer_steps, layout);
        parts.push(read.map_err(|error| error.to_string())?);
    }
    part::cut(layout, span.clone(), &parts).map_err(|error| error.to_string())
}
