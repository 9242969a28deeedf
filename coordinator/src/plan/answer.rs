//! The plan: for each replica its seats, its jobs and how they train together; who waits, who is refused.

use std::collections::BTreeMap;

use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::plan::{Plan as Orders, Replica as Order, Seat as Place};
use shared::units::{Bytes, Micros};

use super::admit::{Refusal, Wait};
use super::align::Chunk;
use super::arrange::Arrangement;
use super::place::Seats;

/// What [`solve`](super::solve::solve) answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By number, kept from plan to plan while the seats are the same.
    pub replicas: BTreeMap<u32, Replica>,
    /// Jobs that wait.
    pub waiting: BTreeMap<JobId, Wait>,
    /// Jobs that can never train on what is here.
    pub refused: BTreeMap<JobId, Refusal>,
}

/// One copy of the backbone and its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// From the embedding to the head.
    pub seats: Seats,
    /// Jobs that train, by id.
    pub jobs: Vec<JobId>,
    /// How they train together; places are those in `jobs`. Absent while there are none.
    pub arrangement: Option<Arrangement>,
    /// Predicted nanoseconds of a step while rounds follow each other; 0 while there are no jobs.
    pub round: u64,
    /// What each micro-batch has of each job, in the order of `jobs`.
    pub chunks: Vec<Vec<Chunk>>,
}

impl Replica {
    /// Predicted time of a step by itself: what plans are compared by.
    #[must_use]
    pub fn step(&self) -> Micros {
        let nanos = self.arrangement.as_ref().map_or(0, Arrangement::step);
        Micros(nanos.div_ceil(1000))
    }

    /// Predicted time of a step while rounds follow each other: what jobs will see.
    #[must_use]
    pub fn round(&self) -> Micros {
        Micros(self.round.div_ceil(1000))
    }

    /// Jobs that share passes.
    #[must_use]
    pub fn hybrid_tasks(&self) -> Vec<Vec<JobId>> {
        let groups = self.arrangement.iter().flat_map(|a| &a.hybrid_tasks);
        groups
            .map(|group| group.iter().map(|job| self.jobs[*job]).collect())
            .collect()
    }
}

impl Plan {
    /// The replica of a job that trains.
    #[must_use]
    pub fn replica_of(&self, job: JobId) -> Option<(u32, &Replica)> {
        let mut replicas = self.replicas.iter();
        replicas
            .find(|(_, replica)| replica.jobs.binary_search(&job).is_ok())
            .map(|(number, replica)| (*number, replica))
    }

    /// As the orders that gpu-actors obey.
    ///
    /// `addresses` says where nodes are reached; `least` is the least budget of activations, for a replica without jobs.
    #[must_use]
    pub fn orders(
        &self,
        epoch: PlanEpoch,
        addresses: &BTreeMap<NodeName, String>,
        least: Bytes,
    ) -> Orders {
        let place = |replica: &Replica, stage: usize| {
            let seat = &replica.seats[stage];
            let bytes = replica.arrangement.as_ref().map(|a| a.bytes[stage]);
            Place {
                node: seat.node.clone(),
                address: addresses.get(&seat.node).cloned().unwrap_or_default(),
                first_layer: seat.first as u32,
                end_layer: seat.end as u32,
                activation_budget: Bytes(bytes.unwrap_or(0).max(least.0)),
                recomputed_layers: 0,
            }
        };
        let order = |(number, replica): (&u32, &Replica)| Order {
            number: *number,
            seats: (0..replica.seats.len())
                .map(|stage| place(replica, stage))
                .collect(),
            jobs: replica.jobs.clone(),
            siblings: Vec::new(),
        };
        Orders {
            epoch,
            replicas: self.replicas.iter().map(order).collect(),
            sharing: Vec::new(),
        }
    }
}
