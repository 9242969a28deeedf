//! One case: an adapter, how it is trained, and what must come out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use shared::job::{AdapterSpec, OptimizerKind, OptimizerSpec};

use super::method;
use super::safetensors_file;
use crate::oracle::cross_entropy::SequenceLoss;
use crate::oracle::tensor::Tensors;

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of its folder.
    pub name: String,
    /// Name of its model.
    pub model: String,
    /// Folder with the adapter before training.
    pub init_folder: PathBuf,
    /// The method.
    pub spec: AdapterSpec,
    /// The adapter before training.
    pub init: Tensors,
    /// How gradients become steps.
    pub optimizer: OptimizerSpec,
    /// Learning rate of each step.
    pub rates: Vec<f64>,
    /// Rows of each step, by index into the set's rows.
    pub batches: Vec<Vec<usize>>,
    /// What must come out.
    pub expected: Expected,
}

/// What must come out of a case.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Loss before each update.
    pub losses: Vec<f64>,
    /// Norm of each step's gradient before clipping; empty when the set has none.
    pub norms: Vec<f64>,
    /// Losses of the first step's rows; empty when the set has none.
    pub first_sequences: Vec<IndexedLoss>,
    /// Losses of rows after the last update; empty when the set has none.
    pub final_sequences: Vec<IndexedLoss>,
    /// Gradient of the first step.
    pub first_gradient: Tensors,
    /// The adapter after training.
    pub final_parameters: Tensors,
}

/// Loss of one row.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct IndexedLoss {
    /// Index into the set's rows.
    pub index: usize,
    /// Sum of the negative log-likelihoods.
    pub sum: f64,
    /// Number of tokens that count.
    pub tokens: u64,
}

impl IndexedLoss {
    /// Without the index.
    #[must_use]
    pub fn loss(&self) -> SequenceLoss {
        SequenceLoss {
            sum: self.sum,
            tokens: self.tokens,
        }
    }
}

#[derive(Debug, Deserialize)]
struct CaseFile {
    model: String,
    #[serde(default)]
    method: BTreeMap<String, Value>,
    optimizer: OptimizerFile,
    lr_per_step: Vec<f64>,
    max_grad_norm: Option<f64>,
    batches: Vec<Vec<usize>>,
    loss_f64: Vec<f64>,
    #[serde(default)]
    grad_norm_f64_before_clip: Vec<f64>,
    #[serde(default)]
    step0_sequences: Vec<IndexedLoss>,
    #[serde(default)]
    final_eval: Vec<IndexedLoss>,
}

#[derive(Debug, Deserialize)]
struct OptimizerFile {
    name: String,
    lr: f64,
    #[serde(default = "betas")]
    betas: [f64; 2],
    #[serde(default = "epsilon")]
    eps: f64,
    #[serde(default)]
    weight_decay: f64,
    #[serde(default)]
    momentum: f64,
    /// Everything else: what is not null, false or zero would change the numbers.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

fn betas() -> [f64; 2] {
    OptimizerSpec::default().betas
}

fn epsilon() -> f64 {
    OptimizerSpec::default().epsilon
}

/// Where sets write the ratio of the two learning rates of LoRA+.
const RATIO_KEYS: [&str; 2] = ["lr_ratio", "loraplus_lr_ratio"];

impl Case {
    /// Reads a case from its folder.
    ///
    /// # Errors
    /// When a file is missing or holds something that is not known, naming it.
    pub fn read(folder: &Path) -> Result<Self> {
        let name = folder.file_name().unwrap_or_default();
        let file: CaseFile =
            serde_json::from_str(&text(&folder.join("case.json"))?).context("case.json")?;
        if file.batches.len() != file.lr_per_step.len() || file.batches.len() != file.loss_f64.len()
        {
            bail!(
                "{} batches, {} learning rates, {} losses: one of each a step",
                file.batches.len(),
                file.lr_per_step.len(),
                file.loss_f64.len()
            );
        }
        let ratio = RATIO_KEYS.into_iter().find_map(|key| {
            let value = file
                .method
                .get(key)
                .or_else(|| file.optimizer.rest.get(key));
            value.and_then(Value::as_f64)
        });
        let init_folder = folder.join("init");
        let config = text(&init_folder.join("adapter_config.json"))?;
        let weights = |part: &str| {
            safetensors_file::read(&folder.join(part).join("adapter_model.safetensors"))
        };
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            spec: method::read(&config, ratio.unwrap_or(1.0))?,
            init: weights("init")?,
            init_folder,
            optimizer: file.optimizer.spec(file.max_grad_norm)?,
            rates: file.lr_per_step,
            batches: file.batches,
            model: file.model,
            expected: Expected {
                losses: file.loss_f64,
                norms: file.grad_norm_f64_before_clip,
                first_sequences: file.step0_sequences,
                final_sequences: file.final_eval,
                first_gradient: safetensors_file::read(&folder.join("grads_step0.safetensors"))?,
                final_parameters: weights("final")?,
            },
        })
    }
}

impl OptimizerFile {
    fn spec(&self, max_grad_norm: Option<f64>) -> Result<OptimizerSpec> {
        for (key, value) in &self.rest {
            let plain = matches!(value, Value::Null | Value::Bool(false))
                || value.as_f64() == Some(0.0)
                || RATIO_KEYS.contains(&key.as_str());
            if !plain {
                bail!("optimizer.{key} = {value} is not known here");
            }
        }
        let kind = match self.name.to_lowercase().as_str() {
            "adamw" => OptimizerKind::AdamW,
            "sgd" => OptimizerKind::Sgd,
            _ => bail!("optimizer {} is not known here", self.name),
        };
        Ok(OptimizerSpec {
            kind,
            learning_rate: self.lr,
            betas: self.betas,
            epsilon: self.eps,
            weight_decay: self.weight_decay,
            momentum: self.momentum,
            max_grad_norm,
        })
    }
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
