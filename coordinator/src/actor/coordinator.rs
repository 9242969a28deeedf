//! The coordinator actor: inputs to the pure machine, its effects performed once its records are safe.
//!
//! Messages wait when the mailbox is full: a node that tells more than can be taken is slowed down by its own connection,
//! and so is a client. An answer that finds no room ends the client's stream; an order that finds none ends the node's.

use std::collections::{BTreeMap, VecDeque};

use actix::{Actor, AsyncContext, Context, Handler, Message, StreamHandler, System};
use futures_util::stream::unfold;
use shared::ids::{EventNumber, JobId};
use shared::life::Reason;
use shared::wire::notice::Notice;
use shared::wire::order::{Ordered, SampleOrder};
use shared::wire::request::{JobRef, Reply, Request, Submission};
use tokio::sync::mpsc;

use super::journal::{Writer, Written};
use super::settings::CoordinatorSettings;
use crate::life::cluster::{Coordinator, Effect, Handle, Input, Now, Outcome};
use crate::life::membership::LinkId;
use crate::record::{Inputs, Record};

/// Messages of all kinds that may wait.
const MAILBOX: usize = 1024;

/// What a node's connection is told.
#[derive(Debug)]
pub(super) enum ToNode {
    Order(Box<Ordered>),
    Close(String),
}

/// What a client's stream is told.
#[derive(Debug)]
pub(super) enum ToClient {
    Reply(Box<Reply>, bool),
    Tokens(Vec<u32>),
}

/// Answers that may wait for a client's network.
pub(super) const ANSWERS: usize = 256;
/// Orders that may wait for a node's network.
pub(super) const ORDERS: usize = 1024;

/// What a client asks of the machine.
#[derive(Debug)]
pub(super) enum Question {
    Request { trace: String, request: Request },
    Sample(Option<JobRef>, SampleOrder),
}

/// A client asks; its number.
#[derive(Debug, Message)]
#[rtype(result = "Handle")]
pub(super) struct Ask(pub(super) Question, pub(super) mpsc::Sender<ToClient>);

/// A client no longer waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Gone(pub(super) Handle);

/// A node connected; its number.
#[derive(Debug, Message)]
#[rtype(result = "LinkId")]
pub(super) struct Arrived(pub(super) mpsc::Sender<ToNode>);

/// A node tells.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Told(pub(super) LinkId, pub(super) Notice);

/// A node's connection ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Left(pub(super) LinkId);

/// The files of a job were read.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Prepared(pub(super) JobId, pub(super) Result<Inputs, Reason>);

/// The process is asked to end; the cluster stays.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Stop;

/// Starts the preparing of a job; answers as `Prepared`.
pub(super) type Prepare = Box<dyn Fn(JobId, Submission, actix::Addr<CoordinatorActor>)>;

/// The machine and what it acts through.
pub(super) struct CoordinatorActor {
    pub(super) machine: Coordinator,
    pub(super) settings: CoordinatorSettings,
    pub(super) writer: Option<Writer>,
    pub(super) written: Option<mpsc::UnboundedReceiver<Written>>,
    pub(super) first: Option<Outcome>,
    pub(super) prepare: Prepare,
    pub(super) failed: mpsc::UnboundedSender<String>,
    nodes: BTreeMap<LinkId, mpsc::Sender<ToNode>>,
    clients: BTreeMap<Handle, mpsc::Sender<ToClient>>,
    last: u64,
    appended: u64,
    since_snapshot: u64,
    /// Effects whose records are not safe yet.
    waiting: VecDeque<(u64, Vec<Effect>)>,
}

impl CoordinatorActor {
    pub(super) fn new(
        (machine, first): (Coordinator, Outcome),
        settings: CoordinatorSettings,
        (writer, written): (Writer, mpsc::UnboundedReceiver<Written>),
        prepare: Prepare,
        failed: mpsc::UnboundedSender<String>,
    ) -> Self {
        Self {
            machine,
            settings,
            writer: Some(writer),
            written: Some(written),
            first: Some(first),
            prepare,
            failed,
            nodes: BTreeMap::new(),
            clients: BTreeMap::new(),
            last: 0,
            appended: 0,
            since_snapshot: 0,
            waiting: VecDeque::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn take(&mut self, input: Input, context: &Context<Self>) {
        let now = Now {
            steady: (self.settings.steady)(),
            wall: (self.settings.wall)(),
        };
        let outcome = self.machine.step(now, input);
        self.follow(outcome, context);
    }

    /// Effects are performed in order, each after the records before it are safe.
    fn follow(&mut self, outcome: Outcome, context: &Context<Self>) {
        let Outcome { records, effects } = outcome;
        if records.is_empty() && self.waiting.is_empty() {
            return self.perform(effects, context);
        }
        if records.is_empty() && effects.is_empty() {
            return;
        }
        self.appended += 1;
        self.since_snapshot += records.len() as u64;
        self.waiting.push_back((self.appended, effects));
        let Some(writer) = &self.writer else { return };
        writer.append(self.appended, records);
        if self.since_snapshot >= self.settings.snapshot_every {
            self.since_snapshot = 0;
            writer.snapshot(self.machine.book().clone());
        }
    }

    fn perform(&mut self, effects: Vec<Effect>, context: &Context<Self>) {
        for effect in effects {
            match effect {
                Effect::Send { link, ordered, .. } => {
                    self.tell_node(link, ToNode::Order(Box::new(ordered)));
                }
                Effect::Close { link, reason } => {
                    self.tell_node(link, ToNode::Close(reason));
                    self.nodes.remove(&link);
                }
                Effect::Answer {
                    handle,
                    reply,
                    last,
                } => {
                    self.tell_client(handle, ToClient::Reply(Box::new(reply), last));
                    if last {
                        self.clients.remove(&handle);
                    }
                }
                Effect::Piece { handle, tokens } => {
                    self.tell_client(handle, ToClient::Tokens(tokens));
                }
                Effect::Recall {
                    handle,
                    job,
                    after,
                    until,
                    last,
                } => self.recall(handle, job, (after, until), last),
                Effect::StartPreparing { job, submission } => {
                    (self.prepare)(job, submission, context.address());
                }
                Effect::Deposed { term } => {
                    self.fail(format!("term {term} leads: this coordinator stops"));
                }
                Effect::Finished => System::current().stop(),
            }
        }
    }

    fn tell_node(&mut self, link: LinkId, told: ToNode) {
        let full = self
            .nodes
            .get(&link)
            .is_some_and(|node| node.try_send(told).is_err());
        if full {
            self.nodes.remove(&link);
        }
    }

    fn tell_client(&mut self, handle: Handle, told: ToClient) {
        let full = self
            .clients
            .get(&handle)
            .is_some_and(|client| client.try_send(told).is_err());
        if full {
            self.clients.remove(&handle);
        }
    }

    /// Events that are in the journal only go to the client from a task of their own, in portions.
    fn recall(
        &mut self,
        handle: Handle,
        job: Option<JobId>,
        (after, until): (EventNumber, EventNumber),
        last: bool,
    ) {
        const PORTION: u32 = 500;
        let client = if last {
            self.clients.remove(&handle)
        } else {
            self.clients.get(&handle).cloned()
        };
        let (Some(client), Some(writer)) = (client, &self.writer) else {
            return;
        };
        let reader = writer.reader();
        actix::spawn(async move {
            let mut from = after;
            while from < until {
                let records = reader.read(from, PORTION).await.unwrap_or_default();
                let Some(newest) = records.last().map(|record| record.number) else {
                    break;
                };
                let wanted = records.iter().filter(|record| {
                    record.number <= until && job.is_none_or(|job| record.change.job() == Some(job))
                });
                let events = wanted.map(Record::view).collect();
                from = newest;
                let reply = Box::new(Reply::Events(events));
                if client.send(ToClient::Reply(reply, false)).await.is_err() {
                    return;
                }
            }
            if last {
                let _ = client
                    .send(ToClient::Reply(Box::new(Reply::Done), true))
                    .await;
            }
        });
    }

    fn fail(&self, reason: String) {
        // Nobody listens only when the process ends already.
        let _ = self.failed.send(reason);
        System::current().stop();
    }
}

impl Actor for CoordinatorActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
        if let Some(written) = self.written.take() {
            let stream = unfold(written, |mut written| async move {
                written.recv().await.map(|told| (told, written))
            });
            context.add_stream(Box::pin(stream));
        }
        if let Some(first) = self.first.take() {
            self.follow(first, context);
        }
        context.run_interval(self.settings.tick, |actor, context| {
            actor.take(Input::Tick, context);
        });
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        if let Some(writer) = self.writer.take() {
            writer.end();
        }
    }
}

impl StreamHandler<Written> for CoordinatorActor {
    fn handle(&mut self, told: Written, context: &mut Self::Context) {
        match told {
            Written::UpTo(number) => {
                while self.waiting.front().is_some_and(|(own, _)| *own <= number) {
                    let (_, effects) = self.waiting.pop_front().expect("it was there");
                    self.perform(effects, context);
                }
            }
            // What was decided and is not written must not be acted on.
            Written::Failed(error) => self.fail(error.to_string()),
        }
    }

    /// The journal's thread ended: it said why before.
    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<Ask> for CoordinatorActor {
    type Result = actix::MessageResult<Ask>;

    fn handle(&mut self, Ask(question, answers): Ask, context: &mut Self::Context) -> Self::Result {
        let handle = Handle(self.number());
        self.clients.insert(handle, answers);
        let input = match question {
            Question::Request { trace, request } => Input::Asked {
                handle,
                trace,
                request,
            },
            Question::Sample(job, order) => Input::Sample { handle, job, order },
        };
        self.take(input, context);
        actix::MessageResult(handle)
    }
}

impl Handler<Gone> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Gone(handle): Gone, context: &mut Self::Context) {
        if self.clients.remove(&handle).is_some() {
            self.take(Input::Dropped(handle), context);
        }
    }
}

impl Handler<Arrived> for CoordinatorActor {
    type Result = actix::MessageResult<Arrived>;

    fn handle(&mut self, Arrived(node): Arrived, _: &mut Self::Context) -> Self::Result {
        let link = LinkId(self.number());
        self.nodes.insert(link, node);
        actix::MessageResult(link)
    }
}

impl Handler<Told> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Told(link, notice): Told, context: &mut Self::Context) {
        self.take(Input::Told { link, notice }, context);
    }
}

impl Handler<Left> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Left(link): Left, context: &mut Self::Context) {
        self.nodes.remove(&link);
        self.take(Input::Closed(link), context);
    }
}

impl Handler<Prepared> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Prepared(job, outcome): Prepared, context: &mut Self::Context) {
        self.take(Input::Prepared { job, outcome }, context);
    }
}

impl Handler<Stop> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, _: Stop, _: &mut Self::Context) {
        System::current().stop();
    }
}
