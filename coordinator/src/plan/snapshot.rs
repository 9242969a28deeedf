//! The problem: machines, the backbone, jobs and what the operator wants, as ordered maps of integers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, NodeName};
use shared::job::{JobSpec, OptimizerKind};
use shared::model::ModelShape;
use shared::units::{Bytes, MicroUsd, Micros};

use super::adapter::Adapter;
use super::profile::{Link, Profile, Weights};

/// Rows of a canonical block: sequences are cut at multiples of it only.
pub const BLOCK: u64 = 64;

/// Most samples of an optimizer step.
const MOST_SAMPLES: usize = 1 << 20;

/// Everything that a plan depends on. The same snapshot has the same plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The backbone.
    pub model: ModelShape,
    /// How the weights of blocks are kept.
    pub blocks: Weights,
    /// How embedding and head are kept.
    pub tables: Weights,
    /// By the device's name.
    pub profiles: BTreeMap<String, Profile>,
    /// Where stages may lie.
    pub nodes: BTreeMap<NodeName, Machine>,
    /// Between nodes of one site.
    pub inside: Link,
    /// Between sites.
    pub between: Link,
    /// Jobs that have not ended.
    pub tasks: BTreeMap<JobId, Task>,
    /// Those that are not here weigh 1 and were served nothing.
    pub tenants: BTreeMap<String, Tenant>,
    /// What the operator wants.
    pub options: Options,
    /// Now.
    pub now: Micros,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of its profile.
    pub device: String,
    /// Memory it offers.
    pub memory: Bytes,
    /// Nodes of one site are near each other.
    pub site: String,
    /// Price of an hour; 0 where it is not known.
    pub price: MicroUsd,
    /// Reclaims and failures expected in a thousand hours.
    pub losses_per_kilohour: u64,
}

/// A tenant's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its weight against others, at least 1.
    pub weight: u64,
    /// Tokens that its jobs have trained so far.
    pub served: u64,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            weight: 1,
            served: 0,
        }
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Who pays.
    pub tenant: String,
    /// What is trained.
    pub adapter: Adapter,
    /// Bytes of each trained value: value, gradient and moments in 32 bits (AdamW 16, SGD 12).
    pub bytes_per_value: u64,
    /// Lengths of the sequences of one optimizer step, in the job's order; of a typical one.
    pub lengths: Vec<u32>,
    /// Rows of the longest of all its sequences, without virtual ones: memory goes by it, times by a typical step.
    #[serde(default)]
    pub longest_row: u32,
    /// Permille of the tokens that count in the loss.
    pub counted_permille: u64,
    /// Optimizer steps to go.
    pub steps: u64,
    /// Submitted at.
    pub arrived: Micros,
    /// Waits since: its arrival, or when it was last paused.
    pub queued: Micros,
    /// Has trained since; absent while it waits.
    pub started: Option<Micros>,
    /// The most that company may add to a step, in permille of the step alone.
    pub max_added_latency: Option<u64>,
    /// To be done by.
    pub deadline: Option<Micros>,
}

impl Task {
    /// Of a job as it is submitted.
    ///
    /// `rows` are the lengths of all its training rows; a typical step has as many as the job says, evenly spread over
    /// them by length. `counted_permille`: of the tokens, those that count in the loss.
    #[must_use]
    pub fn of(
        spec: &JobSpec,
        tenant: &str,
        rows: &[u32],
        counted_permille: u64,
        steps: u64,
        now: Micros,
    ) -> Self {
        // A job that asks for more is refused before it is planned (`shared::job`).
        let samples = spec
            .train
            .batch_size
            .saturating_mul(spec.train.accumulation);
        let count = samples.min(MOST_SAMPLES);
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        let at = |place: usize| (2 * place + 1) * sorted.len() / (2 * count.max(1));
        let lengths = (0..count).filter_map(|place| sorted.get(at(place)).copied());
        let copies = match spec.optimizer.kind {
            OptimizerKind::AdamW => 4,
            OptimizerKind::Sgd => 3,
        };
        Self {
            tenant: tenant.to_owned(),
            adapter: Adapter::of(&spec.adapter),
            bytes_per_value: copies * size_of::<f32>() as u64,
            lengths: lengths.collect(),
            longest_row: sorted.last().copied().unwrap_or(0),
            counted_permille,
            steps,
            arrived: now,
            queued: now,
            started: None,
            max_added_latency: None,
            deadline: None,
        }
    }

    /// Rows of one optimizer step, virtual ones included.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        let rows: u64 = self.lengths.iter().map(|length| u64::from(*length)).sum();
        rows + self.adapter.prompt_rows() * self.lengths.len() as u64
    }

    /// Canonical blocks of one optimizer step: each sequence begins one of its own.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let virtual_rows = self.adapter.prompt_rows();
        let blocks = |length: &u32| (u64::from(*length) + virtual_rows).div_ceil(BLOCK);
        self.lengths.iter().map(blocks).sum()
    }

    /// Rows of the longest sequence of a typical step.
    #[must_use]
    pub fn longest(&self) -> u64 {
        let longest = self.lengths.iter().max().copied().unwrap_or(0);
        u64::from(longest) + self.adapter.prompt_rows()
    }

    /// Rows of the longest sequence of any step.
    #[must_use]
    pub fn longest_of_all(&self) -> u64 {
        let row = u64::from(self.longest_row) + self.adapter.prompt_rows();
        self.longest().max(row)
    }

    /// The same with no sequence of more rows, virtual ones not counted.
    #[must_use]
    pub fn shortened(&self, most: u32) -> Self {
        Self {
            lengths: self.lengths.iter().map(|has| (*has).min(most)).collect(),
            longest_row: self.longest_row.min(most),
            ..self.clone()
        }
    }

    /// Most micro-batches that its step can be cut into.
    #[must_use]
    pub fn most_micro_batches(&self, align: bool) -> u64 {
        if align {
            self.tokens().div_ceil(BLOCK).max(1)
        } else {
            (self.lengths.len() as u64).max(1)
        }
    }
}

/// When a job that fits in memory joins those that train (`docs/adr/0017-joining.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saturation {
    /// Always.
    Off,
    /// Unless tokens a second fall by more than this: what is predicted is no more exact.
    NoLoss {
        /// Of the tokens a second without it.
        permille: u64,
    },
    /// Only when tokens a second grow by at least this: the rule of the MuxTune paper, for comparison.
    Growth {
        /// Of the tokens a second without it.
        permille: u64,
    },
}

impl Saturation {
    /// Of `docs/adr/0017-joining.md`: predictions are off by some two percent.
    pub const NO_LOSS: Self = Self::NoLoss { permille: 20 };
    /// Of the MuxTune paper, where half a percent counts as growth.
    pub const GROWTH: Self = Self::Growth { permille: 5 };

    /// Whether a job joins, by tokens a second (or any multiple of them) without it and with it.
    #[must_use]
    pub fn joins(self, without: u128, with: u128) -> bool {
        let least = match self {
            Self::Off => return true,
            Self::NoLoss { permille } => 1000 - permille.min(1000),
            Self::Growth { permille } => permille.saturating_add(1000),
        };
        with.saturating_mul(1000) >= without.saturating_mul(u128::from(least))
    }

    /// Whether a step in company counts as no longer than the same apart, where none but a loss keeps jobs from joining.
    #[must_use]
    pub fn is_no_slower(self, apart: u64, together: u64) -> bool {
        let Self::NoLoss { permille } = self else {
            return false;
        };
        let most = u128::from(apart) * u128::from(1000 + permille);
        u128::from(together) * 1000 <= most
    }
}

/// What the operator wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Stages of a replica; absent: the planner chooses.
    pub stages: Option<u32>,
    /// Replicas; absent: the planner chooses.
    pub replicas: Option<u32>,
    /// Micro-batches of a step, where they fit; absent: the planner chooses.
    pub micro_batches: Option<u64>,
    /// Whether jobs may share passes.
    pub fuse: bool,
    /// Whether passes are put in order; else they run by the jobs' ids, one forward one backward.
    pub order: bool,
    /// Whether data is packed and cut; else every sequence is padded to the longest of its pass.
    pub align: bool,
    /// When a job that fits joins those that train.
    pub saturation: Saturation,
    /// A job that has waited so long goes before all that have not.
    pub patience: Micros,
    /// A job that trains is not paused before it had so long.
    pub quantum: Micros,
    /// A new layout must pay for the change within this time.
    pub horizon: Micros,
    /// Rows of a pass by the first stage's own bound: what turns are measured by (ADR 18).
    #[serde(default = "tokens_per_pass")]
    pub tokens_per_pass: u64,
}

/// As the keys `plan.tokens_per_pass` and `engine.tokens_per_pass` have it.
fn tokens_per_pass() -> u64 {
    512
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stages: None,
            replicas: None,
            micro_batches: None,
            fuse: true,
            order: true,
            align: true,
            saturation: Saturation::NO_LOSS,
            patience: Micros(3_600_000_000),
            quantum: Micros(600_000_000),
            horizon: Micros(3_600_000_000),
            tokens_per_pass: tokens_per_pass(),
        }
    }
}

impl Snapshot {
    /// A tenant's share.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Tenant {
        self.tenants.get(name).copied().unwrap_or_default()
    }

    /// The way from one node to another.
    #[must_use]
    pub fn link(&self, from: &NodeName, to: &NodeName) -> &Link {
        let site = |node: &NodeName| self.nodes.get(node).map(|machine| &machine.site);
        if site(from) == site(to) {
            &self.inside
        } else {
            &self.between
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::adapter::{Method, Site};

    fn spec(adapter: &str) -> JobSpec {
        let text = format!(
            r#"{{"name":"a","adapter":{adapter},"data":{{"train":"a.jsonl"}},"train":{{"batch_size":2,"accumulation":2}},
                "optimizer":{{"kind":"sgd"}}}}"#
        );
        serde_json::from_str(&text).expect("a job")
    }

    #[test]
    fn a_typical_step_spreads_over_the_lengths() {
        let job = spec(r#"{"method":"lora","rank":8,"targets":["q_proj","lm_head"]}"#);
        let rows: Vec<u32> = (1..=80).rev().collect();
        let task = Task::of(&job, "t", &rows, 500, 10, Micros(3));
        assert_eq!(task.lengths, [11, 31, 51, 71]);
        assert_eq!((task.longest(), task.longest_of_all()), (71, 80));
        assert_eq!(task.shortened(40).longest_of_all(), 40);
        assert_eq!((task.bytes_per_value, task.queued), (12, Micros(3)));
        assert_eq!(task.adapter.method, Method::Lora);
        assert!(task.adapter.sites.contains(&Site::Head));
    }

    #[test]
    fn every_method_has_values() {
        let model = crate::plan::testing::llama_7b();
        for (adapter, values) in [
            (
                r#"{"method":"lora","rank":8,"targets":["q_proj"]}"#,
                8 * 8192,
            ),
            (
                r#"{"method":"lora","rank":8,"targets":["q_proj"],"dora":true}"#,
                8 * 8192 + 4096,
            ),
            (
                r#"{"method":"ia3","targets":["k_proj"],"feedforward":[]}"#,
                4096,
            ),
            (
                r#"{"method":"bottleneck","size":16}"#,
                2 * 16 * 4096 + 4096 + 16,
            ),
            (r#"{"method":"prefix","tokens":10}"#, 2 * 10 * 4096),
            (r#"{"method":"prompt","tokens":10}"#, 0),
            (r#"{"method":"bitfit","targets":["q_proj"]}"#, 4096),
            (
                r#"{"method":"diff","targets":["q_proj"],"density":0.5}"#,
                4096 * 4096 / 2,
            ),
        ] {
            let task = Task::of(&spec(adapter), "t", &[64], 1000, 1, Micros(0));
            assert_eq!(task.adapter.values_per_block(&model), values, "{adapter}");
        }
        let prompt = Task::of(
            &spec(r#"{"method":"prompt","tokens":10}"#),
            "t",
            &[64],
            1000,
            1,
            Micros(0),
        );
        assert_eq!(prompt.adapter.values_of_embedding(&model), 10 * 4096);
        assert_eq!((prompt.tokens(), prompt.longest()), (4 * 74, 74));
    }
}
