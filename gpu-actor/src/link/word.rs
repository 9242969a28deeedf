//! Everything neighbouring stages tell each other besides values.
//!
//! | to the stage behind | to the stage before |
//! | --- | --- |
//! | what passes next, jobs that come and go, states to keep | what the last stage found out |
//! | agreements on steps | reports on gradients, verdicts on steps |
//! | the end | parts of states that are stored or gone, answers on jobs that came |
//!
//! | to the lead of another replica | to the same stage of another replica |
//! | --- | --- |
//! | jobs whose steps are shared, rows, what those gave | sums of gradients and losses, values in chunks behind |
//!
//! Every stage reads a word and passes it on, changed or not. The types suit formats that do not describe themselves:
//! a specification and a manifest travel as their JSON text.

use serde::{Deserialize, Serialize};
use shared::ids::JobName;

use crate::artifacts::part::PartRef;
use crate::batch::Batch;
use crate::pipeline::council::{Matter, Verdict};
use crate::pipeline::{MicroBatchNumber, Slot};
use crate::sample::choice::Sampling;
use crate::stage::agreement::{Agreement, Report};
use crate::stage::outcome::JobOutcome;
use crate::stage::partial::PartialHead;
use crate::train::tally::LossPartials;

#[cfg(test)]
mod tests;

/// Names a text in the making.
pub type TextNumber = u64;

/// What a micro-batch is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pass {
    /// Forward and backward.
    Train,
    /// Losses of held-out rows.
    Evaluate,
    /// Rows of a text, behind those that its caches hold.
    Sample {
        /// The text.
        text: TextNumber,
        /// How the last stage chooses the token behind the last row, and which of the text's new tokens that is; none
        /// when more rows of the prompt follow.
        choose: Option<(Sampling, u32)>,
    },
}

/// How a job's step is taken whose last rows are in a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepGoal {
    /// The job.
    pub slot: Slot,
    /// Steps taken before.
    pub step: u64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Whether each stage stores its part of the state after the step.
    pub keep: bool,
    /// When other replicas compute rows of the step too.
    pub shard: Option<Shard>,
}

/// What a replica has of a step that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Blocks of the whole step.
    pub blocks: u64,
    /// Whether the rows that pass here are another replica's too and do not count: there are more replicas than
    /// sequences.
    pub idle: bool,
}

/// A micro-batch and what belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// One more than that of the one planned before.
    pub number: MicroBatchNumber,
    /// What it is for.
    pub pass: Pass,
    /// Its rows.
    pub batch: Batch,
    /// Steps that end with it.
    pub goals: Vec<StepGoal>,
}

/// Where a job's first state comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    /// Each stage makes its own values, from the job's seed.
    Fresh {
        /// Tokens of the text that a prompt starts from.
        init_tokens: Vec<u32>,
    },
    /// Each stage reads its parts from the store.
    Stored {
        /// JSON text of the state's manifest.
        manifest: String,
    },
}

/// A job that comes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// Its place on every stage.
    pub slot: Slot,
    /// Its name in the store and in reports.
    pub job: JobName,
    /// JSON text of its specification.
    pub spec: String,
    /// Its first state.
    pub source: Source,
    /// Numbers of the replicas that share its steps, the one that leads it first; empty when none do.
    pub replicas: Vec<u32>,
}

/// Rows of a job for another replica to compute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assist {
    /// The job.
    pub job: JobName,
    /// Names the first micro-batch in the answer; those behind it have the next numbers.
    pub ticket: u64,
    /// What they are for: training or evaluation.
    pub pass: Pass,
    /// Rows of this job only: one batch, or all chunks of a sequence, which go in together.
    pub chain: Vec<Batch>,
    /// The step that ends on that replica once all of them are back.
    pub goal: Option<StepGoal>,
}

/// What one stage of one replica has of a job's step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// The job.
    pub job: JobName,
    /// Steps taken before.
    pub step: u64,
    /// Of gradients; their values follow in chunks, one after another.
    pub heads: Vec<PartialHead>,
    /// Of losses, on the last stage.
    pub losses: LossPartials,
}

/// A word from a neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// Forward: the plan goes on with this; its chunk follows.
    Plan(Box<Planned>),
    /// Forward: a job comes; answered by `Attached` or `Refused`.
    Attach(Box<Attach>),
    /// Forward: a job of which nothing is under way goes.
    Detach {
        /// Its place.
        slot: Slot,
    },
    /// Forward: each stage stores its part of a job's state once it has taken so many steps.
    Keep {
        /// The job.
        slot: Slot,
        /// Steps taken.
        step: u64,
    },
    /// Forward: a text is done.
    Forget {
        /// The text.
        text: TextNumber,
    },
    /// Forward: what all stages know of a step together, and the first vote against it.
    Agreement {
        /// The step.
        matter: Matter,
        /// What all know.
        agreement: Agreement,
        /// The first vote against it.
        against: Verdict,
    },
    /// Forward: nothing will follow.
    Close,
    /// Forward: from now on stages hold so many passes at once, by stage; one that is not named one for each stage from it to
    /// the last.
    Ahead {
        /// By stage.
        passes: Vec<u32>,
    },
    /// Backward: what all stages behind know of a step.
    Report {
        /// The step.
        matter: Matter,
        /// What they know.
        report: Report,
    },
    /// Backward: whether a step is taken.
    Verdict {
        /// The step.
        matter: Matter,
        /// Why not.
        verdict: Verdict,
    },
    /// Backward: what the last stage found out about a micro-batch.
    Outcome {
        /// The micro-batch.
        number: MicroBatchNumber,
        /// By job in it.
        outcomes: Vec<JobOutcome>,
    },
    /// Backward: the token that the last stage chose, or why it could not.
    Chosen {
        /// The micro-batch.
        number: MicroBatchNumber,
        /// The token.
        token: Result<u32, String>,
    },
    /// Backward: a stage's part of a state is stored, or cannot be.
    Part {
        /// The job.
        job: JobName,
        /// Steps taken.
        step: u64,
        /// Where it is.
        outcome: Result<PartRef, String>,
    },
    /// Backward: a stage cannot store a state any more: it took the next step before it was told to.
    Beyond {
        /// The job.
        job: JobName,
        /// Steps of the state.
        step: u64,
    },
    /// Backward: all stages behind hold a job.
    Attached {
        /// Its place.
        slot: Slot,
    },
    /// Backward: a stage cannot hold a job; a `Detach` follows.
    Refused {
        /// Its place.
        slot: Slot,
        /// What is wrong.
        problem: String,
    },
    /// Between leads: a job comes whose steps are shared; answered by `Enlisted`.
    Enlist(Box<Attach>),
    /// Between leads: a replica holds a shared job, or cannot.
    Enlisted {
        /// The job.
        job: JobName,
        /// Why not.
        outcome: Result<(), String>,
    },
    /// Between leads: rows to compute; answered by `Found`.
    Assist(Box<Assist>),
    /// Between leads: what rows gave.
    Found {
        /// The micro-batch.
        ticket: u64,
        /// What was found out.
        outcome: JobOutcome,
    },
    /// Between leads: a shared job goes.
    Dismiss {
        /// The job.
        job: JobName,
    },
    /// Between the same stages of replicas: what one has of a step.
    Sums(Box<Sums>),
}

impl Word {
    /// What it is, in a word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Plan(_) => "plan",
            Self::Attach(_) => "attach",
            Self::Detach { .. } => "detach",
            Self::Keep { .. } => "keep",
            Self::Forget { .. } => "forget",
            Self::Agreement { .. } => "agreement",
            Self::Close => "close",
            Self::Ahead { .. } => "ahead",
            Self::Report { .. } => "report",
            Self::Verdict { .. } => "verdict",
            Self::Outcome { .. } => "outcome",
            Self::Chosen { .. } => "chosen",
            Self::Part { .. } => "part",
            Self::Beyond { .. } => "beyond",
            Self::Attached { .. } => "attached",
            Self::Refused { .. } => "refused",
            Self::Enlist(_) => "enlist",
            Self::Enlisted { .. } => "enlisted",
            Self::Assist(_) => "assist",
            Self::Found { .. } => "found",
            Self::Dismiss { .. } => "dismiss",
            Self::Sums(_) => "sums",
        }
    }
}
