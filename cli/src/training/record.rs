//! The record beside an adapter, `spotmux.json`: which job wrote it, and what its files must be.

use std::path::Path;

use data::regular;
use gpu_actor::train::progress::Progress;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shared::hexadecimal;

use super::place::PROVENANCE;

/// Largest record read.
const LARGEST: u64 = 1 << 20;
/// Largest file of an adapter that is proven.
const LARGEST_FILE: u64 = 16 << 30;

/// Where an adapter came from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) spotmux: String,
    pub(crate) job: String,
    /// SHA-256 over all that the job's results depend on.
    pub(crate) job_sha256: String,
    pub(crate) base: String,
    pub(crate) base_sha256: String,
    pub(crate) data_sha256: String,
    pub(crate) seed: u64,
    pub(crate) step: u64,
    pub(crate) tokens: u64,
    pub(crate) first_loss: Option<f64>,
    pub(crate) last_loss: Option<f64>,
    pub(crate) first_eval: Option<f64>,
    pub(crate) last_eval: Option<f64>,
    /// The files beside it that make the adapter.
    pub(crate) files: Vec<FileRecord>,
}

/// A file and what it must be.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl FileRecord {
    /// The record of these bytes.
    pub(super) fn of(name: &str, bytes: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            sha256: hexadecimal::lower(&Sha256::digest(bytes)),
        }
    }
}

impl Record {
    /// The record of an adapter folder; none when there is no readable one of this version.
    pub(super) fn read(adapter: &Path) -> Option<Self> {
        let text = regular::read_text(&adapter.join(PROVENANCE), LARGEST).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// What is wrong with the files, if anything is.
    pub(super) fn damage(&self, adapter: &Path) -> Option<String> {
        if self.files.is_empty() {
            return Some("its record lists no files".into());
        }
        self.files.iter().find_map(|file| {
            let name = &file.name;
            if Path::new(name).components().count() != 1 || name == ".." {
                return Some(format!("its record names {name:?}"));
            }
            match regular::read(&adapter.join(name), LARGEST_FILE) {
                Err(error) => Some(format!("{name}: {error}")),
                Ok(bytes) if FileRecord::of(name, &bytes) != *file => {
                    Some(format!("{name} is not as it was written"))
                }
                Ok(_) => None,
            }
        })
    }

    /// How far the job was.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            step: self.step,
            tokens: self.tokens,
            first_loss: self.first_loss,
            last_loss: self.last_loss,
            first_eval: self.first_eval,
            last_eval: self.last_eval,
            ..Progress::default()
        }
    }
}
