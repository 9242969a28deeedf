//! Layers to nodes: each replica of the backbone is cut into contiguous stages.
//!
//! What stands is kept: a seat whose node is here stays as it is. A vacant seat goes to a spare node; without one, the
//! replica is cut anew over the nodes it still has, or, where the number of stages is fixed, a broken replica is
//! given up and its nodes are spares for the others. The same question has the same answer.
//!
//! | id | invariant |
//! | --- | --- |
//! | PM-1 | the seats of a replica cover all layers once, in order |
//! | PM-2 | a node has at most one seat |
//! | PM-3 | a seat's layers and activations fit the memory that its node offers |
//! | PM-4 | a seat whose node stands is kept, unless its replica must be cut anew |
//!
//! A planner that mixes jobs by cost would come in here: same snapshot, same answer type.

mod cut;
mod vacancy;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use shared::ids::NodeName;
use shared::plan::Seat;
use shared::recompute::Recompute;
use shared::units::Bytes;
use thiserror::Error;

use super::layout::Seats;

/// Size and work of one layer, or of the embedding or the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Bytes that a node needs to hold it.
    pub bytes: u64,
    /// Work per token, in any unit.
    pub compute: u64,
}

/// Sizes and work of a backbone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Held with the first layer.
    pub embedding: Load,
    /// Of each layer.
    pub layers: Vec<Load>,
    /// Norm and head, held with the last layer.
    pub head: Load,
}

impl Weights {
    /// Of a range of layers.
    #[must_use]
    pub fn of(&self, layers: Range<usize>) -> Load {
        let mut sum = Load::default();
        let first = (layers.start == 0).then_some(&self.embedding);
        let last = (layers.end == self.layers.len()).then_some(&self.head);
        let inner = self.layers.get(layers).unwrap_or_default();
        for load in inner.iter().chain(first).chain(last) {
            sum.bytes = sum.bytes.saturating_add(load.bytes);
            sum.compute = sum.compute.saturating_add(load.compute);
        }
        sum
    }
}

/// How many stages a replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// So many, always.
    Fixed(u32),
    /// As many as there are nodes when it is first cut.
    AllNodes,
}

/// A node that may have a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Where its neighbours reach it.
    pub address: String,
    /// Memory it offers.
    pub memory: Bytes,
    /// Compute threads.
    pub threads: u32,
    /// What its device takes, where that is measured.
    pub pace: Option<Pace>,
}

/// What a device takes of a pass, forward and backward, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The embedding.
    pub embedding: u64,
    /// One layer.
    pub layer: u64,
    /// Norm, head and loss.
    pub head: u64,
}

impl Pace {
    /// Nanoseconds of a range of so many layers.
    #[must_use]
    pub fn of(&self, range: &Range<usize>, layers: usize) -> u64 {
        let embedding = if range.start == 0 { self.embedding } else { 0 };
        let head = if range.end == layers { self.head } else { 0 };
        (range.len() as u64)
            .saturating_mul(self.layer)
            .saturating_add(embedding)
            .saturating_add(head)
    }
}

/// What is to be placed, and where it may go.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// The backbone.
    pub weights: &'a Weights,
    /// Nodes that may have seats.
    pub nodes: BTreeMap<NodeName, Room>,
    /// Stages of a replica.
    pub stages: Stages,
    /// Copies wanted.
    pub replicas: u32,
    /// Most bytes of activations held by a stage.
    pub activation_budget: Bytes,
    /// Layers of a stage that keep no activations.
    pub recompute: Recompute,
}

/// Why there is no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoPlace {
    /// Not even one replica.
    #[error(
        "plan.stages = {needed} needs as many nodes, but {here} can have work: start more, undo a drain \
         (spotmux drain NODE --undo), or lower it"
    )]
    TooFewNodes {
        /// Stages of one replica.
        needed: u32,
        /// Nodes that may have seats.
        here: u32,
    },
    /// Fewer replicas than are wanted.
    #[error(
        "one more replica than the {standing} of plan.replicas = {wanted} needs {needed} nodes, and {here} are free: \
         start more, undo a drain (spotmux drain NODE --undo), or lower plan.replicas"
    )]
    TooFewSpare {
        /// Replicas that have a place.
        standing: u32,
        /// Replicas wanted.
        wanted: u32,
        /// Stages of one replica.
        needed: u32,
        /// Nodes that may have seats and have none.
        here: u32,
    },
    /// No stage.
    #[error(
        "plan.stages = 0 leaves nobody to hold the {layers} layers: set it to 1 to {layers}, or to all"
    )]
    NoStage {
        /// Layers there are.
        layers: u32,
    },
    /// More stages than layers.
    #[error("plan.stages = {stages} is more than the {layers} layers of the backbone: lower it")]
    TooManyStages {
        /// Stages asked for.
        stages: u32,
        /// Layers there are.
        layers: u32,
    },
    /// The memory of the nodes is too small.
    #[error(
        "the backbone needs {needed} with activations over {stages} stages, and the nodes ({nodes}) offer {offered} \
         in all, cut by whole layers: raise gpu_actor.memory_mib or node.memory_mib, add nodes, or lower \
         plan.activation_budget_mib ({budget})"
    )]
    TooBig {
        /// Of layers and activations.
        needed: Bytes,
        /// Stages.
        stages: u32,
        /// Names of the nodes.
        nodes: String,
        /// Their memory.
        offered: Bytes,
        /// Of activations, for each stage.
        budget: Bytes,
    },
    /// A node that was named cannot take a seat.
    #[error(
        "node {node} offers {offered}, and the stage needs {needed}: choose another or raise its node.memory_mib"
    )]
    TooSmall {
        /// The node.
        node: NodeName,
        /// Its memory.
        offered: Bytes,
        /// Of the stage.
        needed: Bytes,
    },
}

impl Snapshot<'_> {
    /// Bytes that a seat needs.
    #[must_use]
    pub fn needed(&self, layers: Range<usize>) -> Bytes {
        let bytes = self.weights.of(layers).bytes;
        Bytes(bytes.saturating_add(self.activation_budget.0))
    }

    fn seat(&self, node: &NodeName, layers: Range<usize>) -> Seat {
        let room = self.nodes.get(node);
        Seat {
            node: node.clone(),
            address: room.map(|room| room.address.clone()).unwrap_or_default(),
            first_layer: layers.start as u32,
            end_layer: layers.end as u32,
            activation_budget: self.activation_budget,
            recomputed_layers: self.recompute.of(layers.len()) as u32,
        }
    }

    /// Whether a seat may stay: its node is here, at the same address.
    fn stands(&self, seat: &Seat) -> bool {
        let room = self.nodes.get(&seat.node);
        room.is_some_and(|room| room.address == seat.address)
    }

    /// Puts one node in the place of another.
    ///
    /// # Errors
    /// [`NoPlace::TooSmall`] when the seat does not fit.
    pub fn swap(&self, previous: &Seats, from: &NodeName, to: &NodeName) -> Result<Seats, NoPlace> {
        let mut seats = previous.clone();
        for seat in seats.values_mut().flatten() {
            if seat.node == *from {
                let needed = self.needed(seat.layers());
                let offered = self.nodes.get(to).map_or(Bytes(0), |room| room.memory);
                if needed > offered {
                    let node = to.clone();
                    return Err(NoPlace::TooSmall {
                        node,
                        offered,
                        needed,
                    });
                }
                *seat = self.seat(to, seat.layers());
            }
        }
        Ok(seats)
    }
}

/// Lays out the cluster, keeping what stands.
///
/// # Errors
/// [`NoPlace`] when not even one replica has a place.
pub fn place(snapshot: &Snapshot<'_>, previous: &Seats) -> Result<Seats, NoPlace> {
    let layers = snapshot.weights.layers.len() as u32;
    match snapshot.stages {
        Stages::Fixed(0) => return Err(NoPlace::NoStage { layers }),
        Stages::Fixed(stages) if stages > layers => {
            return Err(NoPlace::TooManyStages { stages, layers });
        }
        _ => {}
    }
    let mut seats = vacancy::keep(snapshot, previous);
    let grown = vacancy::grow(snapshot, &mut seats);
    check(snapshot, &seats);
    match grown {
        Err(why) if seats.is_empty() => Err(why),
        _ => Ok(seats),
    }
}

/// Why these seats are of fewer replicas than are wanted; nothing when they are not.
#[must_use]
pub fn lacking(snapshot: &Snapshot<'_>, seats: &Seats) -> Option<NoPlace> {
    vacancy::grow(snapshot, &mut seats.clone()).err()
}

fn check(snapshot: &Snapshot<'_>, seats: &Seats) {
    let layers = snapshot.weights.layers.len() as u32;
    for replica in seats.values() {
        let ends = replica.iter().map(|seat| seat.end_layer);
        let starts = replica.iter().map(|seat| seat.first_layer);
        debug_assert!(
            std::iter::once(0)
                .chain(ends)
                .eq(starts.chain(std::iter::once(layers))),
            "PM-1"
        );
    }
    let nodes: Vec<_> = seats.values().flatten().map(|seat| &seat.node).collect();
    let once: std::collections::BTreeSet<_> = nodes.iter().collect();
    debug_assert!(once.len() == nodes.len(), "PM-2");
}
