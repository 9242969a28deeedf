//! What a node is: a process with a name, what it holds, and what it has told that was not heard.

use std::collections::{BTreeSet, VecDeque};

use shared::ids::{NodeName, PlanEpoch, Term};
use shared::plan::Replica;
use shared::units::Micros;
use shared::wire::notice::{Held, Notice};

use crate::world::lead::Lead;
use crate::world::links::LinkKey;
use crate::world::stage::Stage;

/// A machine, and the process on it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) threads: u32,
    /// Of the process; 0 before the first.
    pub(crate) incarnation: u64,
    pub(crate) running: bool,
    /// Whether its machine may be taken.
    pub(crate) at_risk: bool,
    pub(crate) halted_until: Micros,
    /// Its device ends nothing before.
    pub(crate) hangs_until: Micros,
    /// No word to or from a coordinator until then.
    pub(crate) cut_until: Micros,
    /// No word to or from neighbours until then.
    pub(crate) peers_cut_until: Micros,
    pub(crate) process: Process,
}

/// What is lost when the process dies.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) term: Term,
    pub(crate) connection: Option<u64>,
    /// Once it was asked to end: until when it stays.
    pub(crate) leaving: Option<Micros>,
    pub(crate) post: Option<Post>,
    pub(crate) preparing: Option<PlanEpoch>,
    pub(crate) prepared: Option<PlanEpoch>,
    pub(crate) released: PlanEpoch,
    pub(crate) unheard: VecDeque<(u64, Notice)>,
    pub(crate) numbered: u64,
}

/// A stage that is held.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) epoch: PlanEpoch,
    pub(crate) replica: Replica,
    pub(crate) stage: u32,
    pub(crate) opened: bool,
    /// Links to neighbours and siblings that work.
    pub(crate) up: BTreeSet<LinkKey>,
    pub(crate) told: bool,
    pub(crate) broken: bool,
    pub(crate) machine: Stage,
    pub(crate) lead: Option<Lead>,
}

impl Node {
    pub(crate) fn new(name: NodeName, threads: u32) -> Self {
        Self {
            name,
            threads,
            incarnation: 0,
            running: false,
            at_risk: false,
            halted_until: Micros(0),
            hangs_until: Micros(0),
            cut_until: Micros(0),
            peers_cut_until: Micros(0),
            process: Process::default(),
        }
    }

    /// The post under an epoch.
    pub(crate) fn post_of(&mut self, epoch: PlanEpoch) -> Option<&mut Post> {
        self.process
            .post
            .as_mut()
            .filter(|post| post.epoch == epoch)
    }
}

impl Post {
    pub(crate) fn is_last(&self) -> bool {
        self.stage as usize + 1 == self.replica.seats.len()
    }

    pub(crate) fn is_linked(&self) -> bool {
        let up = self.links().iter().all(|(key, _)| self.up.contains(key));
        self.opened && up && !self.broken
    }

    /// The links to the stage before and behind and to siblings, each with the end that is ours.
    pub(crate) fn links(&self) -> Vec<(LinkKey, usize)> {
        let own = self.replica.number;
        let key = |stage| (self.epoch.0, [own; 2], stage);
        let before = (self.stage > 0).then(|| (key(self.stage - 1), 1));
        let behind = (!self.is_last()).then(|| (key(self.stage), 0));
        let across = self.replica.siblings.iter().map(|sibling| {
            let other = sibling.number;
            let both = [own.min(other), own.max(other)];
            ((self.epoch.0, both, self.stage), usize::from(own > other))
        });
        before.into_iter().chain(behind).chain(across).collect()
    }

    /// The node at the other end of a link, of which this end is ours.
    pub(crate) fn other_end(&self, (_, replicas, _): LinkKey, end: usize) -> Option<NodeName> {
        let (own, other) = (self.replica.number, replicas[1 - end]);
        let seat = if other == own {
            let stage = if end == 0 {
                self.stage + 1
            } else {
                self.stage.checked_sub(1)?
            };
            self.replica.seats.get(stage as usize)?
        } else {
            let mut siblings = self.replica.siblings.iter();
            let sibling = siblings.find(|sibling| sibling.number == other)?;
            sibling.seats.get(self.stage as usize)?
        };
        Some(seat.node.clone())
    }

    /// The link that a message goes over: to the stage behind, or to the one before.
    pub(crate) fn link(&self, behind: bool) -> (LinkKey, usize) {
        let stage = if behind { self.stage } else { self.stage - 1 };
        (
            (self.epoch.0, [self.replica.number; 2], stage),
            usize::from(!behind),
        )
    }

    /// What a hello says of it.
    pub(crate) fn held(&self) -> Held {
        Held {
            epoch: self.epoch,
            replica: self.replica.number,
            stage: self.stage,
            linked: self.is_linked(),
            jobs: self.lead.as_ref().map(Lead::held).unwrap_or_default(),
            paused: self.lead.as_ref().map(Lead::paused).unwrap_or_default(),
        }
    }
}
