//! A desk to drive the machine from: nodes by name, orders as they came, a journal.

use std::collections::BTreeMap;

use shared::ids::{JobId, PlanEpoch, Term};
use shared::life::JobState;
use shared::units::{Bytes, Micros};
use shared::wire::notice::{Departure, Held, Hello, JobNotice, LeaveCause, Notice};
use shared::wire::order::Order;
use shared::wire::request::{FileRef, Reply, Request, Submission};
use shared::wire::view::EventView;

use super::super::*;
use crate::life::placement::Stages;
use crate::record::Inputs;
use crate::settings::testing::settings;

pub(super) fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

pub(super) fn submission(name: &str) -> Submission {
    let spec = format!(
        r#"{{"name":"{name}","adapter":{{"method":"lora","rank":2}},"data":{{"train":"d.jsonl"}}}}"#
    );
    let file = FileRef {
        path: "d.jsonl".into(),
        sha256: "00".into(),
        bytes: Bytes(1),
    };
    let files = vec![file];
    Submission { spec, files }
}

pub(super) fn step(step: u64) -> JobNotice {
    JobNotice::Step {
        step,
        loss: f64::NAN,
        accuracy: 0.0,
        gradient_norm: 1.0,
        learning_rate: 0.1,
        tokens: step,
    }
}

/// What a node tells of the first stage of the first replica under the first plan: its jobs, each with its steps.
pub(super) fn held(jobs: &[(JobId, u64)]) -> Held {
    Held {
        epoch: PlanEpoch(1),
        replica: 0,
        stage: 0,
        linked: true,
        jobs: jobs.to_vec(),
        paused: Vec::new(),
    }
}

/// A node is told that its machine goes in so many seconds.
pub(super) fn leaves(desk: &mut Desk, node: &str, seconds: u64) {
    let departure = Departure {
        within: Micros(seconds * 1_000_000),
        cause: LeaveCause::Reclaimed,
    };
    desk.tell(node, Notice::Leaving(departure));
}

pub(super) struct Desk {
    pub(super) machine: Coordinator,
    pub(super) journal: Vec<Record>,
    pub(super) records: usize,
    pub(super) told: Vec<EventView>,
    /// Of every node that comes.
    pub(super) memory: Bytes,
    /// The newest that nodes that come obeyed.
    pub(super) term: Term,
    now: u64,
    /// By how much the wall clock is ahead of the one that never jumps.
    pub(super) ahead: Micros,
    /// Since when devices are at one piece of work.
    pub(super) hung: BTreeMap<NodeName, u64>,
    links: BTreeMap<NodeName, u64>,
    numbers: BTreeMap<NodeName, u64>,
    last_link: u64,
    orders: BTreeMap<NodeName, Vec<Order>>,
    unprepared: Vec<JobId>,
    /// Questions to the planner that are not answered.
    pub(super) questions: Vec<Question>,
}

fn at(now: u64) -> Now {
    let steady = Micros::of_millis(now);
    Now {
        steady,
        wall: steady,
    }
}

impl Desk {
    pub(super) fn new(stages: Stages, replicas: u32, expect: u32) -> Self {
        let settings = settings(stages, replicas, expect);
        let (machine, outcome) = Coordinator::begin(at(0), settings, Term(1), Book::default(), &[]);
        let mut this = Self {
            machine,
            journal: Vec::new(),
            records: 0,
            told: Vec::new(),
            memory: Bytes(1 << 20),
            term: Term(0),
            now: 0,
            ahead: Micros(0),
            hung: BTreeMap::new(),
            links: BTreeMap::new(),
            numbers: BTreeMap::new(),
            last_link: 0,
            orders: BTreeMap::new(),
            unprepared: Vec::new(),
            questions: Vec::new(),
        };
        this.take(&outcome);
        this
    }

    /// The same desk with another coordinator, which has what the journal has.
    pub(super) fn restart(&mut self) {
        let book = self.machine.book().clone();
        let term = book.term.next();
        let settings = self.machine.settings.clone();
        let (machine, outcome) = Coordinator::begin(at(self.now), settings, term, book, &[]);
        self.machine = machine;
        self.links.clear();
        self.orders.clear();
        self.take(&outcome);
    }

    pub(super) fn begin_from(&self, book: Book) -> Self {
        let mut this = Self::new(Stages::Fixed(1), 1, 1);
        let term = book.term.next();
        let settings = this.machine.settings.clone();
        this.machine = Coordinator::begin(at(0), settings, term, book, &[]).0;
        this
    }

    fn take(&mut self, outcome: &Outcome) {
        self.records += outcome.records.len();
        self.journal.extend(outcome.records.iter().cloned());
        for effect in &outcome.effects {
            match effect {
                Effect::Send { node, ordered, .. } => {
                    let orders = self.orders.entry(node.clone()).or_default();
                    orders.push(ordered.order.clone());
                }
                Effect::StartPreparing { job, .. } => self.unprepared.push(*job),
                Effect::Arrange(question) => self.questions.push(question.clone()),
                Effect::Answer {
                    reply: Reply::Events(events),
                    ..
                } => self.told.extend(events.iter().cloned()),
                _ => {}
            }
        }
    }

    pub(super) fn input(&mut self, input: Input) -> Outcome {
        self.now += 1;
        let Now { steady, wall } = at(self.now);
        let wall = wall.plus(self.ahead);
        let outcome = self.machine.step(Now { steady, wall }, input);
        self.take(&outcome);
        outcome
    }

    /// Time passes in small steps, and nodes with a link are heard.
    pub(super) fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 100 {
            self.now += 100;
            for (node, link) in self.links.clone() {
                let since = self.hung.get(&node).copied().unwrap_or(self.now);
                let notice = Notice::Heartbeat {
                    device_age: Micros::of_millis(self.now - since),
                    memory_used: Bytes(1),
                    tokens: 1,
                };
                let link = LinkId(link);
                self.input(Input::Told { link, notice });
            }
            self.input(Input::Tick);
        }
    }

    pub(super) fn come(&mut self, node: &str, incarnation: u64, held: Option<Held>) {
        self.last_link += 1;
        self.links.insert(name(node), self.last_link);
        let told = self.numbers.get(&name(node)).copied().unwrap_or(0);
        let hello = Hello {
            node: name(node),
            incarnation,
            address: format!("{node}:1"),
            backbone: "ab".into(),
            products: shared::job::Products::F32,
            layers: 6,
            memory: self.memory,
            threads: 1,
            device: "cpu".into(),
            term: self.term,
            held,
            unheard: told + 1,
            clock: Micros(0),
        };
        self.tell(node, Notice::Hello(hello));
        if incarnation == 1 && self.machine.book.layout.replicas.is_empty() {
            // Nobody needs to read what a spare is told before there is a plan.
            self.orders
                .entry(name(node))
                .or_default()
                .retain(|o| !matches!(o, Order::Heard { .. }));
        }
    }

    pub(super) fn leave(&mut self, node: &str) {
        let link = self.links.remove(&name(node)).unwrap();
        self.input(Input::Closed(LinkId(link)));
        self.orders.remove(&name(node));
    }

    /// The process of a node ends, and says so.
    pub(super) fn end(&mut self, node: &str) -> Outcome {
        let link = self.links.remove(&name(node)).unwrap();
        self.orders.remove(&name(node));
        self.input(Input::Ended(LinkId(link)))
    }

    /// Nothing is heard of a node any more, however open its connection looks.
    pub(super) fn fall_silent(&mut self, node: &str) {
        self.links.remove(&name(node));
    }

    pub(super) fn tell(&mut self, node: &str, notice: Notice) -> Outcome {
        let link = LinkId(self.links[&name(node)]);
        self.input(Input::Told { link, notice })
    }

    /// The device of a node does not come back from its work.
    pub(super) fn hang(&mut self, node: &str) {
        self.hung.insert(name(node), self.now);
    }

    /// What a node was ordered since the last look.
    pub(super) fn orders(&mut self, node: &str) -> Vec<Order> {
        self.orders.remove(&name(node)).unwrap_or_default()
    }

    pub(super) fn prepared(&mut self, node: &str) {
        let epoch = self.machine.book.moving.unwrap();
        let outcome = Ok(());
        self.tell(node, Notice::Prepared { epoch, outcome });
    }

    pub(super) fn holding(&mut self, node: &str) {
        let epoch = self.machine.book.layout.epoch;
        let outcome = Ok(());
        self.tell(node, Notice::Holding { epoch, outcome });
    }

    /// A first stage ended its round, for the plan that is being prepared or the end.
    pub(super) fn drained(&mut self, node: &str, outcome: Result<(), String>) {
        let layout = &self.machine.book.layout;
        let (replica, _) = layout.place_of(&name(node)).unwrap();
        let epoch = layout.replicas[&replica].since;
        let toward = self.machine.book.moving.unwrap_or_default();
        let drained = Notice::Drained {
            epoch,
            toward,
            outcome,
        };
        self.tell(node, drained);
    }

    /// The first plan comes to be.
    pub(super) fn settle(&mut self, nodes: &[&str]) {
        for node in nodes {
            self.prepared(node);
        }
        for node in nodes {
            self.holding(node);
        }
        self.orders.clear();
    }

    pub(super) fn prepare(&mut self) {
        for job in std::mem::take(&mut self.unprepared) {
            let outcome = Ok(Inputs::default());
            self.input(Input::Prepared { job, outcome });
        }
    }

    /// Submits a job and brings it onto the backbone at a node.
    pub(super) fn train(&mut self, job: &str, lead: &str) -> JobId {
        let Reply::Job(view) = self.ask(Request::Submit(submission(job))) else {
            panic!("a job is accepted");
        };
        self.prepare();
        let orders = self.orders(lead);
        assert!(matches!(orders[..], [Order::Admit { .. }]), "{orders:?}");
        self.job(lead, view.id, JobNotice::Admitted { step: 0, total: 9 });
        view.id
    }

    /// Submits a job that shares its steps between the replicas of a and b, which are drained for that.
    pub(super) fn submit_wide(&mut self) -> JobId {
        let mut wide = submission("wide");
        wide.spec = wide.spec.replacen('{', r#"{"replicas":3,"#, 1);
        let Reply::Job(view) = self.ask(Request::Submit(wide)) else {
            panic!("a job is accepted");
        };
        self.prepare();
        let first = PlanEpoch(1);
        for node in ["a", "b"] {
            assert!(
                matches!(self.orders(node)[..], [Order::Drain { epoch, .. }] if epoch == first)
            );
            self.drained(node, Ok(()));
        }
        view.id
    }

    pub(super) fn numbered(
        &mut self,
        node: &str,
        epoch: PlanEpoch,
        job: JobId,
        notice: JobNotice,
    ) -> Notice {
        let number = self.numbers.entry(name(node)).or_insert(0);
        *number += 1;
        Notice::Job {
            number: *number,
            epoch,
            job,
            at: Micros(0),
            notice,
        }
    }

    /// A node tells of a job; the acknowledgement is taken for granted.
    pub(super) fn job(&mut self, node: &str, job: JobId, notice: JobNotice) -> Notice {
        let epoch = self.machine.book.layout.epoch;
        let notice = self.numbered(node, epoch, job, notice);
        self.tell(node, notice.clone());
        let orders = self.orders.entry(name(node)).or_default();
        let at = orders
            .iter()
            .position(|order| matches!(order, Order::Heard { .. }));
        orders.remove(at.expect("it is acknowledged"));
        notice
    }

    pub(super) fn ask_only(&mut self, request: Request) -> Outcome {
        let (handle, trace) = (Handle(1), "7".into());
        self.input(Input::Asked {
            handle,
            trace,
            request,
        })
    }

    pub(super) fn ask(&mut self, request: Request) -> Reply {
        let outcome = self.ask_only(request);
        let answer = outcome.effects.into_iter().find_map(|effect| match effect {
            Effect::Answer { reply, .. } => Some(reply),
            _ => None,
        });
        answer.expect("an answer")
    }

    /// Asks for a node to be empty.
    pub(super) fn drain(&mut self, node: &str, force: bool) -> Reply {
        let (node, undo) = (name(node), false);
        self.ask(Request::Drain { node, undo, force })
    }

    pub(super) fn state(&self, job: JobId) -> JobState {
        self.machine.book.ledger.get(job).unwrap().state
    }
}
