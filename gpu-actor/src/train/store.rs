//! Checkpoints on disk: one folder a step, whole or not at all, verified on reading.
//!
//! `FOLDER/step-00000050/` holds `state.safetensors` (values and moments in flat order) and `manifest.json`
//! (version, what the state belongs to, progress, size and sha256 of the state). Torn or changed folders are
//! skipped with a reason; the newest sound one is used.

use std::fs;
use std::path::{Path, PathBuf};

use data::regular;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shared::job::JobSpec;
use thiserror::Error;

use super::progress::Progress;
use super::session::JobState;
use crate::durable::{self, DurableError};
use crate::stage::optim::OptimizerState;

const VERSION: u32 = 1;
const STATE: &str = "state.safetensors";
const MANIFEST: &str = "manifest.json";
/// Largest manifest read.
const MAX_MANIFEST_BYTES: u64 = 16 << 20;

/// What a checkpoint belongs to: a resume with another specification, backbone or data is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The job.
    pub spec: JobSpec,
    /// Content hash of the backbone.
    pub backbone: String,
    /// Content hash of the token rows.
    pub data: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    identity: Identity,
    progress: Progress,
    optimizer_steps: u64,
    bytes: u64,
    sha256: String,
}

/// Says why a checkpoint could not be written or used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] DurableError),
    /// The folder of checkpoints cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A folder that is no longer wanted cannot be removed.
    #[error("cannot remove {path}: {source}")]
    Remove {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A sound checkpoint of something else is in the way.
    #[error("{path} holds a checkpoint of a job that differs in {}: use another output folder, or remove it to start again", keys.join(", "))]
    Differs {
        /// The checkpoint.
        path: PathBuf,
        /// What differs.
        keys: Vec<String>,
    },
}

/// A checkpoint found on disk.
#[derive(Debug)]
pub struct Found {
    /// The state to continue from.
    pub state: JobState,
    /// Newer folders that were not sound, with the reason.
    pub skipped: Vec<(PathBuf, String)>,
}

/// Writes a checkpoint and removes all but the newest `keep_last`; a step already saved is left as it is.
///
/// # Errors
/// [`StoreError`] when the disk refuses; older checkpoints are then untouched.
pub fn save(folder: &Path, identity: &Identity, state: &JobState) -> Result<(), StoreError> {
    let target = folder.join(format!("step-{:08}", state.progress.step));
    if target.join(MANIFEST).exists() && load_one(&target).is_ok() {
        return Ok(());
    }
    if target.exists() {
        remove(&target)?;
    }
    let bytes = serialize(state);
    let manifest = Manifest {
        version: VERSION,
        identity: identity.clone(),
        progress: state.progress.clone(),
        optimizer_steps: state.optimizer.step,
        bytes: bytes.len() as u64,
        sha256: hex(&Sha256::digest(&bytes)),
    };
    let manifest = serde_json::to_vec_pretty(&manifest).expect("a manifest has a text");
    durable::write_folder(&target, &[(STATE, bytes), (MANIFEST, manifest)])?;
    prune(folder, identity.spec.checkpoint.keep_last)
}

fn prune(folder: &Path, keep_last: usize) -> Result<(), StoreError> {
    let steps = steps(folder)?;
    for old in steps.iter().rev().skip(keep_last.max(1)) {
        remove(old)?;
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<(), StoreError> {
    fs::remove_dir_all(folder).map_err(|source| StoreError::Remove {
        path: folder.to_path_buf(),
        source,
    })
}

/// Folders of checkpoints, oldest first.
fn steps(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let error = |source| StoreError::Read {
        path: folder.to_path_buf(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(error(source)),
    };
    let mut list = Vec::new();
    for entry in entries {
        let entry = entry.map_err(error)?;
        let name = entry.file_name();
        let step = name
            .to_str()
            .and_then(|n| n.strip_prefix("step-")?.parse::<u64>().ok());
        list.extend(step.map(|step| (step, entry.path())));
    }
    list.sort();
    Ok(list.into_iter().map(|(_, path)| path).collect())
}

/// The newest sound checkpoint of this job; `None` when there is none.
///
/// # Errors
/// [`StoreError::Differs`] when the newest sound one belongs to something else.
pub fn newest(folder: &Path, identity: &Identity) -> Result<Option<Found>, StoreError> {
    let mut skipped = Vec::new();
    for path in steps(folder)?.into_iter().rev() {
        match load_one(&path) {
            Err(reason) => skipped.push((path, reason)),
            Ok((manifest, state)) => {
                let keys = differences(&manifest.identity, identity);
                if keys.is_empty() {
                    return Ok(Some(Found { state, skipped }));
                }
                return Err(StoreError::Differs { path, keys });
            }
        }
    }
    Ok(None)
}

/// Dotted names of what differs. How long to train, and how often to measure and save, may change on resume.
fn differences(old: &Identity, new: &Identity) -> Vec<String> {
    let mut keys = Vec::new();
    if old.backbone != new.backbone {
        keys.push("the backbone".to_owned());
    }
    if old.data != new.data {
        keys.push("the data".to_owned());
    }
    let mut old_spec = old.spec.clone();
    old_spec.checkpoint = new.spec.checkpoint.clone();
    let value = |spec| serde_json::to_value(spec).expect("a spec has a JSON form");
    compare("", &value(&old_spec), &value(&new.spec), &mut keys);
    keys
}

fn compare(at: &str, old: &serde_json::Value, new: &serde_json::Value, keys: &mut Vec<String>) {
    match (old.as_object(), new.as_object()) {
        (Some(old), Some(new)) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let null = &serde_json::Value::Null;
                let (a, b) = (old.get(name).unwrap_or(null), new.get(name).unwrap_or(null));
                let at = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                compare(&at, a, b, keys);
            }
        }
        _ if old != new => keys.push(at.to_owned()),
        _ => {}
    }
}

fn load_one(path: &Path) -> Result<(Manifest, JobState), String> {
    let text = regular::read_text(&path.join(MANIFEST), MAX_MANIFEST_BYTES)
        .map_err(|error| format!("{MANIFEST}: {error}"))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| format!("{MANIFEST}: {error}"))?;
    if manifest.version != VERSION {
        return Err(format!("version {} is not {VERSION}", manifest.version));
    }
    let bytes = regular::read(&path.join(STATE), manifest.bytes)
        .map_err(|error| format!("{STATE}: {error}; the manifest says {}", manifest.bytes))?;
    if bytes.len() as u64 != manifest.bytes {
        return Err(format!(
            "{STATE} has {} bytes, the manifest says {}",
            bytes.len(),
            manifest.bytes
        ));
    }
    if hex(&Sha256::digest(&bytes)) != manifest.sha256 {
        return Err(format!("{STATE} does not have the manifest's sha256"));
    }
    let file = SafeTensors::deserialize(&bytes).map_err(|error| format!("{STATE}: {error}"))?;
    let tensor = |name: &str| -> Result<Vec<f32>, String> {
        let view = file
            .tensor(name)
            .map_err(|error| format!("{STATE}: {error}"))?;
        let quads = view.data().chunks_exact(4);
        Ok(quads
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    };
    let optimizer = OptimizerState {
        first: tensor("first_moment")?,
        second: tensor("second_moment")?,
        step: manifest.optimizer_steps,
    };
    let state = JobState {
        values: tensor("values")?,
        optimizer,
        progress: manifest.progress.clone(),
    };
    Ok((manifest, state))
}

fn serialize(state: &JobState) -> Vec<u8> {
    let parts = [
        ("values", &state.values),
        ("first_moment", &state.optimizer.first),
        ("second_moment", &state.optimizer.second),
    ];
    let views = parts.map(|(name, values)| {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let view = TensorView::new(Dtype::F32, vec![values.len()], bytes);
        (
            name,
            view.expect("a vector has as many values as its length"),
        )
    });
    safetensors::serialize(views, None).expect("sound tensors serialize")
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
