//! The first frame of every stream: what the stream is.

use serde::{Deserialize, Serialize};

use crate::ids::PlanEpoch;

/// The chunks of two neighbouring stages of a replica, which the stage before opens; or of the same stage of two linked
/// replicas, which the lower number opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkOpening {
    /// The plan that both follow.
    pub epoch: PlanEpoch,
    /// The replica of the one who opens.
    pub from_replica: u32,
    /// The replica of the one who is asked.
    pub replica: u32,
    /// The stage of the one who opens.
    pub from_stage: u32,
    /// The stage of the one who is asked.
    pub to_stage: u32,
    /// Chunks that may be under way each way, not taken yet; both sides must say the same.
    pub credits: u32,
    /// Whether values travel as bf16; both sides must say the same.
    pub narrow: bool,
}

/// What a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// One [`Request`](super::request::Request) and the replies to it.
    Request,
    /// A gpu-actor's [`Notice`](super::notice::Notice)s one way, the coordinator's
    /// [`Ordered`](super::order::Ordered) the other, for as long as the connection lasts.
    Node,
    /// Chunks between stages.
    Link(LinkOpening),
}
