//! What a client asks of the coordinator, one request a stream, and what it answers.

use serde::{Deserialize, Serialize};

use super::market::MarketTold;
use super::view::{ClusterView, EventView, JobView, NodeView, PlanView, SpanView};
use crate::ids::{ClusterName, EventNumber, JobId, JobName, NodeName};
use crate::units::{Bytes, Micros};

/// How a client names a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobRef {
    /// By the id given at submission.
    Id(JobId),
    /// By the name its owner gave.
    Name(JobName),
}

/// A file of a job, uploaded before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileRef {
    /// The path as the specification has it.
    pub path: String,
    /// Lower-case hexadecimal content hash.
    pub sha256: String,
    /// Its size.
    pub bytes: Bytes,
}

/// One job to be trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// JSON text of a [`JobSpec`](crate::job::JobSpec).
    pub spec: String,
    /// All files that it names.
    pub files: Vec<FileRef>,
}

/// A text to be continued on the shared backbone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleRequest {
    /// With this job's adapter as it is now; none: the backbone alone.
    pub job: Option<JobRef>,
    /// What the system says before, in place of what the backbone's template says by itself.
    pub system: Option<String>,
    /// What the user says.
    pub prompt: String,
    /// Whether the prompt is continued as it stands, without the backbone's template.
    pub raw: bool,
    /// Most tokens made.
    pub max_tokens: u32,
    /// 0 is greedy.
    pub temperature: f32,
    /// Smallest set of tokens with this much probability.
    pub top_p: f32,
    /// Most tokens chosen from; 0: all.
    pub top_k: u32,
    /// Of the choice.
    pub seed: u64,
}

/// Who asks to join, and as whom: a token made for somebody else is refused and not used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joining {
    /// The token.
    pub token: String,
    /// PEM text of a certificate signing request.
    pub signing_request: String,
    /// The cluster, where the joiner knows its name.
    pub cluster: Option<ClusterName>,
    /// The role as certificates write it.
    pub role: String,
    /// The name.
    pub name: NodeName,
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The cluster at a glance: [`Reply::Cluster`].
    Status,
    /// All nodes: [`Reply::Nodes`].
    Nodes,
    /// All jobs, oldest first: [`Reply::Jobs`].
    Jobs,
    /// One job: [`Reply::Job`].
    Job(JobRef),
    /// Whether a file is here: [`Reply::Done`], or a refusal of code [`RefusalCode::NotFound`].
    HasFile(FileRef),
    /// Its bytes follow on the stream: [`Reply::Done`].
    PutFile(FileRef),
    /// Accepts a job once: the same name with the same content answers with the job that is there. [`Reply::Job`].
    Submit(Submission),
    /// Ends a job and keeps its last checkpoint; again is no error: [`Reply::Job`].
    Cancel(JobRef),
    /// Halts a job after its step under way: [`Reply::Job`].
    Pause(JobRef),
    /// Goes on with it: [`Reply::Job`].
    Resume(JobRef),
    /// Events after a number, of all jobs or of one: [`Reply::Events`], and more of them when followed.
    Events {
        /// Of this job only.
        job: Option<JobRef>,
        /// Only later ones.
        after: EventNumber,
        /// Whether to wait for more when all are told.
        follow: bool,
    },
    /// Takes work off a node, or gives it back: [`Reply::Done`] once accepted.
    Drain {
        /// The node.
        node: NodeName,
        /// Whether it may have work again.
        undo: bool,
        /// Whether it is to be empty even where its layers have no other place.
        force: bool,
    },
    /// Moves the stage of a node to another: [`Reply::Done`] once accepted.
    Migrate {
        /// The node that holds it.
        from: NodeName,
        /// The node that shall; none: the coordinator chooses.
        to: Option<NodeName>,
    },
    /// Continues a text: [`Reply::Piece`], many times, then [`Reply::Done`].
    Sample(SampleRequest),
    /// What every stage did for one optimizer step of a job: [`Reply::Spans`].
    Trace {
        /// The job; none: all that passed in the same round as the newest step.
        job: Option<JobRef>,
        /// Its step, from 1; none: the newest.
        step: Option<u64>,
    },
    /// The adapter of a job as files of the PEFT layout: [`Reply::File`] for each, its bytes following, then
    /// [`Reply::Done`].
    Fetch(JobRef),
    /// A certificate for one who has a one-time token: [`Reply::Joined`].
    Join(Joining),
    /// A fresh certificate for the holder of one that still holds: [`Reply::Certificate`].
    Renew {
        /// PEM text of a certificate signing request.
        signing_request: String,
    },
    /// What the backbone is made of, and who has it: [`Reply::Backbone`].
    Backbone,
    /// A file of the backbone, of the coordinator or of a node: [`Reply::File`], its bytes from an offset on following.
    BackboneFile {
        /// The file, as [`Reply::Backbone`] told.
        file: FileRef,
        /// Bytes that the asker has already.
        from: Bytes,
    },
    /// Ends the whole cluster in order: [`Reply::Done`] once accepted.
    Shutdown,
    /// What the planner is asked about the cluster as it stands: [`Reply::Plan`].
    Plan,
    /// The machine of a node will be taken: its work moves within that time, or is made durable: [`Reply::Done`] once accepted.
    Reclaim {
        /// The node.
        node: NodeName,
        /// How long it stays.
        within: Micros,
    },
    /// The machine of a node may be taken: states of its jobs are stored more often, and nothing moves: [`Reply::Done`] once
    /// accepted. Forgotten when the node goes, and by a new leadership.
    Risk {
        /// The node.
        node: NodeName,
        /// In the provider's words; none: no more.
        cause: Option<String>,
    },
    /// What a market offers and what jobs owe: [`Reply::Done`].
    Market(MarketTold),
}

/// The backbone that all nodes must have, and where to get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackboneView {
    /// Content hash of its identity.
    pub identity: String,
    /// What adapters call their base model.
    pub base: String,
    /// Its files: names in one folder.
    pub files: Vec<FileRef>,
    /// Nodes that have it, each with its address.
    pub nodes: Vec<(NodeName, String)>,
}

/// Why a request is refused; each has an exit code of its own on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// No such job, node, file or step.
    NotFound,
    /// The state does not allow it, or the name is taken by another content.
    Conflict,
    /// What was asked cannot be.
    Invalid,
    /// The role of the caller does not allow it.
    Forbidden,
    /// A limit is reached: later, the same may pass.
    Busy,
    /// No node can do it.
    NoCapacity,
    /// The coordinator itself failed.
    Internal,
}

/// A request refused: nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind.
    pub code: RefusalCode,
    /// What, which, the limit and the remedy.
    pub message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// What the coordinator answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done, or accepted, or all is told.
    Done,
    /// It is not.
    Refused(Refusal),
    /// The cluster.
    Cluster(ClusterView),
    /// The nodes.
    Nodes(Vec<NodeView>),
    /// The jobs.
    Jobs(Vec<JobView>),
    /// The job.
    Job(Box<JobView>),
    /// Some events, in their order.
    Events(Vec<EventView>),
    /// More text.
    Piece(String),
    /// What stages did.
    Spans(Vec<SpanView>),
    /// A file whose bytes follow.
    File(FileRef),
    /// PEM texts.
    Certificate {
        /// The one asked for, and those it is signed by.
        chain: String,
        /// The cluster's authority.
        authority: String,
    },
    /// The backbone.
    Backbone(BackboneView),
    /// A new member's certificate, and the settings that all members share.
    Joined {
        /// PEM texts: its certificate, and those it is signed by.
        chain: String,
        /// Keys of `cluster.toml`, each with its value as TOML writes it.
        settings: Vec<(String, String)>,
    },
    /// What the planner is asked.
    Plan(Box<PlanView>),
}
