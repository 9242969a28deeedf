//! What a broker hears, and what it says is to be done.

use shared::ids::{JobId, NodeName};
use shared::units::Micros;
use shared::wire::market::MarketTold;

use super::kept::Kept;
use super::thought::{Answer, Question};
use super::told::{Decided, JobTold, NodeTold};
use crate::custody;
use crate::custody::record::Entry;
use crate::provider::{Sighting, Want};

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The provider showed what it offers.
    Sighted(Vec<Sighting>),
    /// The coordinator showed its nodes and jobs.
    Cluster {
        /// All nodes.
        nodes: Vec<NodeTold>,
        /// All jobs.
        jobs: Vec<JobTold>,
    },
    /// The coordinator does not answer: nothing is asked for until it does, or given up but beyond the budget or the grace (BR-4).
    Unheard,
    /// What the coordinator was to be told did not come to it: it is told again.
    Untold,
    /// Of a machine.
    Machine(custody::Event),
    /// A question was answered.
    Thought(Box<Answer>),
    /// Time passes.
    Tick,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep this durably, in the place of what was kept before, before anything that follows.
    Keep(Box<Kept>),
    /// Keep this durably before anything that follows.
    Record(Entry),
    /// Ask the provider for a machine.
    Acquire(Want),
    /// Tell the provider to end one.
    Release {
        /// The provider's name for it.
        id: String,
    },
    /// Ask the coordinator to take the work off a node.
    Drain {
        /// Which.
        node: NodeName,
        /// When it will be gone, by the steady clock; nothing when it is given up freely.
        until: Option<Micros>,
    },
    /// Ask the coordinator to give work to a node again.
    Undrain(NodeName),
    /// Tell the coordinator that the machine of a node may be taken, or no more.
    Risk {
        /// Which.
        node: NodeName,
        /// In the provider's words; nothing where that is over.
        cause: Option<String>,
    },
    /// Tell the coordinator what is offered and owed.
    Tell(Box<MarketTold>),
    /// Ask the coordinator to pause a job: its state is saved.
    Pause(JobId),
    /// Have this answered without waiting for it: [`Event::Thought`] has the answer.
    Think(Box<Question>),
    /// Keep and tell what was decided.
    Decided(Box<Decided>),
    /// Say aloud.
    Say {
        /// Whether somebody must look.
        alarm: bool,
        /// What.
        what: String,
    },
}
