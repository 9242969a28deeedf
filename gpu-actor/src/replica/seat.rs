//! Where a stage sits, and what it is given to work with.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::watch::Watch;
use crate::artifacts::Artifacts;
use crate::artifacts::keeper::Keeper;
use crate::link::ChunkLink;
use crate::link::bell::Bell;
use crate::pipeline::Place;

/// A stage's place and limits.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The stage and how many there are.
    pub place: Place,
    /// Number of its replica.
    pub replica: u32,
    /// Number of the plan that all stages follow.
    pub epoch: u64,
    /// Most bytes of activations held.
    pub budget: u64,
    /// Layers, from the first held, that keep no activations and run forward again.
    pub recomputed: usize,
    /// How long nothing may move, while there is work, before the stage says what it waits for. Longer than the longest
    /// pass of any stage.
    pub patience: Duration,
    /// Held while one computes, when stages share a single thread.
    pub turn: Option<Arc<Mutex<()>>>,
}

impl Seat {
    /// A seat without a budget and with a minute's patience.
    #[must_use]
    pub fn new(place: Place, epoch: u64) -> Self {
        Self {
            place,
            replica: 0,
            epoch,
            budget: u64::MAX,
            recomputed: 0,
            patience: Duration::from_secs(60),
            turn: None,
        }
    }
}

/// How a lead forms micro-batches; none of it shows in a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadSettings {
    /// Most rows of a micro-batch.
    pub tokens_per_pass: usize,
    /// Sequences of more rows pass in chunks of at most so many.
    pub chunk_tokens: usize,
    /// Rows below which no micro-batch is cut to fill the pipeline.
    pub least_rows: usize,
    /// Rounds planned before the oldest is done.
    pub ahead: usize,
    /// Micro-batches under way at once, at least two for each stage and two more, and two more than the plan lets the first
    /// stage hold. A drain waits for them.
    pub window: usize,
    /// Leadership, written into manifests.
    pub term: u64,
}

impl LeadSettings {
    /// Passes of at most so many rows, three rounds ahead.
    #[must_use]
    pub fn new(tokens_per_pass: usize) -> Self {
        Self {
            tokens_per_pass,
            chunk_tokens: tokens_per_pass,
            least_rows: 64,
            ahead: 3,
            window: 4,
            term: 0,
        }
    }
}

/// What connects a stage with everything else.
pub struct Ports {
    /// To the stage before and to the stage behind.
    pub links: [Option<Box<dyn ChunkLink>>; 2],
    /// To the same stage of other replicas, by their numbers; values go unchanged on these.
    pub peers: BTreeMap<u32, Box<dyn ChunkLink>>,
    /// What links and keeper ring.
    pub bell: Bell,
    /// Stores states.
    pub keeper: Box<dyn Keeper>,
    /// To read states from.
    pub store: Arc<dyn Artifacts>,
    /// Is told what the device does.
    pub watch: Watch,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = self.links.each_ref().map(Option::is_some);
        f.debug_struct("Ports")
            .field("links", &links)
            .field("peers", &self.peers.keys())
            .finish_non_exhaustive()
    }
}
