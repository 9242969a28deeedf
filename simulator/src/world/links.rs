//! What is between processes: connections of nodes to coordinators, and links between neighbouring stages.
//!
//! Both keep order, as a stream does; loss is delay, until a connection breaks. To be harder than life, a message may
//! come twice, and a numbered notice may be overtaken by the next.

use gpu_actor::pipeline::{MicroBatch, Slot};
use shared::units::Micros;
use shared::wire::notice::Notice;
use shared::wire::order::Ordered;

use crate::world::{Happening, World};

/// A cut that lasts longer breaks what it cuts.
pub(crate) const PATIENCE: Micros = Micros::of_millis(500);

/// A connection of a node to a coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) node: usize,
    pub(crate) instance: usize,
    pub(crate) node_open: bool,
    pub(crate) leader_open: bool,
    /// Whether the process at the node's side said that it ends.
    pub(crate) ended: bool,
    pub(crate) opened: Micros,
    to_node: Micros,
    to_leader: Micros,
}

/// Epoch, the replicas of both ends, and the stage of end 0.
pub(crate) type LinkKey = (u64, [u32; 2], u32);

/// A link between two stages; end 0 is that of the stage before, or of the same stage of the lower replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// Node and process of each end.
    pub(crate) ends: [Option<(usize, u64)>; 2],
    pub(crate) up: bool,
    pub(crate) dead: bool,
    last: [Micros; 2],
}

/// What stages tell each other.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Attach(Slot, u64),
    Plan(MicroBatch),
    Activation(u64),
    Gradient(u64),
    Complete(Slot, u64),
    Agree(Slot, u64),
    Save(Slot, u64),
    Saved(Slot, u64),
}

impl World {
    pub(crate) fn open_connection(&mut self, node: usize, instance: usize) -> u64 {
        self.next_connection += 1;
        let connection = Connection {
            node,
            instance,
            node_open: true,
            leader_open: true,
            ended: false,
            opened: self.queue.now(),
            to_node: Micros(0),
            to_leader: Micros(0),
        };
        self.connections.insert(self.next_connection, connection);
        self.next_connection
    }

    fn delay(&mut self) -> Micros {
        if !self.quiet && self.dice.percent(3) {
            return self.millis(40, 200);
        }
        Micros(self.dice.between(300, 4_000))
    }

    pub(crate) fn send_notice(&mut self, connection: u64, notice: Notice) {
        let (delay, now) = (self.delay(), self.now());
        let twice = !self.quiet && self.dice.percent(2);
        let overtaken = !self.quiet && self.dice.percent(1);
        let numbered = matches!(notice, Notice::Job { .. });
        let Some(of) = self
            .connections
            .get_mut(&connection)
            .filter(|c| c.node_open)
        else {
            return;
        };
        let healed = self.nodes[of.node].cut_until;
        let mut at = now.plus(delay).max(of.to_leader).max(healed);
        if numbered && overtaken {
            at = at.plus(Micros::of_millis(30));
        } else {
            of.to_leader = at;
        }
        if twice && !matches!(notice, Notice::Hello(_)) {
            let again = Happening::Told(connection, Box::new(notice.clone()));
            self.queue.at(at.plus(Micros(500)), again);
        }
        self.queue
            .at(at, Happening::Told(connection, Box::new(notice)));
    }

    pub(crate) fn send_order(&mut self, connection: u64, order: Ordered) {
        let (delay, now) = (self.delay(), self.now());
        let twice = !self.quiet && self.dice.percent(2);
        let Some(of) = self
            .connections
            .get_mut(&connection)
            .filter(|c| c.leader_open)
        else {
            return;
        };
        let healed = self.nodes[of.node].cut_until;
        let at = now.plus(delay).max(of.to_node).max(healed);
        of.to_node = at;
        if twice {
            let again = Happening::Order(connection, Box::new(order.clone()));
            self.queue.at(at, again);
        }
        self.queue
            .at(at, Happening::Order(connection, Box::new(order)));
    }

    /// A connection breaks: the node finds out now, the coordinator soon or by silence only.
    pub(crate) fn cut(&mut self, connection: u64) {
        let Some(of) = self.connections.get(&connection) else {
            return;
        };
        let (node, open) = (of.node, of.leader_open);
        if open && self.dice.percent(60) {
            let delay = self.millis(1, 100);
            self.queue.after(delay, Happening::LeaderCloses(connection));
        }
        let until = self.nodes[node].halted_until;
        self.queue.at(until, Happening::NodeCloses(connection));
    }

    /// One end of a link is there; of which node and process.
    pub(crate) fn open_link(&mut self, key: LinkKey, end: usize, node: usize) {
        let process = self.nodes[node].incarnation;
        let link = self.links.entry(key).or_default();
        link.ends[end] = Some((node, process));
        if link.dead {
            let delay = self.millis(1, 50);
            return self.queue.after(delay, Happening::LinkDown(key, end));
        }
        if link.ends.iter().all(Option::is_some) {
            let delay = self.millis(1, 20);
            self.queue.after(delay, Happening::LinkUp(key));
        }
    }

    /// One end of a link goes away; the other finds out.
    pub(crate) fn close_link(&mut self, key: LinkKey, end: usize) {
        let Some(link) = self.links.get_mut(&key).filter(|link| !link.dead) else {
            return;
        };
        link.dead = true;
        if link.ends[1 - end].is_some() {
            let delay = self.millis(2, 200);
            self.queue.after(delay, Happening::LinkDown(key, 1 - end));
        }
    }

    /// All links of a node to its neighbours break.
    pub(crate) fn cut_peers(&mut self, node: usize) {
        let is_of = |end: &Option<(usize, u64)>| end.is_some_and(|(of, _)| of == node);
        let links = self
            .links
            .iter()
            .filter(|(_, l)| !l.dead && l.ends.iter().any(is_of));
        let keys: Vec<LinkKey> = links.map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(link) = self.links.get_mut(&key) {
                link.dead = true;
            }
            for end in [0, 1] {
                let delay = self.millis(2, 100);
                self.queue.after(delay, Happening::LinkDown(key, end));
            }
        }
    }

    /// Sends from one end of a link to the other.
    pub(crate) fn send_chunk(&mut self, key: LinkKey, from: usize, message: Message) {
        let (delay, now) = (self.delay(), self.now());
        let Some(link) = self
            .links
            .get_mut(&key)
            .filter(|link| link.up && !link.dead)
        else {
            return;
        };
        let ends = link.ends.iter().flatten();
        let healed = ends
            .map(|(node, _)| self.nodes[*node].peers_cut_until)
            .max();
        let at = now
            .plus(delay)
            .max(link.last[from])
            .max(healed.unwrap_or_default());
        link.last[from] = at;
        self.queue.at(at, Happening::Chunk(key, 1 - from, message));
    }
}
