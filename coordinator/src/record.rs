//! What the journal holds: every change of the cluster that must outlive the coordinator, numbered without gaps.
//!
//! A record is at once a line of the cluster's history: [`Record::view`] says it to people, and the number of a record
//! is the number of its event. Replaying all records, or those after a snapshot, gives the [`Book`](crate::book::Book)
//! again.

mod view;

use serde::{Deserialize, Serialize};
use shared::ids::{EventNumber, JobId, JobName, NodeName, PlanEpoch, Term};
use shared::life::Reason;
use shared::samples::SampleCount;
use shared::units::Micros;
use shared::wire::notice::{JobNotice, LeaveCause};
use shared::wire::request::Submission;

use crate::life::layout::Layout;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// One more than that of the line before, from 1.
    pub number: EventNumber,
    /// When, since 1970.
    pub at: Micros,
    /// What changed.
    pub change: Change,
}

/// Which notice of which node said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The node.
    pub node: NodeName,
    /// Of its process.
    pub incarnation: u64,
    /// Of the notice, within the incarnation.
    pub number: u64,
}

/// What a job trains on, once its files were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// Key in the store of artifacts of its token rows.
    pub rows: String,
    /// Content hash of the rows.
    pub rows_sha256: String,
    /// Keys and hashes of the adapter files to start from: configuration, weights.
    pub init_from: Option<[(String, String); 2]>,
    /// Token ids of the text that a prompt starts from.
    pub init_tokens: Vec<u32>,
    /// What planning goes by; absent in journals of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Box<Measure>>,
    /// What became of every record of its files; absent in journals of before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleCount>,
}

/// What of a job's rows planning goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Training rows.
    pub rows: u64,
    /// Lengths of some of them, evenly spread over all by length.
    pub lengths: Vec<u32>,
    /// Permille of their tokens that count in the loss.
    pub counted_permille: u64,
}

/// Most lengths that are kept.
const LENGTHS: usize = 128;

impl Measure {
    /// Of all rows, each by its length and how many of its tokens count.
    #[must_use]
    pub fn of(rows: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let (mut all, mut counted) = (0u64, 0u64);
        let mut lengths = Vec::new();
        for (length, trained) in rows {
            all += length as u64;
            counted += trained as u64;
            lengths.push(u32::try_from(length).unwrap_or(u32::MAX));
        }
        lengths.sort_unstable();
        let rows = lengths.len();
        let kept = rows.min(LENGTHS);
        // The longest is always among them: memory goes by it.
        let at = |place: usize| lengths[((place + 1) * rows).div_ceil(kept) - 1];
        Self {
            rows: rows as u64,
            lengths: (0..kept).map(at).collect(),
            counted_permille: counted * 1000 / all.max(1),
        }
    }
}

/// A job as accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its owner's name for it.
    pub name: JobName,
    /// Method and rank, in a word.
    pub method: String,
    /// JSON text of its specification with every default written out.
    pub spec: String,
    /// As it came; files in the order of their paths.
    pub submission: Submission,
    /// Names the submission through all processes.
    pub trace: String,
    /// Most replicas that share its steps.
    #[serde(default = "one")]
    pub replicas: u32,
    /// What its tenant is taken to have been served, where that is more than it was: it came back from having no job.
    #[serde(default)]
    pub served_from: u64,
}

/// What a job asked for before it could ask for more.
pub(crate) fn one() -> u32 {
    1
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A leadership began.
    Began {
        /// Its term.
        term: Term,
    },
    /// A job was accepted.
    Submitted {
        /// Given to it.
        job: JobId,
        /// The job.
        accepted: Box<Accepted>,
    },
    /// Its rows are in the store.
    Prepared {
        /// The job.
        job: JobId,
        /// Where they are.
        inputs: Inputs,
    },
    /// Its files cannot be trained on, or no replica could take it for longer than is borne.
    Unfit {
        /// The job.
        job: JobId,
        /// Why.
        reason: Reason,
    },
    /// It was given to a replica.
    Placed {
        /// The job.
        job: JobId,
        /// The replica.
        replica: u32,
    },
    /// Its owner asked for a halt.
    PauseAsked {
        /// The job.
        job: JobId,
    },
    /// Its owner asked to go on.
    ResumeAsked {
        /// The job.
        job: JobId,
    },
    /// Its owner asked for the end.
    CancelAsked {
        /// The job.
        job: JobId,
    },
    /// Admission goes by numbers of jobs alone, as the planner cannot say what fits.
    Unplanned {
        /// Why.
        reason: String,
    },
    /// Fewer replicas share its steps than it asks for.
    SharedByFewer {
        /// The job.
        job: JobId,
        /// By how many, and why.
        reason: String,
    },
    /// A replica told of it.
    Heard {
        /// Who told.
        from: Source,
        /// The job.
        job: JobId,
        /// What.
        notice: JobNotice,
    },
    /// A replica cannot go on as it is.
    Broken {
        /// The replica.
        replica: u32,
        /// Why.
        reason: String,
    },
    /// A node of a replica uses more memory than it offers, and passes are made smaller.
    Regrouped {
        /// The replica.
        replica: u32,
        /// Of which node, and by how much.
        reason: String,
    },
    /// Seats for a new plan are being opened.
    MoveStarted {
        /// Of the plan to come.
        epoch: PlanEpoch,
        /// The replicas it changes.
        replicas: Vec<u32>,
        /// Why.
        reason: String,
    },
    /// The plan in force stays.
    MoveCalledOff {
        /// Of the plan that does not come.
        epoch: PlanEpoch,
        /// Why.
        reason: String,
    },
    /// A plan holds from now on.
    InForce {
        /// The plan.
        layout: Layout,
    },
    /// The operator wants a node empty, or gives it back.
    DrainAsked {
        /// The node.
        node: NodeName,
        /// Whether it may have work again.
        undo: bool,
    },
    /// A first stage was to make its jobs durable for the end of the cluster, and could not yet.
    NotDurable {
        /// The node.
        node: NodeName,
        /// Why.
        reason: String,
    },
    /// A first stage was stopped at the end of the cluster before it said that all its states are durable.
    Unsaved {
        /// The node.
        node: NodeName,
        /// Why it was not waited for.
        reason: String,
    },
    /// A node obeyed a leadership that is newer than this one: its connection was closed.
    NodeAhead {
        /// The node.
        node: NodeName,
        /// Of that leadership.
        term: Term,
        /// What may be, and what to do.
        reason: String,
    },
    /// A node came.
    NodeJoined {
        /// The node.
        node: NodeName,
        /// Of its process.
        incarnation: u64,
    },
    /// A node says that it goes.
    NodeLeaving {
        /// The node.
        node: NodeName,
        /// It stays for so long at most.
        within: Micros,
        /// Why.
        cause: LeaveCause,
        /// Of its process; 0 in journals of before.
        #[serde(default)]
        incarnation: u64,
    },
    /// The machine of a node may be taken, or no more.
    NodeAtRisk {
        /// The node.
        node: NodeName,
        /// Why; none: no more.
        cause: Option<String>,
        /// States of jobs on it are stored after so many steps meanwhile; 0: as they ask.
        every_steps: u64,
    },
    /// It went, as it was told to.
    NodeLeft {
        /// The node.
        node: NodeName,
    },
    /// A node is gone.
    NodeLost {
        /// The node.
        node: NodeName,
        /// How that was found out.
        reason: String,
    },
    /// Jobs that ended and nodes that are gone are let go of, as more are known than are kept.
    Forgotten {
        /// The jobs.
        jobs: Vec<JobId>,
        /// The nodes.
        nodes: Vec<NodeName>,
    },
}

impl Change {
    /// Whether it may take jobs off their replicas.
    #[must_use]
    pub fn displaces(&self) -> bool {
        matches!(self, Self::Broken { .. } | Self::InForce { .. })
    }

    /// The job that it is about, if one.
    #[must_use]
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Submitted { job, .. }
            | Self::Prepared { job, .. }
            | Self::Unfit { job, .. }
            | Self::Placed { job, .. }
            | Self::PauseAsked { job }
            | Self::ResumeAsked { job }
            | Self::CancelAsked { job }
            | Self::SharedByFewer { job, .. }
            | Self::Heard { job, .. } => Some(*job),
            _ => None,
        }
    }
}

/// Makes numbers writable as JSON, which knows none that is not finite.
pub(crate) fn finite(notice: &mut JobNotice) {
    let clean = |value: &mut f64| {
        if !value.is_finite() {
            *value = f64::MAX;
        }
    };
    match notice {
        JobNotice::Step {
            loss,
            accuracy,
            gradient_norm,
            learning_rate,
            ..
        } => [loss, accuracy, gradient_norm, learning_rate]
            .into_iter()
            .for_each(clean),
        JobNotice::Evaluation { loss, accuracy, .. } => {
            [loss, accuracy].into_iter().for_each(clean);
        }
        _ => {}
    }
}
