//! The problem: machines, the backbone, jobs and what the operator wants, as ordered maps of integers.

use std::collections::BTreeMap;

use shared::ids::{JobId, NodeName};
use shared::model::ModelShape;
use shared::units::{Bytes, MicroUsd, Micros};

use super::adapter::Adapter;
use super::profile::{Link, Profile, Weights};

/// Rows of a canonical block: sequences are cut at multiples of it only.
pub const BLOCK: u64 = 64;

/// Everything that a plan depends on. The same snapshot has the same plan.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name of its profile.
    pub device: String,
    /// Memory it offers.
    pub memory: Bytes,
    /// Nodes of one site are near each other.
    pub site: String,
    /// Price of an hour.
    pub price: MicroUsd,
    /// Reclaims and failures expected in a thousand hours.
    pub losses_per_kilohour: u64,
}

/// A tenant's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Who pays.
    pub tenant: String,
    /// What is trained.
    pub adapter: Adapter,
    /// Bytes of each trained value: value, gradient and moments in 32 bits (AdamW 16, SGD 12).
    pub bytes_per_value: u64,
    /// Lengths of the sequences of one optimizer step, in the job's order; of a typical one.
    pub lengths: Vec<u32>,
    /// Permille of the tokens that count in the loss.
    pub counted_permille: u64,
    /// Optimizer steps to go.
    pub steps: u64,
    /// Submitted at.
    pub arrived: Micros,
    /// Has trained since; absent while it waits.
    pub started: Option<Micros>,
    /// The most that company may add to a step, in permille of the step alone.
    pub max_added_latency: Option<u64>,
    /// To be done by.
    pub deadline: Option<Micros>,
}

impl Task {
    /// Rows of one optimizer step, virtual ones included.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        let rows: u64 = self.lengths.iter().map(|length| u64::from(*length)).sum();
        rows + self.adapter.prompt_rows() * self.lengths.len() as u64
    }

    /// Rows of the longest sequence.
    #[must_use]
    pub fn longest(&self) -> u64 {
        let longest = self.lengths.iter().max().copied().unwrap_or(0);
        u64::from(longest) + self.adapter.prompt_rows()
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

/// What the operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Stages of a replica; absent: the planner chooses.
    pub stages: Option<u32>,
    /// Replicas; absent: the planner chooses.
    pub replicas: Option<u32>,
    /// Micro-batches of a step; absent: the planner chooses.
    pub micro_batches: Option<u64>,
    /// Whether jobs may share passes.
    pub fuse: bool,
    /// Whether passes are put in order; else they run by the jobs' ids, one forward one backward.
    pub order: bool,
    /// Whether data is packed and cut; else every sequence is padded to the longest of its pass.
    pub align: bool,
    /// A job that adds less throughput than this, in permille of what is there, waits.
    pub saturation_permille: u64,
    /// A job that has waited so long goes before all that have not.
    pub patience: Micros,
    /// A job that trains is not paused before it had so long.
    pub quantum: Micros,
    /// A new layout must pay for the change within this time.
    pub horizon: Micros,
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
            saturation_permille: 5,
            patience: Micros(3_600_000_000),
            quantum: Micros(600_000_000),
            horizon: Micros(3_600_000_000),
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
