//! Whether enough is known of the nodes to lay the cluster out.

use shared::ids::{NodeName, Term};

use super::Coordinator;
use crate::life::layout::Seats;
use crate::life::membership::Presence;

impl Coordinator {
    /// Whether enough is known of the nodes to decide.
    pub(super) fn may_move(&self) -> bool {
        let steady = self.now.steady;
        let bounds = &self.settings.bounds;
        if self.book.layout.replicas.is_empty() {
            let here = self
                .members
                .nodes()
                .filter(|(_, node)| node.link.is_some())
                .count();
            let late = steady.since(self.empty_since) >= self.settings.layout.settle;
            return here >= self.settings.layout.expect as usize || late;
        }
        let presence = |node: &NodeName| self.members.presence(steady, node, bounds);
        let away = self
            .book
            .layout
            .nodes()
            .iter()
            .any(|n| presence(n) == Presence::Away);
        !away && self.settling.is_empty()
    }

    /// Whether a plan of fewer replicas than stand waits: nothing broke, and nodes may yet come back to a leadership that
    /// has just begun. A notice that is too short for that ends its replica all the same. CL-8
    pub(super) fn waits_for_more(&self, target: &Seats) -> bool {
        let fewer = target.len() < self.book.layout.replicas.len();
        fewer && self.book.broken.is_empty() && self.is_young()
    }

    /// Whether nodes that the leadership before had may not have come yet.
    pub(super) fn is_young(&self) -> bool {
        let age = self.now.steady.since(self.members.began());
        self.book.term > Term(1) && age < self.settings.bounds.attach
    }
}
