//! Who keeps a replica from settling, and is left out of plans for a while. CL-6
//!
//! A node whose device hangs is heard as ever, and still never holds a seat; its neighbours say that they cannot link to
//! it. Who is at fault cannot be told from one failure: it may be who is silent, who complains, or the way between them.
//! So each of them has a strike, and of those with the most the silent go first. A seat that holds clears its node.

use std::collections::BTreeSet;

use shared::ids::NodeName;

use super::Coordinator;
use crate::life::placement::place;

impl Coordinator {
    /// A replica did not settle, by the word of a node or for want of any.
    pub(super) fn blame(&mut self, replica: u32, teller: Option<&NodeName>) {
        let Some(settling) = self.settling.get(&replica) else {
            return;
        };
        let mut suspects: Vec<NodeName> = settling.waiting().iter().cloned().collect();
        suspects.sort_by_key(|node| Some(node) == teller);
        for node in &suspects {
            *self.strikes.entry(node.clone()).or_default() += 1;
        }
        // The sort is stable: among equals the silent stay first.
        suspects.sort_by_key(|node| std::cmp::Reverse(self.strikes.get(node)));
        let left_out = suspects.into_iter().find(|node| self.is_spared(node));
        let until = self.now.steady.plus(self.settings.bounds.penalty);
        if let Some(node) = left_out.and_then(|node| self.members.get_mut(&node)) {
            node.unfit_until = until;
        }
    }

    /// All seats of a replica hold.
    pub(super) fn absolve(&mut self, replica: u32) {
        let seats = self.book.layout.replicas.get(&replica);
        let seats = seats.into_iter().flat_map(|standing| &standing.seats);
        let nodes: BTreeSet<NodeName> = seats.map(|seat| seat.node.clone()).collect();
        self.strikes.retain(|node, _| !nodes.contains(node));
        self.undrained.retain(|node, _| !nodes.contains(node));
    }

    /// Whether there is a plan of as many replicas without a node.
    fn is_spared(&self, node: &NodeName) -> bool {
        let mut snapshot = self.snapshot();
        snapshot.nodes.remove(node);
        let before = self.book.layout.seats();
        place(&snapshot, &before).is_ok_and(|target| target.len() >= before.len())
    }
}
