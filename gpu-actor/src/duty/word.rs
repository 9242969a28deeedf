//! What a node's duty is told, and what it says is to be done.

use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::plan::arrangement::Arrangement;
use shared::units::Micros;
use shared::wire::notice::{Departure, JobNotice, Notice};
use shared::wire::order::{JobAction, JobOrder, Ordered, SampleOrder};
use shared::wire::view::SpanView;

use super::post::Post;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The coordinator is reached.
    Connected,
    /// The coordinator is no longer reached.
    Disconnected,
    /// It ordered something.
    Ordered(Ordered),
    /// The process is to end: told again after each [`Event::Connected`].
    Leaving(Departure),
    /// The machine may be taken, for this cause, or no more.
    AtRisk(Option<String>),
    /// The layers of a post are open, or cannot be.
    Opened(PlanEpoch, Result<(), String>),
    /// A post is held and linked to its neighbours, or cannot be.
    Linked(PlanEpoch, Result<(), String>),
    /// The lead has finished under a plan, toward another, and starts nothing more; or why its states are not durable.
    Drained([PlanEpoch; 2], Result<(), String>),
    /// The post cannot go on.
    Broken(PlanEpoch, Option<NodeName>, String),
    /// Something happened to a job.
    Job(PlanEpoch, JobId, Micros, JobNotice),
    /// Tokens of a sample.
    Piece(u64, Vec<u32>),
    /// The end of a sample.
    SampleEnded(u64, Result<(), String>),
    /// What the device did, by the number of the order.
    Spans(u64, Vec<SpanView>),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell the coordinator.
    Tell(Notice),
    /// Open a post's layers beside what is held.
    Open(Post),
    /// Let go of what is held, and take this post; its layers may be open already.
    Take(Post),
    /// Let go of what is held and open.
    LetGo,
    /// Jobs for the lead.
    Admit(Vec<JobOrder>),
    /// An action for the lead.
    Act(JobId, JobAction),
    /// The lead ends the steps it has begun, and starts no other.
    Drain {
        /// The plan to come.
        toward: PlanEpoch,
        /// Whether a machine may go before they end.
        soon: bool,
    },
    /// The lead goes on.
    Undrain,
    /// How the lead's jobs train together.
    Arrange(Arrangement),
    /// The lead stores states after so many steps at most; 0: as its jobs ask.
    Hasten(u64),
    /// A sample for the lead.
    Sample(SampleOrder),
    /// Nobody waits for this sample any more.
    EndSample(u64),
    /// Say what the device did for a step.
    Trace {
        /// Number of the order.
        number: u64,
        /// The job.
        job: Option<JobId>,
        /// Its step.
        step: Option<u64>,
    },
    /// Save, close and end the process.
    Stop,
}
