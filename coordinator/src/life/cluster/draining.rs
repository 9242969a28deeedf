//! Drains that do not come to their end: a first stage that does not heed one, and a store that does not take what it
//! gives.
//!
//! One that hangs would be asked for ever. So after `bounds.drain_tries` in a row its replica is broken, as if it were
//! lost: what it knew beyond its durable states is given up, and told. CL-11
//!
//! A store that does not answer is no reason for that: what is not durable would be lost, and could not be read either.
//! The move is tried again, each time later.

use shared::ids::{NodeName, PlanEpoch};
use shared::wire::order::Order;

use super::Coordinator;
use super::closing::THE_END;
use crate::life::transition::{Event, Fault, Move, Phase};
use crate::record::Change;

impl Coordinator {
    /// Tells a first stage to end its steps, and whether to store in haste what is whole before they end: where a node
    /// that shares these steps may go first, or where they did not end in time before.
    pub(super) fn send_drain(&mut self, lead: &NodeName, epoch: PlanEpoch, toward: PlanEpoch) {
        let place = self.book.layout.place_of(lead);
        let sharing = place
            .into_iter()
            .flat_map(|(replica, _)| self.book.layout.together(replica));
        let seats = sharing.filter_map(|replica| {
            let standing = self.book.layout.replicas.get(&replica)?;
            Some(&standing.seats)
        });
        let leaves = seats.flatten().any(|seat| self.is_leaving(&seat.node));
        let drain = Order::Drain {
            epoch,
            toward,
            soon: leaves || self.undrained.contains_key(lead),
        };
        self.send(lead, drain);
    }

    /// A node leaves: drains of the replicas that share its steps and are under way are told so.
    pub(super) fn press_drain(&mut self, node: &NodeName) {
        let Some((replica, _)) = self.book.layout.place_of(node) else {
            return;
        };
        let sharing: Vec<u32> = self.book.layout.together(replica).collect();
        for replica in sharing {
            let Some((lead, epoch)) = self.lead(replica) else {
                continue;
            };
            self.save_again(&lead, epoch);
            let drains = |moving: &Move| moving.phase() == Phase::Draining;
            if self.moving.as_ref().is_some_and(drains) {
                self.step_move(Event::Returned(lead));
            }
        }
    }

    /// A first stage ended its round, or says why that is not durable.
    pub(super) fn drained(
        &mut self,
        node: NodeName,
        [epoch, toward]: [PlanEpoch; 2],
        outcome: Result<(), String>,
    ) {
        self.undrained.remove(&node);
        match &outcome {
            Ok(()) if toward == THE_END => self.saved(&node, epoch),
            Err(reason) if toward == THE_END => {
                let (node, reason) = (node.clone(), reason.clone());
                self.record(Change::NotDurable { node, reason });
            }
            _ => {}
        }
        self.step_move(Event::Drained(node, toward, outcome));
    }

    /// A move was called off; what that says of those it waited for.
    pub(super) fn note_fault(&mut self, fault: Fault) {
        match fault {
            Fault::None => {}
            Fault::Unstored => {
                self.unstored = self.unstored.saturating_add(1);
                let wait = self.settings.bounds.again.after(self.unstored);
                self.retry_at = self.retry_at.max(self.now.steady.plus(wait));
            }
            Fault::Undrained(nodes) => {
                for node in nodes {
                    self.note_undrained(node);
                }
            }
        }
    }

    fn note_undrained(&mut self, node: NodeName) {
        let Some((replica, _)) = self.book.layout.place_of(&node) else {
            return;
        };
        let tries = self.undrained.entry(node.clone()).or_default();
        *tries += 1;
        let tries = *tries;
        if tries >= self.settings.bounds.drain_tries {
            self.undrained.remove(&node);
            let bound = self.settings.bounds.drain;
            let reason = format!(
                "{node} did not end its steps within {bound}, {tries} times in a row: its jobs go on from their \
                 durable steps"
            );
            self.break_up(replica, &reason);
        }
    }
}
