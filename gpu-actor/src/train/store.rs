//! Checkpoints on disk: one folder a step, whole or not at all, verified on reading.
//!
//! `FOLDER/step-00000050/` holds `state.safetensors` (values and moments in flat order) and `manifest.json`
//! (version, what the state belongs to, progress, size and sha256 of the state, and a seal: the sha256 of its own
//! text). Torn or changed folders are skipped with a reason and left where they are; the newest sound one is used. A
//! checkpoint of another format version is neither skipped nor removed, but an error.

mod manifest;
mod state;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use data::regular;
use thiserror::Error;

pub use super::identity::Identity;
use super::job_state::JobState;
use super::proof::Proof;
use crate::durable::{self, DurableError};
use manifest::{MANIFEST, Manifest, Unsound, VERSION};
use state::STATE;

/// Below the folder of a job's results: its checkpoints.
pub const FOLDER: &str = "checkpoints";

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
    #[error("{path} holds a checkpoint of a job that differs in {}: use another output folder, or remove the folder of the job to start again; `spotmux adapter export` \
         makes an adapter of it first, to go on from by init_from", keys.join(", "))]
    Differs {
        /// The checkpoint.
        path: PathBuf,
        /// What differs.
        keys: Vec<String>,
    },
    /// A checkpoint that was asked for is torn or changed.
    #[error("{path} is a damaged checkpoint: {reason}: {remedy}")]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What to take in its place.
        remedy: String,
    },
    /// A checkpoint of another release is in the way.
    #[error(
        "{path} is a checkpoint of format version {found}, this program reads and writes version {VERSION}: go on with \
         the release that wrote it, use another output folder, or remove the folder of the job to start again"
    )]
    Version {
        /// The checkpoint.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

/// A sound checkpoint, whatever it belongs to.
#[derive(Debug)]
pub struct Saved {
    /// Its folder.
    pub path: PathBuf,
    /// What it belongs to.
    pub identity: Identity,
    /// What it holds.
    pub state: JobState,
    /// Newer folders that were not sound, with the reason.
    pub skipped: Vec<String>,
}

/// What was found on disk.
#[derive(Debug)]
pub struct Found {
    /// The state to continue from; absent when no checkpoint is sound.
    pub state: Option<JobState>,
    /// Newer folders that were not sound, with the reason.
    pub skipped: Vec<(PathBuf, String)>,
}

/// Writes a checkpoint and removes all but the newest `keep_last` and the newest proven one ([`super::proof`]): that of the
/// step is not proven yet. A step already saved is left as it is.
///
/// # Errors
/// [`StoreError`] when the disk refuses, or a checkpoint of another version is in the way; older checkpoints are then
/// untouched.
pub fn save(folder: &Path, identity: &Identity, state: &JobState) -> Result<(), StoreError> {
    let target = folder.join(name(state.progress.step));
    match load_one(&target) {
        Ok(_) => return Ok(()),
        Err(Unsound::Version(found)) => {
            return Err(StoreError::Version {
                path: target,
                found,
            });
        }
        Err(Unsound::Damaged(_)) if target.exists() => remove(&target)?,
        Err(Unsound::Damaged(_)) => {}
    }
    let bytes = state::serialize(state);
    let manifest = Manifest::of(identity, state, &bytes).text();
    durable::write_folder(&target, &[(STATE, bytes), (MANIFEST, manifest)])?;
    let keep_last = identity.spec.checkpoint.keep_last;
    prune(folder, state.progress.step, keep_last)
}

/// Removes what stayed for the newest checkpoint not to be the only one, once so many steps were taken and it is proven:
/// of the checkpoints up to there the newest `keep_last` are left, and the newest proven one. One that is damaged takes no
/// place of them: what stays is read before anything goes.
///
/// # Errors
/// [`StoreError`] when the disk refuses.
pub fn prune(folder: &Path, taken: u64, keep_last: usize) -> Result<(), StoreError> {
    let mut own = own(folder)?;
    own.retain(|(step, _)| *step <= taken);
    loop {
        let saved: Vec<u64> = own.iter().map(|(step, _)| *step).collect();
        let surplus = Proof::of_taken(taken).surplus(&saved, keep_last);
        let goes = |step: &u64| surplus.contains(step);
        if surplus.is_empty() {
            return Ok(());
        }
        let mut all = own.iter();
        let damaged = all.position(|(step, path)| !goes(step) && load_one(path).is_err());
        let Some(damaged) = damaged else {
            return own
                .iter()
                .filter(|(step, _)| goes(step))
                .try_for_each(|(_, old)| remove(old));
        };
        own.remove(damaged);
    }
}

/// The newest sound checkpoint that is proven, with its step: what a job that was set aside can go on from.
///
/// # Errors
/// [`StoreError::Read`] when the folder cannot be read.
pub fn newest_proven(folder: &Path, proof: Proof) -> Result<Option<(u64, PathBuf)>, StoreError> {
    let mut newest = own(folder)?.into_iter().rev();
    Ok(newest.find(|(step, path)| proof.holds(*step) && load_one(path).is_ok()))
}

/// The name of a step's folder.
fn name(step: u64) -> String {
    format!("step-{step:08}")
}

/// Checkpoints with a sound manifest, the oldest first. What has none is no checkpoint: it takes no place of one, and is
/// left.
fn own(folder: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let mut own = steps(folder)?;
    own.retain(|(_, path)| Manifest::read(path).is_ok());
    Ok(own)
}

fn remove(folder: &Path) -> Result<(), StoreError> {
    fs::remove_dir_all(folder).map_err(|source| StoreError::Remove {
        path: folder.to_path_buf(),
        source,
    })
}

/// Folders named as checkpoints, with their steps, the oldest first.
fn steps(folder: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
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
        let file_name = entry.file_name();
        let step = file_name
            .to_str()
            .and_then(|n| n.strip_prefix("step-")?.parse::<u64>().ok())
            .filter(|&step| *name(step) == *file_name);
        list.extend(step.map(|step| (step, entry.path())));
    }
    list.sort();
    Ok(list)
}

/// The newest sound checkpoint of this job, and what had to be skipped on the way to it.
///
/// # Errors
/// [`StoreError::Differs`] when the newest sound one belongs to something else; [`StoreError::Version`] when a newer
/// one, or all there is, has another format version.
pub fn newest(folder: &Path, identity: &Identity) -> Result<Found, StoreError> {
    let mut skipped = Vec::new();
    for (_, path) in steps(folder)?.into_iter().rev() {
        match load_one(&path) {
            Err(Unsound::Damaged(reason)) => skipped.push((path, reason)),
            Err(Unsound::Version(found)) => return Err(StoreError::Version { path, found }),
            Ok((manifest, state)) => {
                let keys = manifest.identity.differences(identity);
                if keys.is_empty() {
                    return Ok(Found {
                        state: Some(state),
                        skipped,
                    });
                }
                return Err(StoreError::Differs { path, keys });
            }
        }
    }
    Ok(Found {
        state: None,
        skipped,
    })
}

/// The checkpoint in a folder, or the newest sound one of the job whose results are there; `None` when none is sound. With
/// what is known of a job that was set aside, what is not proven is passed over in its results.
///
/// # Errors
/// [`StoreError::Read`] when the folder of checkpoints cannot be read, [`StoreError::Damaged`] when the folder is a
/// checkpoint that is not sound, and [`StoreError::Version`] when it, or the newest one, has another format version.
pub fn open(folder: &Path, proof: Option<Proof>) -> Result<Option<Saved>, StoreError> {
    let own = folder.join(MANIFEST).symlink_metadata().is_ok();
    let candidates: Vec<(u64, PathBuf)> = match own {
        true => vec![(0, folder.to_path_buf())],
        false => steps(&folder.join(FOLDER))?.into_iter().rev().collect(),
    };
    let mut skipped = Vec::new();
    for (step, path) in candidates {
        if !own && proof.is_some_and(|proof| !proof.holds(step)) {
            let reason = "the step after it was not finite";
            skipped.push(format!("{}: {reason}", path.display()));
            continue;
        }
        match load_one(&path) {
            Err(Unsound::Version(found)) => return Err(StoreError::Version { path, found }),
            Err(Unsound::Damaged(reason)) if own => {
                let remedy = another(&path);
                return Err(StoreError::Damaged {
                    path,
                    reason,
                    remedy,
                });
            }
            Err(Unsound::Damaged(reason)) => skipped.push(format!("{}: {reason}", path.display())),
            Ok((Manifest { identity, .. }, state)) => {
                return Ok(Some(Saved {
                    path,
                    identity,
                    state,
                    skipped,
                }));
            }
        }
    }
    Ok(None)
}

/// What to take in the place of a checkpoint that is damaged: the newest sound one beside it.
fn another(damaged: &Path) -> String {
    let beside = damaged.parent().and_then(|folder| steps(folder).ok());
    let mut newest = beside.into_iter().flatten().rev();
    match newest.find(|(_, path)| load_one(path).is_ok()) {
        Some((_, path)) => format!("take {}", path.display()),
        None => "no sound one is left beside it, train the job again".to_owned(),
    }
}

fn load_one(path: &Path) -> Result<(Manifest, JobState), Unsound> {
    let manifest = Manifest::read(path)?;
    let bytes = regular::read(&path.join(STATE), manifest.bytes).map_err(|error| {
        let limit = format!("{error}; the manifest says {}", manifest.bytes);
        Unsound::of(STATE, &limit)
    })?;
    let state = state::read(&bytes, &manifest)?;
    Ok((manifest, state))
}
