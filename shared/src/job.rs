//! What a tenant asks for: the method, the optimizer, the schedule, the data and the limits of one job.
//!
//! The same types are read from `jobs.toml`, kept in checkpoints and sent over the wire. Unknown keys are
//! refused. [`JobSpec::problems`] lists everything wrong with a job at once, before anything runs.

mod adapter;
mod betas;
mod check;
mod file;
mod limits;
mod market;
mod remarks;
mod schedule;
mod words;

pub use adapter::{
    AdapterSpec, BitFitSpec, BottleneckPlacement, BottleneckSpec, DiffSpec, Ia3Spec, LoraSpec,
    NonLinearity, PrefixSpec, PromptSpec, Targets,
};
pub use check::Problem;
pub use file::{BackboneFormat, EngineSpec, JobFile, JobFileError, Products};
pub use limits::{MAX_JOBS, MAX_PATH, MAX_SPEC, MAX_THREADS, MAX_TOKENS_PER_PASS};
pub use market::MarketSpec;
pub use schedule::{ScheduleKind, ScheduleSpec};

use serde::{Deserialize, Serialize};

use crate::ids::JobName;

/// One fine-tuning job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Unique name; also the folder of its results.
    pub name: JobName,
    /// Every random number of the job derives from it.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// What is trained.
    pub adapter: AdapterSpec,
    /// Where the samples come from.
    pub data: DataSpec,
    /// How long and in which portions.
    #[serde(default)]
    pub train: TrainSpec,
    /// How gradients become steps.
    #[serde(default)]
    pub optimizer: OptimizerSpec,
    /// How the learning rate moves.
    #[serde(default)]
    pub schedule: ScheduleSpec,
    /// When the job is measured on held-out rows.
    #[serde(default)]
    pub eval: EvalSpec,
    /// When its state is saved.
    #[serde(default)]
    pub checkpoint: CheckpointSpec,
    /// Most replicas of the backbone that share each optimizer step. Results do not depend on it, nor on how many a
    /// cluster has; a single process has one.
    #[serde(default = "one_replica", skip_serializing_if = "is_one")]
    pub replicas: u32,
    /// Whose job it is, where tenants share a cluster; its weight is the cluster's. Results do not depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Deadline and budget, where a market holds the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub market: Option<MarketSpec>,
    /// Start from this adapter folder (PEFT layout) instead of fresh weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<String>,
}

impl JobSpec {
    /// The same with all that changes no result as if it had not been given: two specifications that are equal then
    /// train to the same bits on the same backbone, rows and first values.
    #[must_use]
    pub fn of_results(&self) -> Self {
        Self {
            checkpoint: CheckpointSpec::default(),
            replicas: one_replica(),
            tenant: None,
            market: None,
            ..self.clone()
        }
    }
}

fn default_seed() -> u64 {
    42
}

fn one_replica() -> u32 {
    1
}

fn is_one(replicas: &u32) -> bool {
    *replicas == 1
}

/// Where samples come from and how they become token rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// JSONL file of training samples, relative to the file of jobs.
    pub train: String,
    /// JSONL file of held-out samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval: Option<String>,
    /// Share of the training rows held out when `eval` is absent; 0 holds out none.
    #[serde(default)]
    pub eval_split: f64,
    /// Longest sample in tokens; absent: the model's context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<usize>,
    /// What happens to a longer sample.
    #[serde(default)]
    pub overlong: Overlong,
    /// Whether prompts and user turns count in the loss too.
    #[serde(default)]
    pub train_on_inputs: bool,
    /// Largest share of rows that may be dropped before the job is refused.
    #[serde(default = "default_max_dropped")]
    pub max_dropped: f64,
}

impl DataSpec {
    /// The share of rows that may be dropped where none is given.
    pub const MAX_DROPPED: f64 = 0.1;
}

fn default_max_dropped() -> f64 {
    DataSpec::MAX_DROPPED
}

/// What happens to a sample longer than the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlong {
    /// Left out, counted.
    #[default]
    Drop,
    /// Cut at the end, counted.
    Truncate,
    /// An error that names the line.
    Error,
}

/// How long a job trains and in which portions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainSpec {
    /// Passes over the data; absent, and without `steps`: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<f64>,
    /// Optimizer steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Samples per micro-batch.
    pub batch_size: usize,
    /// Micro-batches per optimizer step. The loss is weighted by tokens over all of them.
    pub accumulation: usize,
    /// Whether rows are put in another order each epoch, by the seed; else they keep that of the file.
    pub shuffle: bool,
}

impl TrainSpec {
    /// Passes over the data, resolved; of no meaning when `steps` is given.
    #[must_use]
    pub fn epochs(&self) -> f64 {
        self.epochs.unwrap_or(1.0)
    }
}

impl Default for TrainSpec {
    fn default() -> Self {
        Self {
            epochs: None,
            steps: None,
            batch_size: 4,
            accumulation: 1,
            shuffle: true,
        }
    }
}

/// Which rule turns gradients into steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    #[default]
    AdamW,
    /// Gradient descent with momentum.
    Sgd,
}

/// How gradients become steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerSpec {
    /// The rule.
    pub kind: OptimizerKind,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Decay of the first and second moment (AdamW).
    #[serde(deserialize_with = "betas::read")]
    pub betas: [f64; 2],
    /// Added to the root of the second moment (AdamW).
    pub epsilon: f64,
    /// Weight decay: decoupled with AdamW, added to the gradient with SGD, as in torch.
    pub weight_decay: f64,
    /// Momentum (SGD).
    pub momentum: f64,
    /// Largest global gradient norm; absent: no clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_grad_norm: Option<f64>,
}

impl Default for OptimizerSpec {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::AdamW,
            learning_rate: 2e-4,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            max_grad_norm: None,
        }
    }
}

/// When a job is measured on held-out rows, and when that ends it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalSpec {
    /// Every so many steps; absent: at the start and at the end only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<u64>,
    /// Ends the job after so many evaluations without improvement; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Smallest fall of the loss that counts as improvement.
    pub min_delta: f64,
}

/// When a job's state is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSpec {
    /// Every so many optimizer steps; 0 saves only at the end. Absent: 50 in one process, which waits for the disk, and every
    /// step on a cluster, where nothing does and machines go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<u64>,
    /// How many of the newest are kept.
    pub keep_last: usize,
}

impl Default for CheckpointSpec {
    fn default() -> Self {
        Self {
            every_steps: None,
            keep_last: 2,
        }
    }
}
