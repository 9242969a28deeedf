//! What goes wrong, when; all of it drawn before the world starts.

use shared::units::Micros;
use shared::wire::request::Request;

use crate::world::links::PATIENCE;
use crate::world::{FAULTS_END, Happening, World};

/// One thing that goes wrong, or that an operator does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A process of a node dies.
    Crash(usize),
    /// It is started again.
    Start(usize),
    /// The device of a node does not come back for so long.
    Hang(usize, Micros),
    /// The store of artifacts does not answer for so long.
    Store(Micros),
    /// It is asked to end, within so long.
    Leave(usize, Micros),
    /// It is stopped for a while, and goes on as if nothing had been.
    Halt(usize, Micros),
    /// No word between a node and coordinators for a while.
    CutNode(usize, Micros),
    /// No word between a node and its neighbours for a while.
    CutPeers(usize, Micros),
    /// The connection of a node breaks.
    Break(usize),
    /// The coordinator dies after so many effects of its next outcome; before its records when negative.
    Doom(i64),
    /// The coordinator is stopped for a while.
    HaltLeader(Micros),
    /// Another coordinator is started that wants to lead.
    Rival,
    /// The wall clock of the coordinators jumps.
    Wall(i64),
    /// An operator wants a node empty, or gives it back.
    Drain(usize, bool),
    /// An operator moves the stage of a node.
    Migrate(usize, Option<usize>),
    /// The machine of a node may be taken, or no more.
    Risk(usize, bool),
}

impl Fault {
    /// What it is called in a report; nothing for what only ends another, or sets right.
    const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Crash(_) => "crash",
            Self::Hang(..) => "hang",
            Self::Store(_) => "store",
            Self::Leave(..) => "leave",
            Self::Halt(..) => "halt",
            Self::CutNode(..) => "cut-node",
            Self::CutPeers(..) => "cut-peers",
            Self::Break(_) => "break",
            Self::Doom(_) => "doom",
            Self::HaltLeader(_) => "halt-leader",
            Self::Rival => "rival",
            Self::Wall(_) => "wall",
            Self::Drain(_, false) => "drain",
            Self::Migrate(..) => "migrate",
            Self::Risk(_, true) => "risk",
            Self::Start(_) | Self::Drain(_, true) | Self::Risk(_, false) => return None,
        })
    }
}

impl World {
    pub(crate) fn plan_faults(&mut self) {
        // Some worlds are calm, some are not fit to live in.
        let most = *[3, 9, 30].get(self.dice.below(3) as usize).unwrap_or(&9);
        let count = self.dice.below(most);
        for _ in 0..count {
            let at = Micros(self.dice.below(FAULTS_END.0));
            self.plan_fault(at);
        }
    }

    fn plan_fault(&mut self, at: Micros) {
        let nodes = self.nodes.len() as u64;
        let node = self.dice.below(nodes) as usize;
        let long = self.millis(50, 3_000);
        let fault = match self.dice.below(20) {
            0 | 1 => {
                let back = at.plus(self.millis(20, 3_000));
                self.queue.at(back, Happening::Fault(Fault::Start(node)));
                Fault::Crash(node)
            }
            15 | 16 => Fault::Hang(node, Micros(long.0 * 2)),
            17 => Fault::Store(Micros(long.0 * 2)),
            18 | 19 => {
                let over = at.plus(long);
                self.queue
                    .at(over, Happening::Fault(Fault::Risk(node, false)));
                Fault::Risk(node, true)
            }
            13 | 14 => {
                let within = self.millis(0, 4_000);
                Fault::Leave(node, within)
            }
            2 => Fault::Halt(node, long),
            3 => Fault::CutNode(node, long),
            4 => Fault::CutPeers(node, long),
            5 => Fault::Break(node),
            6 | 7 => Fault::Doom(self.dice.between(0, 4) as i64 - 1),
            8 => Fault::HaltLeader(long),
            9 => Fault::Rival,
            10 => Fault::Wall(self.dice.between(0, 7_200_000_000) as i64 - 3_600_000_000),
            11 => {
                let back = at.plus(self.millis(20, 4_000));
                self.queue
                    .at(back, Happening::Fault(Fault::Drain(node, true)));
                Fault::Drain(node, false)
            }
            _ => {
                let to = self
                    .dice
                    .percent(50)
                    .then(|| self.dice.below(nodes) as usize);
                Fault::Migrate(node, to)
            }
        };
        self.queue.at(at, Happening::Fault(fault));
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        let now = self.now();
        if let Some(name) = fault.name().filter(|_| !self.quiet) {
            *self.check.faults.entry(name).or_default() += 1;
        }
        match fault {
            Fault::Crash(node) => self.crash_node(node),
            Fault::Risk(node, begins) => self.may_be_taken(node, begins),
            Fault::Hang(node, long) => self.nodes[node].hangs_until = now.plus(long),
            Fault::Store(long) => self.artifacts.close(now.plus(long)),
            Fault::Leave(node, within) => self.ask_to_leave(node, within),
            Fault::Start(node) => {
                if !self.nodes[node].running {
                    self.start_node(node, Micros(0));
                }
            }
            Fault::Halt(node, long) => {
                self.nodes[node].halted_until = now.plus(long);
                if long > PATIENCE {
                    // Its neighbours wait for it as long as they would for a dead one.
                    self.queue.after(PATIENCE, Happening::CutPeers(node));
                }
            }
            Fault::CutNode(node, long) => {
                self.nodes[node].cut_until = now.plus(long);
                if let Some(connection) = self.nodes[node]
                    .process
                    .connection
                    .filter(|_| long > PATIENCE)
                {
                    self.queue.after(PATIENCE, Happening::Cut(connection));
                }
            }
            Fault::CutPeers(node, long) => {
                self.nodes[node].peers_cut_until = now.plus(long);
                if long > PATIENCE {
                    self.queue.after(PATIENCE, Happening::CutPeers(node));
                }
            }
            Fault::Break(node) => {
                if let Some(connection) = self.nodes[node].process.connection {
                    self.cut(connection);
                }
            }
            Fault::Doom(cut) => {
                if let Some(instance) = self.leader() {
                    self.instances[instance].doomed = Some(cut);
                }
            }
            Fault::HaltLeader(long) => self.halt_leader(long),
            Fault::Rival => self.start_leader(Micros(0)),
            Fault::Wall(jump) => self.wall_skew += jump,
            Fault::Drain(node, undo) => {
                // Of some nodes the operator does not care what stays.
                let force = node % 2 == 1 && !undo;
                let node = self.nodes[node].name.clone();
                self.ask(Request::Drain { node, undo, force });
            }
            Fault::Migrate(from, to) => {
                let from = self.nodes[from].name.clone();
                let to = to.map(|to| self.nodes[to].name.clone());
                self.ask(Request::Migrate { from, to });
            }
        }
    }

    fn halt_leader(&mut self, long: Micros) {
        let Some(instance) = self.leader() else {
            return;
        };
        self.instances[instance].halted_until = self.now().plus(long);
        if long > PATIENCE {
            let open = self.connections.iter();
            let open = open.filter(|(_, c)| c.instance == instance && c.node_open);
            let open: Vec<u64> = open.map(|(number, _)| *number).collect();
            for connection in open {
                self.queue.after(PATIENCE, Happening::Cut(connection));
            }
        }
    }

    /// From now on nothing goes wrong: every node runs, and may have work.
    pub(crate) fn set_right(&mut self) {
        self.quiet = true;
        for instance in &mut self.instances {
            instance.doomed = None;
        }
        self.artifacts.close(self.now());
        for node in 0..self.nodes.len() {
            self.nodes[node].cut_until = self.now();
            self.nodes[node].peers_cut_until = self.now();
            self.nodes[node].hangs_until = self.now();
            self.fault(Fault::Risk(node, false));
            self.fault(Fault::Start(node));
            for later in [0, 3_000, 6_000, 9_000] {
                let undo = Happening::Fault(Fault::Drain(node, true));
                self.queue.after(Micros::of_millis(later), undo);
            }
        }
    }
}
