//! A replica whose seats were told to hold, until all do.

use std::collections::BTreeSet;

use shared::ids::NodeName;
use shared::units::Micros;

/// Waits for the seats of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    waiting: BTreeSet<NodeName>,
    until: Micros,
    /// Whether nobody was told to hold: after a restart of the coordinator, nodes only say what they hold.
    attaching: bool,
}

/// How it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Some do not hold yet.
    NotYet,
    /// All hold.
    All,
    /// They never will.
    Never(String),
}

impl Settling {
    /// Orders to hold are on their way.
    #[must_use]
    pub fn holding(nodes: BTreeSet<NodeName>, until: Micros) -> Self {
        Self {
            waiting: nodes,
            until,
            attaching: false,
        }
    }

    /// The journal says that they hold: they will say so themselves.
    #[must_use]
    pub fn attaching(nodes: BTreeSet<NodeName>) -> Self {
        Self {
            waiting: nodes,
            until: Micros(u64::MAX),
            attaching: true,
        }
    }

    /// Who is waited for.
    #[must_use]
    pub fn waiting(&self) -> &BTreeSet<NodeName> {
        &self.waiting
    }

    /// Whether a node is waited for.
    #[must_use]
    pub fn awaits(&self, node: &NodeName) -> bool {
        self.waiting.contains(node)
    }

    /// Whether nobody was told to hold.
    #[must_use]
    pub fn is_attaching(&self) -> bool {
        self.attaching
    }

    /// A node holds its seat, or cannot.
    pub fn holds(&mut self, node: &NodeName, outcome: Result<(), String>) -> Settled {
        if let Err(why) = outcome {
            return Settled::Never(format!("{node} cannot hold its stage: {why}"));
        }
        self.waiting.remove(node);
        if self.waiting.is_empty() {
            Settled::All
        } else {
            Settled::NotYet
        }
    }

    /// Time passes.
    #[must_use]
    pub fn tick(&self, now: Micros) -> Settled {
        if now < self.until {
            return Settled::NotYet;
        }
        let names: Vec<&str> = self.waiting.iter().map(NodeName::as_str).collect();
        Settled::Never(format!("{} did not hold in time", names.join(", ")))
    }
}
