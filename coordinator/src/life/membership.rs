//! Nodes: who is here, who is silent, who is gone.
//!
//! Ages are measured on a clock that never jumps and is passed in. When the coordinator itself was stopped for a
//! while, nobody is blamed for it: the next tick comes late, and all ages are cut by what it was late.
//!
//! | id | invariant |
//! | --- | --- |
//! | MB-1 | a name stands for one process at a time: another is refused while the first is heard |
//! | MB-2 | all nodes hold the same backbone, and compute its products alike |
//! | MB-3 | a link belongs to one node, and a node has at most one |
//! | MB-4 | a node is silent after the bound, however open its connection looks |

use std::collections::{BTreeMap, VecDeque};

use shared::ids::NodeName;
use shared::job::Products;
use shared::units::{Bytes, Micros};
use shared::wire::notice::Hello;
use thiserror::Error;

use super::device::Device;
use crate::settings::{Backbone, Bounds};

mod gone;
mod leaving;

#[cfg(test)]
mod tests;

pub use leaving::Leaving;

/// A connection of a node, numbered by the shell and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// Why a node is not let in.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unwelcome {
    /// MB-1.
    #[error(
        "a node named {node} is here already and was heard {age} ago: give this one another name, or stop that one and \
         try again in {bound}"
    )]
    Taken {
        /// The name.
        node: NodeName,
        /// Since the other was heard.
        age: Micros,
        /// Until it is held to be silent.
        bound: Micros,
    },
    /// MB-2.
    #[error(
        "node {node} holds a backbone of identity {theirs}, the cluster trains on {ours} ({name}): point the node to \
         the same model files"
    )]
    OtherBackbone {
        /// The node.
        node: NodeName,
        /// Its identity.
        theirs: String,
        /// That of the cluster.
        ours: String,
        /// Of the cluster's model.
        name: String,
    },
    /// MB-2.
    #[error(
        "node {node} computes frozen products as model.products = \"{theirs}\", the cluster as \"{ours}\": give both the \
         same model.products, and start the node again"
    )]
    OtherProducts {
        /// The node.
        node: NodeName,
        /// Its arithmetic.
        theirs: Products,
        /// That of the cluster.
        ours: Products,
    },
    /// MB-2.
    #[error(
        "node {node} counts {theirs} layers, the backbone {name} has {ours}: point the node to the same files"
    )]
    OtherLayers {
        /// The node.
        node: NodeName,
        /// Layers there.
        theirs: u32,
        /// Layers of the cluster's model.
        ours: u32,
        /// Of the cluster's model.
        name: String,
    },
}

/// What a hello changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// An older link of the same process, to be closed.
    pub replaced: Option<LinkId>,
    /// Whether this process was not known: what the name held before is lost.
    pub fresh: bool,
    /// Whether it was gone, or never here.
    pub joined: bool,
}

/// How far a node is from being of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Connected and heard.
    Here,
    /// Without a connection, but not for long.
    Away,
    /// Lost.
    Gone,
}

/// A node as last heard.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it said of itself.
    pub hello: Hello,
    /// Its connection, if it has one.
    pub link: Option<LinkId>,
    /// When it was last heard.
    pub heard: Micros,
    /// When its connection ended.
    pub left: Micros,
    /// Whether it was found to be lost.
    pub gone: bool,
    /// The next numbered notice on this connection.
    pub next_notice: u64,
    /// Left out of plans until then.
    pub unfit_until: Micros,
    /// Since it said that it goes.
    pub leaving: Option<Leaving>,
    /// How long its device is at one piece of work.
    pub device: Device,
    /// Memory in use.
    pub memory_used: Bytes,
    /// Tokens trained, and when it said so.
    trained: VecDeque<(Micros, u64)>,
}

/// Over how long a speed is measured.
const SPEED_WINDOW: Micros = Micros::of_millis(30_000);

/// All nodes that came in this leadership and were not let go of.
#[derive(Clone, Debug)]
pub struct Membership {
    nodes: BTreeMap<NodeName, Node>,
    links: BTreeMap<LinkId, NodeName>,
    began: Micros,
    ticked: Micros,
}

impl Membership {
    /// Nobody yet.
    #[must_use]
    pub fn new(now: Micros) -> Self {
        Self {
            nodes: BTreeMap::new(),
            links: BTreeMap::new(),
            began: now,
            ticked: now,
        }
    }

    /// When the leadership began, on the clock that never jumps.
    #[must_use]
    pub fn began(&self) -> Micros {
        self.began
    }

    /// A node introduces itself on a link.
    ///
    /// # Errors
    /// [`Unwelcome`] when it may not come in; nothing changed.
    pub fn hello(
        &mut self,
        now: Micros,
        link: LinkId,
        hello: Hello,
        backbone: &Backbone,
        bounds: &Bounds,
    ) -> Result<Arrival, Unwelcome> {
        let node = hello.node.clone();
        let layers = backbone.weights.layers.len() as u32;
        if hello.backbone != backbone.identity {
            return Err(Unwelcome::OtherBackbone {
                node,
                theirs: hello.backbone,
                ours: backbone.identity.clone(),
                name: backbone.name.clone(),
            });
        }
        if hello.layers != layers {
            return Err(Unwelcome::OtherLayers {
                node,
                theirs: hello.layers,
                ours: layers,
                name: backbone.name.clone(),
            });
        }
        if hello.products != backbone.products {
            return Err(Unwelcome::OtherProducts {
                node,
                theirs: hello.products,
                ours: backbone.products,
            });
        }
        let known = self.nodes.get(&node);
        let same = known.is_some_and(|known| known.hello.incarnation == hello.incarnation);
        let stays = |known: &&Node| {
            let released = known.leaving.is_some_and(|leaving| leaving.released);
            known.link.is_some() && !released
        };
        if let Some(other) = known.filter(stays).filter(|_| !same) {
            return Err(Unwelcome::Taken {
                node,
                age: now.since(other.heard),
                bound: bounds.heartbeat,
            });
        }
        let arrival = Arrival {
            replaced: known
                .and_then(|known| known.link)
                .filter(|old| *old != link),
            fresh: !same,
            joined: known.is_none_or(|known| (known.gone && !known.device.hangs) || !same),
        };
        let trained = known.map(|known| known.trained.clone()).filter(|_| same);
        let unfit_until = known.map_or(Micros(0), |known| known.unfit_until);
        let leaving = known.filter(|_| same).and_then(|known| known.leaving);
        let leaving = leaving.map(Leaving::again);
        let device = known.filter(|_| same).map(|known| known.device);
        let device = device.unwrap_or_default();
        if let Some(old) = arrival.replaced {
            self.links.remove(&old);
        }
        self.links.insert(link, node.clone());
        let fresh = Node {
            next_notice: hello.unheard,
            hello,
            link: Some(link),
            heard: now,
            left: now,
            gone: device.hangs,
            unfit_until,
            leaving,
            device,
            memory_used: Bytes(0),
            trained: trained.unwrap_or_default(),
        };
        self.nodes.insert(node, fresh);
        self.check();
        Ok(arrival)
    }

    /// Whoever speaks on a link is heard; nothing when the link is of nobody.
    pub fn heard(&mut self, now: Micros, link: LinkId) -> Option<&mut Node> {
        let node = self.nodes.get_mut(self.links.get(&link)?)?;
        node.heard = now;
        Some(node)
    }

    /// A link ended; the node that it was of.
    pub fn closed(&mut self, now: Micros, link: LinkId) -> Option<NodeName> {
        let name = self.links.remove(&link)?;
        if let Some(node) = self.nodes.get_mut(&name) {
            node.link = None;
            node.left = now;
        }
        self.check();
        Some(name)
    }

    /// Time passes: who was not heard for too long; their links are to be closed.
    pub fn tick(&mut self, now: Micros, bounds: &Bounds) -> Vec<(NodeName, LinkId)> {
        let late = now.since(self.ticked);
        self.ticked = now;
        if late.0 > bounds.heartbeat.0 / 2 {
            self.forgive(late);
        }
        let silent = |(name, node): (&NodeName, &Node)| {
            let link = node.link?;
            let silent = now.since(node.heard) > bounds.heartbeat;
            silent.then(|| (name.clone(), link))
        };
        let found: Vec<_> = self.nodes.iter().filter_map(silent).collect();
        for (_, link) in &found {
            self.closed(now, *link);
        }
        found
    }

    /// The coordinator was late itself.
    fn forgive(&mut self, late: Micros) {
        for node in self.nodes.values_mut() {
            node.heard = node.heard.plus(late).min(self.ticked);
            node.left = node.left.plus(late).min(self.ticked);
        }
        self.began = self.began.plus(late).min(self.ticked);
    }

    /// How far a node is from being of use.
    #[must_use]
    pub fn presence(&self, now: Micros, node: &NodeName, bounds: &Bounds) -> Presence {
        let (left, bound) = match self.nodes.get(node) {
            Some(node) if node.link.is_some() && !node.device.hangs => return Presence::Here,
            Some(node) if node.gone => return Presence::Gone,
            Some(node) => (node.left, bounds.reconnect),
            None => (self.began, bounds.attach),
        };
        if now.since(left) >= bound {
            Presence::Gone
        } else {
            Presence::Away
        }
    }

    /// A node is held to be lost from now on.
    pub fn lose(&mut self, node: &NodeName) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.gone = true;
        }
    }

    /// A node.
    #[must_use]
    pub fn get(&self, node: &NodeName) -> Option<&Node> {
        self.nodes.get(node)
    }

    /// A node, to be changed.
    pub fn get_mut(&mut self, node: &NodeName) -> Option<&mut Node> {
        self.nodes.get_mut(node)
    }

    /// The link of a node.
    #[must_use]
    pub fn link(&self, node: &NodeName) -> Option<LinkId> {
        self.nodes.get(node)?.link
    }

    /// All nodes that came.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Node)> {
        self.nodes.iter()
    }

    /// Tokens per second of all nodes over the last half minute.
    #[must_use]
    pub fn speed(&self, now: Micros) -> f64 {
        // A sum of nothing is -0.0.
        let speeds = self.nodes.values().map(|node| node.speed(now));
        speeds.fold(0.0, |sum, speed| sum + speed)
    }

    fn check(&self) {
        debug_assert!(
            self.links.iter().all(|(link, name)| {
                self.nodes
                    .get(name)
                    .is_some_and(|node| node.link == Some(*link))
            }),
            "MB-3"
        );
    }
}

impl Node {
    /// Notes a heartbeat.
    pub fn beat(&mut self, now: Micros, memory_used: Bytes, tokens: u64) {
        self.memory_used = memory_used;
        self.trained.push_back((now, tokens));
        while self.trained.len() > 2 && now.since(self.trained[1].0) >= SPEED_WINDOW {
            self.trained.pop_front();
        }
    }

    fn speed(&self, now: Micros) -> f64 {
        let (Some(first), Some(last)) = (self.trained.front(), self.trained.back()) else {
            return 0.0;
        };
        let passed = last.0.since(first.0).seconds();
        if passed <= 0.0 || now.since(last.0) > SPEED_WINDOW {
            return 0.0;
        }
        last.1.saturating_sub(first.1) as f64 / passed
    }
}
