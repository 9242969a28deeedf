//! The plan as the coordinator keeps it: seats by replica, and since which plan each replica stands as it is.
//!
//! A plan that changes one replica leaves the others alone: they go on under the epoch of the plan that seated them.
//! So every order to a replica, and every notice from it, bears the epoch in [`Standing::since`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::plan::{Plan, Replica, Seat};

/// The seats of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The plan that seated it so.
    pub since: PlanEpoch,
    /// From the embedding to the head.
    pub seats: Vec<Seat>,
}

/// Seats of replicas by their numbers.
pub type Seats = BTreeMap<u32, Vec<Seat>>;

/// All replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Of the newest plan.
    pub epoch: PlanEpoch,
    /// By number.
    pub replicas: BTreeMap<u32, Standing>,
}

impl Layout {
    /// The replica and stage of a node.
    #[must_use]
    pub fn place_of(&self, node: &NodeName) -> Option<(u32, u32)> {
        self.replicas.iter().find_map(|(number, standing)| {
            let stage = standing.seats.iter().position(|seat| seat.node == *node)?;
            Some((*number, stage as u32))
        })
    }

    /// The first stage of a replica.
    #[must_use]
    pub fn lead(&self, replica: u32) -> Option<&NodeName> {
        let first = self.replicas.get(&replica)?.seats.first()?;
        Some(&first.node)
    }

    /// All nodes with a seat.
    #[must_use]
    pub fn nodes(&self) -> BTreeSet<NodeName> {
        let seats = self.replicas.values().flat_map(|standing| &standing.seats);
        seats.map(|seat| seat.node.clone()).collect()
    }

    /// The seats alone.
    #[must_use]
    pub fn seats(&self) -> Seats {
        let seats = self.replicas.iter();
        seats
            .map(|(n, standing)| (*n, standing.seats.clone()))
            .collect()
    }

    /// The layout after a plan that seats some replicas anew and leaves the others alone; one that is in neither
    /// ends.
    #[must_use]
    pub fn after(&self, epoch: PlanEpoch, target: &Seats, anew: &BTreeSet<u32>) -> Self {
        let standing = |(number, seats): (&u32, &Vec<Seat>)| {
            let before = self.replicas.get(number).filter(|_| !anew.contains(number));
            let standing = before.cloned().unwrap_or_else(|| Standing {
                since: epoch,
                seats: seats.clone(),
            });
            (*number, standing)
        };
        Self {
            epoch,
            replicas: target.iter().map(standing).collect(),
        }
    }

    /// A replica as orders name it.
    #[must_use]
    pub fn replica(&self, number: u32, jobs: Vec<JobId>) -> Option<Replica> {
        let seats = self.replicas.get(&number)?.seats.clone();
        Some(Replica {
            number,
            seats,
            jobs,
        })
    }

    /// The plan as it is shown.
    #[must_use]
    pub fn plan(&self, jobs: impl Fn(u32) -> Vec<JobId>) -> Plan {
        let replica = |(number, standing): (&u32, &Standing)| Replica {
            number: *number,
            seats: standing.seats.clone(),
            jobs: jobs(*number),
        };
        Plan {
            epoch: self.epoch,
            replicas: self.replicas.iter().map(replica).collect(),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.replicas.is_empty() {
            return f.write_str("no replica");
        }
        for (at, (number, standing)) in self.replicas.iter().enumerate() {
            let comma = if at == 0 { "" } else { "; " };
            write!(f, "{comma}replica {number} =")?;
            for seat in &standing.seats {
                write!(
                    f,
                    " {}[{}..{}]",
                    seat.node, seat.first_layer, seat.end_layer
                )?;
            }
        }
        Ok(())
    }
}
