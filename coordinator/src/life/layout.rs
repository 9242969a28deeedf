//! The plan as the coordinator keeps it: seats by replica, and since which plan each replica stands as it is.
//!
//! A plan that changes one replica leaves the others alone: they go on under the epoch of the plan that seated them.
//! So every order to a replica, and every notice from it, bears the epoch in [`Standing::since`].
//!
//! Linked replicas are seated by one plan, and stand or fall together: a stage that loses a link gives up its post.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::plan::{Plan, Replica, Seat, Sharing, Sibling};

/// The seats of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The plan that seated it so.
    pub since: PlanEpoch,
    /// From the embedding to the head.
    pub seats: Vec<Seat>,
    /// The replicas that it is linked to, in the order of their numbers.
    #[serde(default)]
    pub linked: Vec<u32>,
}

/// Seats of replicas by their numbers.
pub type Seats = BTreeMap<u32, Vec<Seat>>;

/// The replicas that each is linked to; those that are linked to none may be left out.
pub type Links = BTreeMap<u32, Vec<u32>>;

/// Links all replicas of the same cut.
#[must_use]
pub fn links(seats: &Seats) -> Links {
    let cut = |seats: &[Seat]| -> Vec<_> { seats.iter().map(Seat::layers).collect() };
    let linked = |(number, own): (&u32, &Vec<Seat>)| {
        let others = seats
            .iter()
            .filter(|(other, seats)| *other != number && cut(seats) == cut(own));
        (*number, others.map(|(other, _)| *other).collect())
    };
    seats.iter().map(linked).collect()
}

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

    /// The replicas that one is linked to.
    #[must_use]
    pub fn linked(&self, replica: u32) -> &[u32] {
        let standing = self.replicas.get(&replica);
        standing.map_or(&[], |standing| &standing.linked)
    }

    /// A replica and those that it is linked to: they share steps.
    pub fn together(&self, replica: u32) -> impl Iterator<Item = u32> {
        std::iter::once(replica).chain(self.linked(replica).iter().copied())
    }

    /// The replicas that share the steps of a job that one of them leads and that asks for so many: the one that leads
    /// first, then the others in a circle. Empty when it is alone.
    #[must_use]
    pub fn sharing(&self, lead: u32, most: u32) -> Vec<u32> {
        let linked = self.linked(lead);
        let after = linked.iter().filter(|other| **other > lead);
        let before = linked.iter().filter(|other| **other < lead);
        let circle = std::iter::once(&lead).chain(after).chain(before);
        let all: Vec<u32> = circle.take(most as usize).copied().collect();
        if all.len() > 1 { all } else { Vec::new() }
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
    pub fn after(
        &self,
        epoch: PlanEpoch,
        target: &Seats,
        anew: &BTreeSet<u32>,
        links: &Links,
    ) -> Self {
        let standing = |(number, seats): (&u32, &Vec<Seat>)| {
            let before = self.replicas.get(number).filter(|_| !anew.contains(number));
            let standing = before.cloned().unwrap_or_else(|| Standing {
                since: epoch,
                seats: seats.clone(),
                linked: links.get(number).cloned().unwrap_or_default(),
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
            siblings: siblings(&self.seats(), self.linked(number)),
        })
    }

    /// The plan as it is shown.
    #[must_use]
    pub fn plan(&self, jobs: impl Fn(u32) -> Vec<JobId>, sharing: Vec<Sharing>) -> Plan {
        let numbers = self.replicas.keys();
        let replicas = numbers.filter_map(|number| self.replica(*number, jobs(*number)));
        Plan {
            epoch: self.epoch,
            replicas: replicas.collect(),
            sharing,
        }
    }
}

/// Linked replicas as orders name them.
pub(crate) fn siblings(seats: &Seats, linked: &[u32]) -> Vec<Sibling> {
    let sibling = |number: &u32| {
        let seats = seats.get(number)?.clone();
        Some(Sibling {
            number: *number,
            seats,
        })
    };
    linked.iter().filter_map(sibling).collect()
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
