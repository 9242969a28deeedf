//! What is kept of jobs that ended and of nodes that are gone: the newest, up to a bound. Else the book, its snapshots, the
//! membership and every list that is shown would grow for as long as the cluster lives.
//!
//! That they are let go of is a change like any other, so that a journal that is replayed under another bound comes to the
//! same. Events of jobs that are known no more, and what they stored, stay: the journal and the store of artifacts have
//! them by the id of the job.
//!
//! | id | invariant |
//! | --- | --- |
//! | KP-1 | no job that has not ended, no node that is here, may come back or has a seat, is let go of |
//! | KP-2 | ids of jobs that were let go of are not given again |

use std::collections::BTreeSet;

use shared::ids::NodeName;

use super::Coordinator;
use crate::record::Change;

/// Most of each kind that one record lets go of; the rest goes with the next.
const AT_ONCE: usize = 1_000;

impl Coordinator {
    /// Lets go of the oldest of what is beyond the bounds.
    pub(super) fn let_go_of_old(&mut self) {
        let limits = &self.settings.limits;
        let ended = self.book.ledger.ended_beyond(limits.ended_jobs_kept);
        let jobs: Vec<_> = ended.into_iter().take(AT_ONCE).collect();
        let nodes = self.gone_beyond(limits.gone_nodes_kept);
        if jobs.is_empty() && nodes.is_empty() {
            return;
        }
        for job in &jobs {
            self.market.forget(*job);
        }
        for node in &nodes {
            self.members.forget(node);
            self.holding.remove(node);
            self.strikes.remove(node);
            self.undrained.remove(node);
            self.risks.forget(node);
            self.forget_strain(node);
        }
        self.record(Change::Forgotten { jobs, nodes });
    }

    /// Nodes that are gone, the longest gone first, without the newest of them. KP-1
    fn gone_beyond(&self, kept: usize) -> Vec<NodeName> {
        let now = self.now.steady;
        let mut gone = self.members.gone();
        // Who was told of in the journal and did not come back to this leadership went before all of those.
        let late = now.since(self.members.began()) >= self.settings.bounds.attach;
        let (draining, going) = (self.book.draining.iter(), self.book.going.keys());
        let told: BTreeSet<&NodeName> = self
            .book
            .heard
            .keys()
            .chain(draining)
            .chain(going)
            .collect();
        let told = told.into_iter().filter(|_| late);
        let told = told.filter(|name| self.members.get(name).is_none());
        let mut all: Vec<NodeName> = told.cloned().collect();
        all.append(&mut gone);
        let beyond = all.len().saturating_sub(kept);
        if beyond == 0 {
            return Vec::new();
        }
        let seated: BTreeSet<NodeName> = self.book.layout.nodes();
        let needed = |node: &NodeName| {
            let moving = self.moving.as_ref();
            // One that is listed comes back, and is to be empty then.
            let drained = self.book.draining.contains(node);
            let comes = drained && self.settings.layout.listed.contains(node);
            comes || seated.contains(node) || moving.is_some_and(|moving| moving.goal().needs(node))
        };
        let free = all.into_iter().take(beyond).filter(|node| !needed(node));
        free.take(AT_ONCE).collect()
    }
}
