//! What replies show of jobs, nodes and events.

use serde::{Deserialize, Serialize};

use super::market::Money;
use crate::ids::{EventNumber, JobId, JobName, NodeName, PlanEpoch, Term};
use crate::life::{JobState, Reason};
use crate::plan::Plan;
use crate::samples::SampleCount;
use crate::units::{Bytes, Micros};

/// A job as its owner sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Given by the coordinator.
    pub id: JobId,
    /// Given by the owner.
    pub name: JobName,
    /// Where it is.
    pub state: JobState,
    /// Why, when that needs saying.
    pub reason: Option<Reason>,
    /// Method and rank, in a word.
    pub method: String,
    /// Optimizer steps taken.
    pub step: u64,
    /// Optimizer steps in all.
    pub total_steps: u64,
    /// Steps that no loss of a node can take back.
    pub durable_step: u64,
    /// Tokens passed in training.
    pub tokens: u64,
    /// Training loss of the first step.
    pub first_loss: Option<f64>,
    /// Training loss of the last step.
    pub last_loss: Option<f64>,
    /// Held-out loss at the start.
    pub first_eval: Option<f64>,
    /// Held-out loss at the last evaluation, and its step.
    pub last_eval: Option<(f64, u64)>,
    /// Learning rate of the last step.
    pub learning_rate: Option<f64>,
    /// Replica it is placed on.
    pub replica: Option<u32>,
    /// Jobs before it in the queue.
    pub queue_position: Option<u32>,
    /// How often it went on from a durable step after a loss.
    pub recoveries: u32,
    /// How often it went on after a move that was planned: nothing was lost.
    pub moves: u32,
    /// When it was submitted, since 1970.
    pub submitted: Micros,
    /// When it took its first step, since 1970.
    pub started: Option<Micros>,
    /// When it ended, since 1970.
    pub ended: Option<Micros>,
    /// JSON text of its specification with every default written out; empty where all jobs are asked about.
    pub spec: String,
    /// Names one submission through all processes; lower-case hexadecimal.
    pub trace: String,
    /// How fast it goes; where one job is asked about and it trains.
    pub tempo: Option<Tempo>,
    /// What it has cost; where one job is asked about and a market holds the machines.
    pub money: Option<Money>,
    /// What became of every record of its files; where one job is asked about and they were read.
    pub samples: Vec<SampleCount>,
}

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeHealth {
    /// Heartbeats come.
    Alive,
    /// Its operator wants it empty, or it leaves.
    Draining,
    /// No connection, or a device that does not come back from its work; may come back.
    Lost,
    /// It went in order, as it was told to.
    Left,
}

impl NodeHealth {
    /// Whether its process is here and its device works.
    #[must_use]
    pub fn is_here(self) -> bool {
        matches!(self, Self::Alive | Self::Draining)
    }
}

/// A node as its operator sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Where neighbours reach it.
    pub address: String,
    /// How it is.
    pub health: NodeHealth,
    /// Age of its last heartbeat.
    pub heartbeat_age: Micros,
    /// Replica, stage and layers `first..end` it holds.
    pub holds: Option<(u32, u32, u32, u32)>,
    /// Memory it offers.
    pub memory: Bytes,
    /// Memory in use.
    pub memory_used: Bytes,
    /// Compute threads.
    pub threads: u32,
    /// Device and instruction set.
    pub device: String,
    /// Why its machine may be taken, where that was said.
    pub risk: Option<String>,
}

/// The cluster at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// The leadership.
    pub term: Term,
    /// The plan in force.
    pub plan: Plan,
    /// The plan being moved to, and how far that is, in a word.
    pub moving: Option<(PlanEpoch, String)>,
    /// Why fewer replicas stand than are wanted, and which nodes are kept from work.
    pub lack: Option<String>,
    /// Name of the backbone.
    pub model: String,
    /// Layers of the backbone.
    pub layers: u32,
    /// Jobs by state.
    pub jobs: Vec<(JobState, u32)>,
    /// Nodes.
    pub nodes: Vec<NodeView>,
    /// The coordinator's clock, since 1970.
    pub clock: Micros,
    /// Since the coordinator started.
    pub uptime: Micros,
    /// Tokens trained per second over the last half minute.
    pub tokens_per_second: f64,
    /// The newest event: what comes is behind it.
    pub newest_event: EventNumber,
}

/// What the planner is asked about a cluster as it stands, to be answered by whoever asks for it: both have the planner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanView {
    /// JSON text of the planner's snapshot: nodes, their profiles, jobs that have not ended, options.
    pub question: String,
    /// Jobs that the planner knows nothing of yet: their files are being read.
    pub unread: Vec<JobId>,
    /// Jobs left out, as all would not fit into one answer.
    pub left_out: u32,
}

/// How fast a job goes in its company.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tempo {
    /// Between the ends of two of its optimizer steps: the median of the last ones.
    pub step: Micros,
    /// Steps that it is the median of.
    pub steps: u32,
    /// A step alone on the same replica, as the planner predicts it.
    pub alone: Option<Micros>,
    /// Whether that rests on measured profiles of all its nodes.
    pub measured: bool,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Info,
    /// Worth a look.
    Warn,
    /// Something ended that should not.
    Error,
}

/// One line of the cluster's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    /// Its number.
    pub number: EventNumber,
    /// When, since 1970.
    pub at: Micros,
    /// Its job, if it is about one.
    pub job: Option<JobId>,
    /// How much it matters.
    pub level: Level,
    /// What it is, from a closed list: `job_queued`, `step`, `evaluation`, `checkpoint`, `migration_started`...
    pub kind: String,
    /// A sentence for people.
    pub message: String,
    /// JSON text of its numbers.
    pub data: String,
}

/// What a device did from one instant to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanView {
    /// The node.
    pub node: NodeName,
    /// Its stage.
    pub stage: u32,
    /// `device`, `link out`, `link in`, `checkpoint`: spans of one lane do not overlap.
    pub lane: String,
    /// `forward`, `backward`, `apply`, `evaluate`, `send`, ...
    pub name: String,
    /// The micro-batch, if it is about one.
    pub micro_batch: Option<u64>,
    /// Jobs in it, each with its step under way.
    pub jobs: Vec<(JobId, u64)>,
    /// Start, since 1970 on the node's clock.
    pub start: Micros,
    /// How long.
    pub duration: Micros,
    /// Bytes carried or held.
    pub bytes: Bytes,
}
