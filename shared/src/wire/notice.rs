//! What a gpu-actor tells the coordinator.
//!
//! What must not be lost is numbered: it is kept until an order `Heard` says that the journal has it, and sent again
//! after a reconnection. The rest may be lost.

use serde::{Deserialize, Serialize};

use super::view::SpanView;
use crate::ids::{JobId, NodeName, PlanEpoch, Term};
use crate::job::Products;
use crate::life::Reason;
use crate::units::{Bytes, Micros};

/// What a node holds when it says hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Of this plan.
    pub epoch: PlanEpoch,
    /// The replica.
    pub replica: u32,
    /// The stage.
    pub stage: u32,
    /// Whether its links work.
    pub linked: bool,
    /// On a first stage: the jobs, each with its steps taken. One that ended here stays until its end is heard.
    pub jobs: Vec<(JobId, u64)>,
    /// Those of them that were told to halt, or are about to.
    pub paused: Vec<JobId>,
}

/// A node introduces itself, on every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its name; the certificate must say the same.
    pub node: NodeName,
    /// Differs from start to start of the process.
    pub incarnation: u64,
    /// Where neighbours reach it.
    pub address: String,
    /// Content hash of its backbone's identity: all nodes must have the same.
    pub backbone: String,
    /// How it computes products with frozen weights: all nodes must do the same.
    pub products: Products,
    /// Layers of its backbone.
    pub layers: u32,
    /// Memory it offers.
    pub memory: Bytes,
    /// Compute threads.
    pub threads: u32,
    /// Device and instruction set.
    pub device: String,
    /// The highest term heard.
    pub term: Term,
    /// What it holds.
    pub held: Option<Held>,
    /// Number of the first numbered notice that was not heard: it and all after it come on this connection, in order.
    pub unheard: u64,
    /// Its clock, since 1970.
    pub clock: Micros,
}

/// What happened to a job on its replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobNotice {
    /// It is on the backbone, at this step of so many.
    Admitted {
        /// Steps taken before.
        step: u64,
        /// Steps in all.
        total: u64,
    },
    /// It cannot be; nothing is left of it here.
    Refused(Reason),
    /// A step was taken.
    Step {
        /// Steps taken, this one included.
        step: u64,
        /// Loss before the step.
        loss: f64,
        /// Share of labelled tokens predicted right before the step.
        accuracy: f64,
        /// Norm before clipping.
        gradient_norm: f64,
        /// Of the step.
        learning_rate: f64,
        /// Tokens passed by the job so far.
        tokens: u64,
    },
    /// Held-out rows were measured.
    Evaluation {
        /// Steps taken.
        step: u64,
        /// Mean loss.
        loss: f64,
        /// Share of labelled tokens predicted right.
        accuracy: f64,
    },
    /// The state after a step is in the store, whole.
    Durable {
        /// The step.
        step: u64,
        /// Size of values and moments.
        bytes: Bytes,
    },
    /// It waits for an order.
    Paused {
        /// Steps taken.
        step: u64,
    },
    /// It trains again.
    Resumed,
    /// Its numbers are not finite; it is set aside, and the state of the step at which they broke is durable. Of its newest
    /// good state, if one is kept, `Salvaged` told.
    Quarantined {
        /// Steps taken.
        step: u64,
        /// What is not finite, where.
        reason: String,
    },
    /// It took its last step, or held-out loss stopped falling; the adapter is being written.
    Finished {
        /// Steps taken.
        step: u64,
        /// Whether before its last step.
        early: bool,
    },
    /// The adapter is in the store under these keys, each with its content hash and size.
    Exported {
        /// Key, sha256, size.
        files: Vec<(String, String, Bytes)>,
    },
    /// It is off the backbone; its last state is durable.
    Cancelled {
        /// Steps taken.
        step: u64,
    },
    /// It was taken up again from this durable step after a loss or move.
    Recovered {
        /// The step.
        step: u64,
    },
    /// It will be set aside: the adapter of its newest state that is known to be good is in the store under these keys, each
    /// with its content hash and size.
    Salvaged {
        /// Steps of that state.
        step: u64,
        /// Key, sha256, size.
        files: Vec<(String, String, Bytes)>,
    },
}

/// Why a node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaveCause {
    /// Its process was asked to end.
    Asked,
    /// Its machine is being taken away.
    Reclaimed,
}

impl std::fmt::Display for LeaveCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Asked => "it was asked to end",
            Self::Reclaimed => "its machine is being taken away",
        })
    }
}

/// A node goes, whether or not it is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// It stays for so long at most; 0: it goes at once.
    pub within: Micros,
    /// Why.
    pub cause: LeaveCause,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Notice {
    /// First on every connection.
    Hello(Hello),
    /// Every interval.
    Heartbeat {
        /// Since the device began the piece of work that it is at; 0: it is at none.
        device_age: Micros,
        /// Memory in use, counted as what is offered: for layers, adapters and activations, without the program itself.
        memory_used: Bytes,
        /// Tokens trained since the start of the process.
        tokens: u64,
    },
    /// The seat is open.
    Prepared {
        /// Of this plan.
        epoch: PlanEpoch,
        /// Why not.
        outcome: Result<(), String>,
    },
    /// The round is done and no other starts; all states are durable. Told again when they are, where they could not be.
    Drained {
        /// Of this plan.
        epoch: PlanEpoch,
        /// As ordered.
        toward: PlanEpoch,
        /// Why states are not durable.
        outcome: Result<(), String>,
    },
    /// The stage is held and linked.
    Holding {
        /// Of this plan.
        epoch: PlanEpoch,
        /// Why not.
        outcome: Result<(), String>,
    },
    /// The replica cannot go on: a neighbour is gone, or the stage itself failed.
    Broken {
        /// Of this plan.
        epoch: PlanEpoch,
        /// The neighbour that is to blame, if one is.
        neighbour: Option<NodeName>,
        /// What happened.
        reason: String,
    },
    /// About a job; numbered, kept until heard.
    Job {
        /// Grows from 1 within an incarnation; steps that a later step stands for may be left out.
        number: u64,
        /// Of this plan.
        epoch: PlanEpoch,
        /// The job.
        job: JobId,
        /// When, on the node's clock, since 1970.
        at: Micros,
        /// What.
        notice: JobNotice,
    },
    /// More tokens of a sample.
    Piece {
        /// The sample.
        number: u64,
        /// Token ids.
        tokens: Vec<u32>,
    },
    /// No more of them.
    SampleEnded {
        /// The sample.
        number: u64,
        /// Why it could not go on.
        outcome: Result<(), String>,
    },
    /// What the device did.
    Spans {
        /// The order's number.
        number: u64,
        /// In order of their start.
        spans: Vec<SpanView>,
    },
    /// An order was refused: of an older term or plan, or of no use here.
    Refused {
        /// The highest term heard.
        term: Term,
        /// What and why.
        reason: String,
    },
    /// The node goes soon: answered by `Stop` once it holds nothing. Told again on every connection, behind `Hello`.
    Leaving(Departure),
    /// The machine of the node may be taken, nothing more is known. Told again on every connection, behind `Hello`.
    AtRisk {
        /// In the words of its cloud; none: no more.
        cause: Option<String>,
    },
}
