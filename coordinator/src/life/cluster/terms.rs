//! Nodes that obeyed a newer leadership than this one.
//!
//! Their word deposes nobody: a number that one process names, by fault or on purpose, would end the cluster. Who leads is
//! decided by the journal alone, whose lease a newer leadership has taken: the older one ends at its next write or
//! renewal. So only the connection of that node is closed, again on each of its connections, and it is told once.
//!
//! Where no other leads, the journal was put back to a state of before. A process of a node remembers terms for as
//! long as it runs, so one that is started again is let in.

use shared::ids::{NodeName, Term};

use super::Coordinator;
use crate::life::membership::LinkId;
use crate::record::Change;

impl Coordinator {
    /// Closes the connection of a node that obeyed a newer leadership.
    pub(super) fn send_away(&mut self, link: LinkId, node: NodeName, term: Term) {
        let ours = self.book.term;
        let reason = format!(
            "{node} obeyed a leadership of term {term}, and this one is of term {ours}: its connection is closed. If \
             another coordinator leads on this journal, this one ends at its next write. If the journal was restored from \
             a backup, end the process of {node} and start it again: its jobs go on from their durable steps"
        );
        self.close(link, reason.clone());
        if self.ahead.insert(node.clone()) {
            self.record(Change::NodeAhead { node, term, reason });
        }
    }
}
