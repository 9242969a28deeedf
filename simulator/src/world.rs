//! The world: all processes, what is between them, and the loop of time.

mod arranging;
mod check;
mod clients;
mod faults;
mod lead;
mod leader;
mod leaving;
mod links;
mod node;
mod process;
mod rounds;
mod stage;

pub use self::arranging::Arranged;
pub use self::check::Violation;

use std::collections::BTreeMap;

use coordinator::book::Book;
use coordinator::life::cluster::Input;
use coordinator::settings::Settings;
use coordinator::store::memory::Memory;
use shared::ids::{JobId, NodeName, PlanEpoch};
use shared::units::Micros;
use shared::wire::notice::Notice;
use shared::wire::order::Ordered;

use self::check::Check;
use self::clients::Client;
use self::faults::Fault;
use self::leader::Instance;
use self::links::{Connection, Link, LinkKey, Message};
use self::node::Node;
use crate::artifacts::Artifacts;
use crate::dice::Dice;
use crate::model;
use crate::queue::Queue;

/// What happens.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A coordinator is started.
    LeaderStarts(usize),
    /// Something comes to a coordinator.
    ToLeader(usize, Box<Input>),
    /// A notice comes to a coordinator over a connection.
    Told(u64, Box<Notice>),
    /// A coordinator finds that a connection ended.
    LeaderCloses(u64),
    /// A node tries to connect; of this process.
    Connect(usize, u64),
    /// An order comes to a node over a connection.
    Order(u64, Box<Ordered>),
    /// A node finds that a connection ended.
    NodeCloses(u64),
    /// A connection breaks.
    Cut(u64),
    /// All links of a node to its neighbours break.
    CutPeers(usize),
    /// A node's heart beats; of this process.
    Beat(usize, u64),
    /// The time of a node that leaves is over; of this process.
    Leaves(usize, u64),
    /// Something that a process of a node waits for.
    Done(usize, u64, Awaited),
    /// A link between stages is there.
    LinkUp(LinkKey),
    /// A message comes to one end of a link.
    Chunk(LinkKey, usize, Message),
    /// One end of a link finds that it is gone.
    LinkDown(LinkKey, usize),
    /// A client acts.
    Client(usize),
    /// Something goes wrong.
    Fault(Fault),
    /// The world is set right.
    Quiet,
}

/// What a process waits for.
#[derive(Debug)]
pub(crate) enum Awaited {
    /// Layers are open for a plan.
    Prepared(PlanEpoch),
    /// Layers are open for what is held.
    Opened(PlanEpoch),
    /// The device is done.
    Device(PlanEpoch),
    /// A job's state was read.
    Loaded(PlanEpoch, JobId),
    /// A job's state is in the store.
    Stored(PlanEpoch, JobId, u64, u64),
    /// A job's adapter is in the store.
    Exported(PlanEpoch, JobId),
    /// What could not be stored is tried again.
    Again(PlanEpoch),
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Hash of all that happened.
    pub log: u64,
    /// How many things happened.
    pub happenings: u64,
    /// Virtual time at the end.
    pub ended: Micros,
    /// Jobs that ended with an adapter, by their owner, and by themselves.
    pub ends: [u32; 3],
    /// How often jobs went on after a loss or move.
    pub recoveries: u32,
    /// Plans that were in force.
    pub plans: u64,
    /// Nodes that left in order, devices found not to come back, drains that were not durable, jobs that a store which
    /// did not answer kept from a replica.
    pub troubles: [u64; 4],
    /// What went wrong, how often, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// How often a first stage was told that states are to be stored often.
    pub hastened: u64,
    /// How jobs were arranged.
    pub arranged: Arranged,
    /// What was not as it should be.
    pub violations: Vec<Violation>,
}

/// All of it.
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) queue: Queue<Happening>,
    pub(crate) settings: Settings,
    pub(crate) nodes: Vec<Node>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) journal: Memory,
    /// What the journal comes to.
    pub(crate) shadow: Book,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) next_connection: u64,
    pub(crate) links: BTreeMap<LinkKey, Link>,
    pub(crate) artifacts: Artifacts,
    pub(crate) clients: Vec<Client>,
    pub(crate) handles: BTreeMap<u64, (usize, usize)>,
    pub(crate) next_handle: u64,
    pub(crate) wall_skew: i64,
    pub(crate) check: Check,
    /// Whether nothing goes wrong any more.
    pub(crate) quiet: bool,
    log: u64,
    happenings: u64,
    lines: Option<Vec<String>>,
}

/// Until when things go wrong.
pub(crate) const FAULTS_END: Micros = Micros::of_millis(12_000);

/// After so long without faults, whatever has not ended never will.
const WATCHDOG: Micros = Micros::of_millis(90_000);

/// Runs a cluster from a seed.
#[must_use]
pub fn run(seed: u64) -> Report {
    World::new(seed, false).run().0
}

/// Runs it again and tells all that happened, line by line.
#[must_use]
pub fn trace(seed: u64) -> (Report, Vec<String>) {
    World::new(seed, true).run()
}

impl World {
    fn new(seed: u64, verbose: bool) -> Self {
        let mut dice = Dice::new(seed);
        let count = dice.between(1, 5);
        let settings = model::settings(&mut dice, count);
        let name = |n| NodeName::new(format!("n{n}")).expect("a name");
        let nodes = (0..count).map(|n| Node::new(name(n), dice.between(1, 4) as u32));
        let nodes = nodes.collect();
        let mut this = Self {
            nodes,
            settings,
            queue: Queue::new(),
            instances: Vec::new(),
            journal: Memory::default(),
            shadow: Book::default(),
            connections: BTreeMap::new(),
            next_connection: 0,
            links: BTreeMap::new(),
            artifacts: Artifacts::default(),
            clients: Vec::new(),
            handles: BTreeMap::new(),
            next_handle: 0,
            wall_skew: 0,
            check: Check::default(),
            quiet: false,
            log: 0xcbf2_9ce4_8422_2325,
            happenings: 0,
            lines: verbose.then(Vec::new),
            dice,
        };
        this.start_leader(Micros(0));
        for node in 0..this.nodes.len() {
            let delay = Micros::of_millis(this.dice.below(400));
            this.start_node(node, delay);
        }
        this.make_clients();
        this.plan_faults();
        this.queue.at(FAULTS_END, Happening::Quiet);
        this
    }

    pub(crate) fn now(&self) -> Micros {
        self.queue.now()
    }

    /// A delay of some milliseconds.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Micros {
        Micros(self.dice.between(low * 1000, high * 1000))
    }

    /// Adds to the hash of all that happened.
    pub(crate) fn log(&mut self, word: u64) {
        self.log = (self.log ^ word).wrapping_mul(0x0100_0000_01b3);
    }

    /// Adds a line to the trace, if one is wanted.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.queue.now();
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9.3} {}", now.seconds() * 1000.0, line()));
        }
    }

    fn run(mut self) -> (Report, Vec<String>) {
        let end = FAULTS_END.plus(WATCHDOG);
        while let Some(happening) = self.queue.next() {
            if self.now() > end || self.is_over() {
                break;
            }
            self.happenings += 1;
            let now = self.now().0;
            self.log(now);
            self.happen(happening);
            if !self.check.violations.is_empty() {
                break;
            }
        }
        self.check_end();
        (self.report(), self.lines.unwrap_or_default())
    }

    fn is_over(&self) -> bool {
        self.quiet && self.clients.iter().all(Client::is_over) && {
            self.shadow.ledger.live() == 0
                && self.shadow.ledger.jobs().count() == self.clients.len()
        }
    }

    fn report(&self) -> Report {
        use shared::life::JobState::{Cancelled, Failed, Succeeded};
        let jobs = || self.shadow.ledger.jobs();
        let count = |state| jobs().filter(|job| job.state == state).count() as u32;
        Report {
            seed: self.dice.seed(),
            log: self.log,
            happenings: self.happenings,
            ended: self.now(),
            ends: [count(Succeeded), count(Cancelled), count(Failed)],
            recoveries: jobs().map(|job| job.recoveries).sum(),
            plans: self.check.plans,
            troubles: self.check.troubles,
            faults: self.check.faults.clone(),
            hastened: self.check.hastened,
            arranged: self.check.arranged,
            violations: self.check.violations.clone(),
        }
    }

    fn happen(&mut self, happening: Happening) {
        if let Some(until) = self.halted(&happening) {
            return self.queue.at(until, happening);
        }
        if !matches!(happening, Happening::Beat(..)) {
            self.note(|| format!("{happening:?}"));
        }
        match happening {
            Happening::LeaderStarts(instance) => self.leader_starts(instance),
            Happening::ToLeader(instance, input) => self.give_leader(instance, *input),
            Happening::Told(connection, notice) => self.told(connection, *notice),
            Happening::LeaderCloses(connection) => self.leader_closes(connection),
            Happening::Connect(node, process) => self.connect(node, process),
            Happening::Order(connection, order) => self.order(connection, *order),
            Happening::NodeCloses(connection) => self.node_closes(connection),
            Happening::Cut(connection) => self.cut(connection),
            Happening::CutPeers(node) => self.cut_peers(node),
            Happening::Beat(node, process) => self.beat(node, process),
            Happening::Leaves(node, process) => self.leaves(node, process),
            Happening::Done(node, process, what) => self.done(node, process, what),
            Happening::LinkUp(key) => self.link_up(key),
            Happening::Chunk(key, end, message) => self.chunk(key, end, message),
            Happening::LinkDown(key, end) => self.link_down(key, end),
            Happening::Client(client) => self.client_acts(client),
            Happening::Fault(fault) => self.fault(fault),
            Happening::Quiet => self.set_right(),
        }
    }

    /// Until when the process that this is for is halted.
    fn halted(&self, happening: &Happening) -> Option<Micros> {
        let node = |node: usize| self.nodes[node].halted_until;
        let leader = |instance: usize| self.instances[instance].halted_until;
        let of = |connection: &u64| self.connections.get(connection);
        let until = match happening {
            Happening::ToLeader(instance, _) => leader(*instance),
            Happening::Told(c, _) | Happening::LeaderCloses(c) => leader(of(c)?.instance),
            Happening::Order(c, _) | Happening::NodeCloses(c) => node(of(c)?.node),
            Happening::Connect(n, _)
            | Happening::Beat(n, _)
            | Happening::Leaves(n, _)
            | Happening::Done(n, _, _) => node(*n),
            Happening::Chunk(key, end, _) | Happening::LinkDown(key, end) => {
                node(self.links.get(key)?.ends[*end]?.0)
            }
            _ => return None,
        };
        (until > self.now()).then_some(until)
    }
}
