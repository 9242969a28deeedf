//! A set of references: rows, models and cases.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use data::rows::TokenRow;
use serde::Deserialize;

use super::case::{Case, IndexedLoss};
use super::safetensors_file;
use crate::oracle::matrix::Matrix;

/// A folder of references.
#[derive(Clone, Debug)]
pub struct ReferenceSet {
    /// The rows that models and cases use, by index.
    pub rows: Vec<TokenRow>,
    /// Models by name.
    pub models: BTreeMap<String, ModelReference>,
    /// Folders of cases by name.
    pub cases: BTreeMap<String, PathBuf>,
}

/// A model and what it must compute without an adapter.
#[derive(Clone, Debug)]
pub struct ModelReference {
    /// Its folder.
    pub folder: PathBuf,
    /// Logits by row of the set.
    pub logits: BTreeMap<usize, Matrix>,
    /// Losses by row of the set.
    pub losses: Vec<IndexedLoss>,
}

#[derive(Debug, Deserialize)]
struct DataFile {
    sequences: Vec<RowFile>,
}

#[derive(Debug, Deserialize)]
struct RowFile {
    input_ids: Vec<u32>,
    labels: Vec<i32>,
}

#[derive(Debug, Default, Deserialize)]
struct LossFile {
    base_loss: Vec<IndexedLoss>,
}

impl ReferenceSet {
    /// Reads rows and models; cases are read one by one, so that one that cannot be read hides no other.
    ///
    /// # Errors
    /// When there is no `data.json`, no model or no case, or when one of the files is not as it should be.
    pub fn open(root: &Path) -> Result<Self> {
        let path = root.join("data.json");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file: DataFile =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let mut rows = Vec::new();
        for row in file.sequences {
            ensure!(
                row.input_ids.len() == row.labels.len(),
                "one label per token in data.json"
            );
            rows.push(TokenRow::new(row.input_ids, row.labels));
        }
        let mut models = BTreeMap::new();
        for (name, folder) in folders(&root.join("models"))? {
            models.insert(name, ModelReference::read(folder)?);
        }
        let cases = folders(&root.join("cases"))?;
        ensure!(
            !models.is_empty() && !cases.is_empty(),
            "{} holds no model or no case",
            root.display()
        );
        Ok(Self {
            rows,
            models,
            cases,
        })
    }

    /// The cases of a model; those that cannot be read are told in `unread`.
    #[must_use]
    pub fn cases_of(&self, model: &str, unread: &mut Vec<String>) -> Vec<Case> {
        let mut found = Vec::new();
        for (name, folder) in &self.cases {
            match Case::read(folder) {
                Ok(case) if case.model == model => found.push(case),
                Ok(case) if self.models.contains_key(&case.model) => {}
                Ok(case) => unread.push(format!("case {name}: there is no model {}", case.model)),
                Err(error) => unread.push(format!("case {name}: {error:#}")),
            }
        }
        found
    }
}

impl ModelReference {
    fn read(folder: PathBuf) -> Result<Self> {
        let mut logits = BTreeMap::new();
        let path = folder.join("expected_logits.safetensors");
        if path.exists() {
            for (name, tensor) in safetensors_file::read(&path)? {
                let index = name.strip_prefix("logits.").and_then(|i| i.parse().ok());
                let index = index.with_context(|| format!("tensor {name} of expected logits"))?;
                logits.insert(index, tensor.matrix());
            }
        }
        let path = folder.join("expected_loss.json");
        let losses = if path.exists() {
            let text = fs::read_to_string(&path)?;
            let file: LossFile =
                serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            file.base_loss
        } else {
            Vec::new()
        };
        Ok(Self {
            folder,
            logits,
            losses,
        })
    }
}

fn folders(parent: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(parent).with_context(|| parent.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.insert(name, entry.path());
        }
    }
    Ok(found)
}
