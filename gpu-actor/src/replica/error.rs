//! Why a replica could not be made, or cannot go on.

use std::fmt;

use thiserror::Error;

use crate::link::{ChunkHeader, LinkError};
use crate::pipeline::council::{Matter, Undue};
use crate::pipeline::{Lack, MicroBatchNumber, Slot, Unexpected};

/// Says why a job cannot be put on a replica.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AdmitError {
    /// The job, its rows or the state that was given do not fit; the next try ends as this one.
    #[error("{0}")]
    Job(String),
    /// Its durable state cannot be put on the stages now; the store may give it later.
    #[error("{0}")]
    State(String),
}

/// A neighbour of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Nearer to the embedding.
    Before,
    /// Nearer to the head.
    Behind,
    /// The same stage of the replica of this number.
    Across(u32),
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before => write!(f, "the stage before"),
            Self::Behind => write!(f, "the stage behind"),
            Self::Across(replica) => write!(f, "its peer in replica {replica}"),
        }
    }
}

/// What a stage waited for in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// For its next work.
    Work(Lack),
    /// For the agreement on a step.
    Matter(Matter, &'static str),
    /// What the last stage found out about a micro-batch.
    Outcome(MicroBatchNumber),
    /// That all stages hold a job.
    Answer(Slot),
    /// That states are stored: job and step of each.
    Stored(Vec<(String, u64)>),
    /// What another replica has of a job's step.
    Sums(String, u64, u32),
    /// That another replica holds a job, or what rows gave that it was sent.
    Help(u32),
    /// Two things, one of which may depend on the other.
    Both(Box<[Self; 2]>),
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(Lack::Plan) => write!(f, "the next plan"),
            Self::Work(Lack::Device(work)) => write!(f, "the device ({work:?})"),
            Self::Work(Lack::Activation(number)) => {
                write!(f, "the activation of micro-batch {number}")
            }
            Self::Work(Lack::Gradient(number)) => write!(f, "the gradient of micro-batch {number}"),
            Self::Work(Lack::Agreement(slot, step)) => {
                write!(f, "the agreement on step {step} of slot {slot}")
            }
            Self::Work(Lack::Adapter(slot)) => write!(f, "the adapter of slot {slot} at its step"),
            Self::Matter((slot, step), state) => write!(f, "step {step} of slot {slot}: {state}"),
            Self::Sums(job, step, replica) => {
                write!(f, "the sums of replica {replica} for step {step} of {job}")
            }
            Self::Help(replica) => write!(f, "an answer of replica {replica}"),
            Self::Both(both) => write!(f, "{}; {}", both[0], both[1]),
            Self::Outcome(number) => write!(f, "the outcome of micro-batch {number}"),
            Self::Answer(slot) => write!(f, "the answer on slot {slot}"),
            Self::Stored(states) => {
                let list: Vec<String> = states
                    .iter()
                    .map(|(job, step)| format!("{job} at step {step}"))
                    .collect();
                write!(f, "the store, for {}", list.join(", "))
            }
        }
    }
}

/// Says why a replica could not be made, or cannot go on.
#[derive(Debug, Error)]
pub enum ReplicaError {
    /// A stage needs a layer.
    #[error(
        "{stages} stages for {layers} layers: a stage holds at least one layer, so ask for 1 to {layers}"
    )]
    Stages {
        /// Stages asked for.
        stages: usize,
        /// Layers of the model that are there.
        layers: usize,
    },
    /// Nothing moved for longer than the patience.
    #[error("stage {stage} stalled: it waits for {lacking}")]
    Stalled {
        /// The stage.
        stage: usize,
        /// What it lacks.
        lacking: Lacking,
    },
    /// It was told to end while it waited for others.
    #[error("stage {stage} was told to end while it waited for its neighbours")]
    Stopped {
        /// The stage.
        stage: usize,
    },
    /// An event that does not fit the stage's state.
    #[error("stage {stage}: {source}")]
    Unexpected {
        /// The stage.
        stage: usize,
        /// The event and what is wrong with it.
        source: Unexpected,
    },
    /// A message about a step that is not due.
    #[error("stage {stage}: {source}")]
    Undue {
        /// The stage.
        stage: usize,
        /// The message and what is wrong with it.
        source: Undue,
    },
    /// A chunk that the plan does not know.
    #[error("stage {stage}: a chunk that is not of this plan: {header:?}")]
    Chunk {
        /// The stage that got it.
        stage: usize,
        /// What it says of itself.
        header: ChunkHeader,
    },
    /// A word that does not fit.
    #[error("stage {stage}: a word ({word}) that does not fit: {reason}")]
    Word {
        /// The stage that got it.
        stage: usize,
        /// What it is.
        word: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A neighbour cannot be reached.
    #[error("stage {stage}, {side}: {source}")]
    Link {
        /// The stage that noticed.
        stage: usize,
        /// The neighbour.
        side: Side,
        /// The link's reason.
        source: LinkError,
    },
    /// The system refused a thread.
    #[error("stage {stage}: cannot start a thread: {source}")]
    Thread {
        /// The stage.
        stage: usize,
        /// The system's reason.
        source: std::io::Error,
    },
}
