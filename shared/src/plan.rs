//! What the coordinator makes and the gpu-actors obey: which node holds which layers, which jobs train there.
//!
//! A plan has an epoch; every order and chunk that belongs to one carries it, and what belongs to an older one is
//! refused. Within a replica the first stage leads: it forms the micro-batches, and the others follow.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeName, PlanEpoch};
use crate::units::Bytes;

/// One stage of a replica and who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The node.
    pub node: NodeName,
    /// Where its neighbours reach it: host and port.
    pub address: String,
    /// First layer held; the embedding belongs to layer 0.
    pub first_layer: u32,
    /// One after the last layer held; norm and head belong to the last layer.
    pub end_layer: u32,
    /// Most bytes of activations held at once.
    pub activation_budget: Bytes,
}

impl Seat {
    /// The layers held.
    #[must_use]
    pub fn layers(&self) -> Range<usize> {
        self.first_layer as usize..self.end_layer as usize
    }
}

/// One copy of the backbone, cut into stages, and the jobs that train on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// From 0, kept from plan to plan.
    pub number: u32,
    /// From the embedding to the head.
    pub seats: Vec<Seat>,
    /// In the order of their ids.
    pub jobs: Vec<JobId>,
}

/// The whole cluster at work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// One more than that of the plan before.
    pub epoch: PlanEpoch,
    /// In the order of their numbers.
    pub replicas: Vec<Replica>,
}

impl Plan {
    /// The replica and stage of a node, if it holds one.
    #[must_use]
    pub fn place_of(&self, node: &NodeName) -> Option<(&Replica, usize)> {
        self.replicas.iter().find_map(|replica| {
            let stage = replica.seats.iter().position(|seat| seat.node == *node)?;
            Some((replica, stage))
        })
    }
}
