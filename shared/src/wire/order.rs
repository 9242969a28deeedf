//! What the coordinator tells a gpu-actor. Each order bears the term of the leadership that gave it: one of an older
//! term than the highest heard is refused.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, PlanEpoch, Term};
use crate::plan::Replica;
use crate::plan::arrangement::Arrangement;

/// A job for the first stage of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOrder {
    /// The job.
    pub job: JobId,
    /// JSON text of its [`JobSpec`](crate::job::JobSpec).
    pub spec: String,
    /// Key in the store of artifacts of its token rows.
    pub rows: String,
    /// Content hash of the rows.
    pub rows_sha256: String,
    /// Keys and hashes of the adapter files to start from: configuration, weights.
    pub init_from: Option<[(String, String); 2]>,
    /// Token ids of the text that a prompt starts from.
    pub init_tokens: Vec<u32>,
    /// Whether the job waits for an order to go on.
    pub paused: bool,
    /// Names the submission through all processes.
    pub trace: String,
    /// Replicas that share its steps, the one that leads it first; empty when none do.
    pub replicas: Vec<u32>,
}

/// What is to be done with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobAction {
    /// Halt after the step under way.
    Pause,
    /// Go on.
    Resume,
    /// End it after the step under way, and keep its state.
    Cancel,
}

/// A text for the first stage of a replica to continue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleOrder {
    /// Names it in answers.
    pub number: u64,
    /// With this job's adapter.
    pub job: Option<JobId>,
    /// Token ids of the prompt as rendered.
    pub prompt: Vec<u32>,
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
    /// Tokens that end it.
    pub stops: Vec<u32>,
}

/// What is ordered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Open the layers of a seat beside what is held: answered by `Prepared`.
    Prepare {
        /// The plan that will want them.
        epoch: PlanEpoch,
        /// The replica as it will be.
        replica: Replica,
        /// Which of its stages is meant.
        stage: u32,
    },
    /// Finish the round under way, make it durable, and start no other: answered by `Drained`. First stages only.
    Drain {
        /// The plan in force.
        epoch: PlanEpoch,
        /// The plan to come; 0: the cluster ends. The answer names it: one that is late is not that to the next drain.
        toward: PlanEpoch,
        /// Whether a machine of the replica may go before its steps end: the last whole states are then made durable while
        /// they do. Told again with this, a drain under way is one from then on.
        soon: bool,
    },
    /// Go on with the plan in force, and let go of what was prepared for another: a move was called off. For any
    /// stage, and of no effect where nothing was drained or prepared.
    Undrain {
        /// The plan in force.
        epoch: PlanEpoch,
    },
    /// Hold this stage from now on, linked to its neighbours: answered by `Holding`. What was prepared for the epoch
    /// is used; states are taken from the store of artifacts.
    Hold {
        /// The plan.
        epoch: PlanEpoch,
        /// The replica.
        replica: Replica,
        /// Which of its stages.
        stage: u32,
    },
    /// Train these too. First stages only; each is answered by `JobNotice::Admitted` or `JobNotice::Refused`, but one
    /// that is here already, or that ended here unheard, is passed over.
    Admit {
        /// The plan in force.
        epoch: PlanEpoch,
        /// The jobs.
        jobs: Vec<JobOrder>,
    },
    /// First stages only.
    Act {
        /// The plan in force.
        epoch: PlanEpoch,
        /// The job.
        job: JobId,
        /// What with it.
        action: JobAction,
    },
    /// First stages only; answered by `Piece` and `SampleEnded`.
    Sample {
        /// The plan in force.
        epoch: PlanEpoch,
        /// What to continue.
        sample: SampleOrder,
    },
    /// Let go of all stages of plans up to this one.
    Release {
        /// The plan.
        epoch: PlanEpoch,
    },
    /// All notices up to this number are in the journal.
    Heard {
        /// The number.
        notice: u64,
    },
    /// Send what the device did for a job's step, or the newest: answered by `Spans`.
    Trace {
        /// Names it in the answer.
        number: u64,
        /// The job.
        job: Option<JobId>,
        /// Its step.
        step: Option<u64>,
    },
    /// Close links and stop: the cluster ends, or the node said that it goes and holds nothing any more.
    Stop,
    /// Train jobs together like this from the next round on. First stages only; no result shows it. Not answered: the
    /// newest holds, and one that names other jobs than are here does no harm.
    Arrange {
        /// The plan in force.
        epoch: PlanEpoch,
        /// Which share passes, and in which order these go.
        arrangement: Arrangement,
    },
    /// Store the states of all jobs after every so many steps at most, besides when they ask for it: a machine may be taken. First
    /// stages only. Not answered: the newest holds, for this plan and this leadership. A state that finds the one before still on its
    /// way to the store is passed over.
    Hasten {
        /// The plan in force.
        epoch: PlanEpoch,
        /// Steps; 0: as the jobs ask.
        every_steps: u64,
    },
    /// Nobody waits for this text any more: let it go. First stages only. Not answered, and of no effect where it is not made.
    EndSample {
        /// The plan in force.
        epoch: PlanEpoch,
        /// Of the sample.
        number: u64,
    },
}

/// An order and the leadership that gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ordered {
    /// The leadership.
    pub term: Term,
    /// The order.
    pub order: Order,
}
