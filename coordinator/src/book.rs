//! What the journal says, taken together: all that outlives the coordinator.
//!
//! | id | invariant |
//! | --- | --- |
//! | BK-1 | records are taken in the order of their numbers, none twice, none left out |
//! | BK-2 | epochs and terms only grow |
//! | BK-3 | a notice of a node changes the book at most once |

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::ids::{EventNumber, NodeName, PlanEpoch, Term};
use shared::units::Micros;
use shared::wire::notice::LeaveCause;
use thiserror::Error;

use crate::life::layout::Layout;
use crate::life::ledger::Ledger;
use crate::record::{Change, Record};

/// All that outlives the coordinator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Book {
    /// The jobs.
    pub ledger: Ledger,
    /// The plan in force.
    pub layout: Layout,
    /// Replicas of it that cannot go on as they are.
    pub broken: BTreeSet<u32>,
    /// Nodes that shall be empty.
    pub draining: BTreeSet<NodeName>,
    /// Nodes that said that they go; absent in snapshots of before.
    #[serde(default)]
    pub going: BTreeMap<NodeName, Going>,
    /// The newest numbered notice of each node, and of which of its processes.
    pub heard: BTreeMap<NodeName, (u64, u64)>,
    /// The highest epoch given to any plan, in force or not.
    pub last_epoch: PlanEpoch,
    /// The plan being prepared.
    pub moving: Option<PlanEpoch>,
    /// The newest leadership.
    pub term: Term,
    /// The newest record.
    pub last: EventNumber,
}

/// A node that said that it goes, or of which it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Going {
    /// Of its process: another of the same name does not go.
    pub incarnation: u64,
    /// It stays until then, since 1970.
    pub until: Micros,
    /// For so long when it was told.
    pub within: Micros,
    /// Why.
    pub cause: LeaveCause,
}

/// A journal that is not whole.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "record {found} of the journal follows {last}: records are missing or doubled; restore the journal from a backup"
)]
pub struct Gap {
    /// The record before.
    pub last: EventNumber,
    /// The one that came.
    pub found: EventNumber,
}

impl Book {
    /// Takes the next record.
    ///
    /// # Errors
    /// [`Gap`] when it is not the next; the book is as before.
    pub fn apply(&mut self, record: &Record) -> Result<(), Gap> {
        // BK-1
        if record.number != self.last.next() {
            return Err(Gap {
                last: self.last,
                found: record.number,
            });
        }
        self.last = record.number;
        self.ledger.apply(record.at, &record.change);
        match &record.change {
            Change::Began { term } => {
                debug_assert!(*term > self.term, "BK-2");
                self.term = *term;
            }
            Change::Heard { from, .. } => {
                let heard = (from.incarnation, from.number);
                let before = self.heard.insert(from.node.clone(), heard);
                debug_assert!(
                    before.is_none_or(|(process, n)| process != heard.0 || n < heard.1),
                    "BK-3"
                );
            }
            Change::Broken { replica, .. } => {
                self.broken.insert(*replica);
            }
            Change::MoveStarted { epoch, .. } => {
                debug_assert!(*epoch > self.last_epoch, "BK-2");
                self.last_epoch = *epoch;
                self.moving = Some(*epoch);
            }
            Change::MoveCalledOff { .. } => self.moving = None,
            Change::InForce { layout } => {
                debug_assert!(layout.epoch > self.layout.epoch, "BK-2");
                self.last_epoch = self.last_epoch.max(layout.epoch);
                self.layout = layout.clone();
                self.broken.clear();
                self.moving = None;
            }
            Change::DrainAsked { node, undo: true } => {
                self.draining.remove(node);
            }
            Change::DrainAsked { node, undo: false } => {
                self.draining.insert(node.clone());
            }
            Change::NodeLeaving {
                node,
                within,
                cause,
                incarnation,
            } => {
                let going = Going {
                    incarnation: *incarnation,
                    until: record.at.plus(*within),
                    within: *within,
                    cause: *cause,
                };
                self.going.insert(node.clone(), going);
            }
            Change::NodeJoined { node, incarnation } => {
                let going = self.going.get(node);
                if going.is_some_and(|going| going.incarnation != *incarnation) {
                    self.going.remove(node);
                }
            }
            Change::NodeLeft { node } | Change::NodeLost { node, .. } => {
                self.going.remove(node);
            }
            Change::Forgotten { nodes, .. } => {
                for node in nodes {
                    self.heard.remove(node);
                    self.going.remove(node);
                    self.draining.remove(node);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The newest notice of a process of a node that the journal has.
    #[must_use]
    pub fn heard_of(&self, node: &NodeName, incarnation: u64) -> u64 {
        match self.heard.get(node) {
            Some((process, number)) if *process == incarnation => *number,
            _ => 0,
        }
    }
}
