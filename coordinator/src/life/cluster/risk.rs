//! Machines that may be taken: what is known of jobs on them is stored more often, as long as that is said. CL-17
//!
//! A machine says it itself, as its cloud told it, or whoever holds the machines does; one word does not take back the other's. None
//! of it is in the journal but as an event: it is said again to a new leadership. What a first stage is told of it is compared with
//! what it should be told at the end of every step, so that no way on which seats, links or risks change has to think of it.
//!
//! | id | invariant |
//! | --- | --- |
//! | RK-1 | a replica at work with a seat on a machine at risk is told to store often, any other that it need not, and none of them twice |

use std::collections::BTreeMap;

use shared::ids::{NodeName, PlanEpoch};
use shared::wire::order::Order;
use shared::wire::request::{Refusal, RefusalCode, Reply};

use super::Coordinator;
use crate::record::Change;

/// Who says that a machine may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Teller {
    /// Its node.
    Node,
    /// Who holds the machines.
    Market,
}

/// What is known of machines, and what first stages were told of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Risks {
    known: BTreeMap<NodeName, BTreeMap<Teller, String>>,
    /// What first stages heard under an epoch: steps between states, or nothing where that is not sure.
    told: BTreeMap<u32, (PlanEpoch, Option<u64>)>,
}

impl Risks {
    /// Why the machine of a node may be taken.
    pub(super) fn of(&self, node: &NodeName) -> Option<&str> {
        let causes = self.known.get(node)?;
        causes.values().next().map(String::as_str)
    }

    /// A node is gone, or another process.
    pub(super) fn forget(&mut self, node: &NodeName) {
        self.known.remove(node);
    }

    /// A first stage came back: what it was told last may not have come.
    pub(super) fn doubt(&mut self, replica: u32) {
        if let Some((_, told)) = self.told.get_mut(&replica) {
            *told = None;
        }
    }

    fn set(&mut self, node: &NodeName, teller: Teller, cause: Option<String>) {
        let causes = self.known.entry(node.clone()).or_default();
        match cause {
            Some(cause) => causes.insert(teller, cause),
            None => causes.remove(&teller),
        };
        if causes.is_empty() {
            self.known.remove(node);
        }
    }
}

impl Coordinator {
    /// The machine of a node may be taken, or no more.
    pub(super) fn risk(&mut self, node: NodeName, teller: Teller, cause: Option<String>) {
        let before = self.risks.of(&node).is_some();
        self.risks.set(&node, teller, cause);
        let now = self.risks.of(&node).map(ToOwned::to_owned);
        if before != now.is_some() {
            self.record(Change::NodeAtRisk {
                node,
                cause: now,
                every_steps: self.settings.limits.risk_checkpoint_steps,
            });
        }
    }

    /// Who holds the machines says it.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such node.
    pub(super) fn risk_told(
        &mut self,
        node: NodeName,
        cause: Option<String>,
    ) -> Result<Reply, Refusal> {
        if self.members.get(&node).is_none_or(|node| node.gone) {
            return Err(Refusal {
                code: RefusalCode::NotFound,
                message: format!("no node {node} is here: `spotmux nodes` lists all"),
            });
        }
        self.risk(node, Teller::Market, cause);
        Ok(Reply::Done)
    }

    /// Tells first stages how often states are to be stored, where that is not what they heard. RK-1
    pub(super) fn hasten(&mut self) {
        let quiet = self.risks.known.is_empty() && self.risks.told.is_empty();
        if quiet || self.closing.is_some() {
            return;
        }
        let often = self.settings.limits.risk_checkpoint_steps;
        let mut told = std::mem::take(&mut self.risks.told);
        let replicas: Vec<u32> = self.book.layout.replicas.keys().copied().collect();
        told.retain(|replica, _| replicas.contains(replica));
        for replica in replicas {
            let Some((lead, epoch)) = self.lead(replica).filter(|_| self.is_at_work(replica))
            else {
                continue;
            };
            let seats = &self.book.layout.replicas[&replica].seats;
            let risky = seats.iter().any(|seat| self.risks.of(&seat.node).is_some());
            let every_steps = if risky { often } else { 0 };
            // A first stage of another epoch begins with what jobs ask.
            let before = told.get(&replica).filter(|(since, _)| *since == epoch);
            let before = before.map_or(Some(0), |(_, before)| *before);
            if before == Some(every_steps) || self.members.link(&lead).is_none() {
                continue;
            }
            self.send(&lead, Order::Hasten { epoch, every_steps });
            told.insert(replica, (epoch, Some(every_steps)));
        }
        told.retain(|_, (_, told)| *told != Some(0));
        self.risks.told = told;
    }
}
