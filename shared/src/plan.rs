//! What the coordinator makes and the gpu-actors obey: which node holds which layers, which jobs train there.
//!
//! A plan has an epoch; every order and chunk that belongs to one carries it, and what belongs to an older one is
//! refused. Within a replica the first stage leads: it forms the micro-batches, and the others follow.
//!
//! Replicas of the same cut may be *linked*, stage by stage; they can then share the steps of a job: one of them leads
//! it, and all compute some of its sequences.

pub mod arrangement;

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
    /// Of the layers held, the first so many keep only their input, and run forward again before their backward pass.
    pub recomputed_layers: u32,
}

impl Seat {
    /// The layers held.
    #[must_use]
    pub fn layers(&self) -> Range<usize> {
        self.first_layer as usize..self.end_layer as usize
    }

    /// What no seat can be, whatever the backbone.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let (first, end) = (self.first_layer, self.end_layer);
        if first >= end {
            return Some(format!(
                "the seat of node {} has layers {first} to {end}: a stage holds at least one",
                self.node
            ));
        }
        let (held, again) = (end - first, self.recomputed_layers);
        (again > held).then(|| {
            format!(
                "the seat of node {} recomputes {again} layers and holds {held}",
                self.node
            )
        })
    }
}

/// One copy of the backbone, cut into stages, and the jobs that train on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// From 0, kept from plan to plan.
    pub number: u32,
    /// From the embedding to the head.
    pub seats: Vec<Seat>,
    /// In the order of their ids: those that it leads.
    pub jobs: Vec<JobId>,
    /// Replicas that it is linked to, in the order of their numbers. They were seated by the same plan, and their seats
    /// have the same layers.
    pub siblings: Vec<Sibling>,
}

/// A replica that another one is linked to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sibling {
    /// Its number.
    pub number: u32,
    /// Its seats.
    pub seats: Vec<Seat>,
}

/// A job whose steps are shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// The job.
    pub job: JobId,
    /// Numbers of the replicas, the one that leads it first.
    pub replicas: Vec<u32>,
}

impl Replica {
    /// Why no node can take this stage.
    #[must_use]
    pub fn fault(&self, stage: u32) -> Option<String> {
        match self.seats.get(stage as usize) {
            Some(seat) => seat.fault(),
            None => Some(format!(
                "replica {} has {} stages, and none of number {stage}",
                self.number,
                self.seats.len()
            )),
        }
    }
}

/// The whole cluster at work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// One more than that of the plan before.
    pub epoch: PlanEpoch,
    /// In the order of their numbers.
    pub replicas: Vec<Replica>,
    /// Jobs whose steps several replicas share, in the order of their ids.
    pub sharing: Vec<Sharing>,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_seat_holds_layers_and_recomputes_no_more_than_these() {
        let seat = |first_layer, end_layer, recomputed_layers| Seat {
            node: NodeName::new("n1").unwrap(),
            address: "127.0.0.1:1".into(),
            first_layer,
            end_layer,
            activation_budget: Bytes(1),
            recomputed_layers,
        };
        for again in [0, 1, 3] {
            assert_eq!(seat(2, 5, again).fault(), None);
        }
        let many = seat(2, 5, 4).fault().unwrap();
        assert!(
            many.contains("n1 recomputes 4 layers and holds 3"),
            "{many}"
        );
        for (first, end) in [(2, 2), (3, 2)] {
            let none = seat(first, end, 0).fault().unwrap();
            assert!(none.contains("at least one"), "{none}");
        }
    }
}
