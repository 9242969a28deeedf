//! Nodes that are gone: found, and let go of.

use shared::ids::NodeName;
use shared::units::Micros;

use super::{Membership, Node, Presence};
use crate::settings::Bounds;

impl Membership {
    /// Nodes without a connection for too long, not yet found to be lost.
    #[must_use]
    pub fn overdue(&self, now: Micros, bounds: &Bounds) -> Vec<NodeName> {
        let nodes = self.nodes.iter().filter(|(name, node)| {
            !node.gone && self.presence(now, name, bounds) == Presence::Gone
        });
        nodes.map(|(name, _)| name.clone()).collect()
    }

    /// Nodes that were found to be lost or have left, and have no connection; the longest gone first.
    #[must_use]
    pub fn gone(&self) -> Vec<NodeName> {
        let nodes = self.nodes.iter();
        let gone = nodes.filter(|(_, node)| node.gone && node.link.is_none());
        let mut gone: Vec<_> = gone.map(|(name, node)| (node.left, name)).collect();
        gone.sort_unstable();
        gone.into_iter().map(|(_, name)| name.clone()).collect()
    }

    /// A node that is gone is as one that never came. One that is here stays.
    pub fn forget(&mut self, node: &NodeName) {
        let gone = |node: &Node| node.gone && node.link.is_none();
        if self.nodes.get(node).is_some_and(gone) {
            self.nodes.remove(node);
        }
        self.check();
    }
}
