//! The manifest of a checkpoint: what its state is, sealed against any change.

use std::fmt::Display;
use std::path::Path;

use data::regular;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shared::hexadecimal;

use super::{Identity, name};
use crate::train::job_state::JobState;
use crate::train::progress::Progress;
use crate::train::seal;

/// The format written and read. 2 sealed the manifest; 3 says what the job started from, and its backbone's hash covers
/// the numbers of the formulas.
pub(super) const VERSION: u64 = 3;
pub(super) const MANIFEST: &str = "manifest.json";
/// Largest manifest read.
const MAX_BYTES: u64 = 16 << 20;

/// Why a folder is no checkpoint to continue from.
#[derive(Debug)]
pub(super) enum Unsound {
    /// Another format version, which only another release can judge.
    Version(u64),
    /// Torn or changed.
    Damaged(String),
}

impl Unsound {
    /// Damage of a file.
    pub(super) fn of(file: &str, reason: &dyn Display) -> Self {
        Self::Damaged(format!("{file}: {reason}"))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    version: u64,
    pub(super) identity: Identity,
    pub(super) progress: Progress,
    pub(super) optimizer_steps: u64,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The sha256 of the manifest's text with zeros in this place.
    seal: String,
}

/// What every version has, whatever else it holds.
#[derive(Deserialize)]
struct Versioned {
    version: u64,
}

impl Manifest {
    /// The manifest of a state that was written as these bytes.
    pub(super) fn of(identity: &Identity, state: &JobState, bytes: &[u8]) -> Self {
        Self {
            version: VERSION,
            identity: identity.clone(),
            progress: state.progress.clone(),
            optimizer_steps: state.optimizer.step,
            bytes: bytes.len() as u64,
            sha256: hexadecimal::lower(&Sha256::digest(bytes)),
            seal: seal::open(),
        }
    }

    /// The sealed text.
    pub(super) fn text(&self) -> Vec<u8> {
        let text = serde_json::to_string_pretty(self).expect("a manifest has a text");
        seal::close(&text).into_bytes()
    }

    /// Reads the manifest of a folder, whose name must be that of its step.
    pub(super) fn read(folder: &Path) -> Result<Self, Unsound> {
        let damaged = |error: &dyn Display| Unsound::of(MANIFEST, error);
        let text = regular::read_text(&folder.join(MANIFEST), MAX_BYTES)
            .map_err(|error| damaged(&error))?;
        let Versioned { version } = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
        if version != VERSION {
            return Err(Unsound::Version(version));
        }
        let manifest: Self = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
        if !seal::holds(&text, &manifest.seal) {
            return Err(damaged(
                &"it does not have its seal's sha256: it was changed",
            ));
        }
        let step = manifest.progress.step;
        if folder.file_name().and_then(|own| own.to_str()) != Some(name(step).as_str()) {
            return Err(damaged(&format!(
                "it is of step {step}, the folder's name is not"
            )));
        }
        Ok(manifest)
    }
}
