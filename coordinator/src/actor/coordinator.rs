//! The coordinator actor: inputs to the pure machine, its effects performed once its records are safe.
//!
//! Messages wait when the mailbox is full: a node that tells more than can be taken is slowed down by its own connection,
//! and so is a client. An answer that finds no room ends the client's stream; an order that finds none ends the node's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, StreamHandler};
use futures_util::stream::unfold;
use shared::units::Bytes;
use shared::wire::request::Refusal;
use tokio::sync::{mpsc, oneshot};

use super::files;
use super::journal::{Writer, Written};
use super::leadership::Leadership;
use super::logging;
use super::messages::{
    AdapterOf, Arranged, Arrived, Ask, Ending, Gone, Left, Prepare, Prepared, Question, Recalled,
    Stop, ToClient, ToNode, Told,
};
use super::meters::{Counts, Meters};
use super::planner;
use super::recall::{self, Wanted};
use super::settings::{Clock, CoordinatorSettings};
use crate::life::cluster::{Coordinator, Effect, Handle, Input, Now, Outcome};
use crate::life::membership::LinkId;

#[cfg(test)]
mod tests;

/// Messages of all kinds that may wait.
const MAILBOX: usize = 1024;
/// What is measured of the machine's state is looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// The machine and what it acts through.
pub(super) struct CoordinatorActor {
    machine: Coordinator,
    settings: CoordinatorSettings,
    meters: Meters,
    writer: Option<Writer>,
    written: Option<mpsc::UnboundedReceiver<Written>>,
    first: Option<Outcome>,
    prepare: Prepare,
    /// Dropped unused when the actor panics.
    ending: Option<oneshot::Sender<Ending>>,
    nodes: BTreeMap<LinkId, mpsc::Sender<ToNode>>,
    clients: BTreeMap<Handle, mpsc::Sender<ToClient>>,
    /// Clients whose answers found no room: the machine hears of it when their streams end.
    slow: BTreeSet<Handle>,
    last: u64,
    appended: u64,
    since_snapshot: u64,
    /// Effects whose records are not safe yet.
    waiting: VecDeque<(u64, Vec<Effect>)>,
}

impl CoordinatorActor {
    pub(super) fn new(
        leadership: Leadership,
        settings: CoordinatorSettings,
        meters: Meters,
        prepare: Prepare,
        ending: oneshot::Sender<Ending>,
    ) -> Self {
        let (machine, first) = leadership.machine;
        let (writer, written) = leadership.journal;
        Self {
            machine,
            settings,
            meters,
            writer: Some(writer),
            written: Some(written),
            first: Some(first),
            prepare,
            ending: Some(ending),
            nodes: BTreeMap::new(),
            clients: BTreeMap::new(),
            slow: BTreeSet::new(),
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
        if self.ending.is_none() {
            return;
        }
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
        let now = (self.settings.steady)();
        for record in &records {
            self.meters.note(now, record);
            logging::note(record, &self.machine.book().ledger);
        }
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
            writer.snapshot(self.machine.book().clone(), self.settings.events_kept);
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
                    follow,
                } => self.recall(handle, Wanted { job, after, until }, follow, context),
                Effect::StartPreparing { job, submission } => {
                    (self.prepare)(job, submission, context.address().recipient());
                }
                Effect::Arrange(question) => {
                    let (actor, clock) = (context.address().recipient(), &self.settings.steady);
                    actix::spawn(planner::ask(question, actor, Clock::clone(clock)));
                }
                Effect::Finished => self.end(Ending::Asked),
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
            self.slow.insert(handle);
        }
    }

    /// Events that are in the journal only go to the client from a task of their own; the machine goes on behind them.
    fn recall(&self, handle: Handle, wanted: Wanted, follow: bool, context: &Context<Self>) {
        let client = self.clients.get(&handle).cloned();
        let (Some(client), Some(writer)) = (client, &self.writer) else {
            return;
        };
        let (reader, actor) = (writer.reader(), context.address());
        actix::spawn(async move {
            if recall::tell(reader, wanted, &client).await {
                // What follows is not waited for: it needs the room that this took. A client that is gone needs none.
                let _ = client.reserve_many(client.max_capacity()).await;
                let (job, after) = (wanted.job, wanted.until);
                let recalled = Recalled {
                    handle,
                    job,
                    after,
                    follow,
                };
                // An actor that is gone has ended the client's stream.
                let _ = actor.send(recalled).await;
            }
        });
    }

    /// Whoever runs the actor is told once why it ends, and ends it.
    fn end(&mut self, why: Ending) {
        if let Some(ending) = self.ending.take() {
            // Nobody listens only when the process ends already.
            let _ = ending.send(why);
        }
    }

    fn look(&mut self) {
        let book = self.machine.book();
        let counts = Counts {
            waiting: book.ledger.waiting().count(),
            events: book.last.0,
            ignored: self.machine.ignored(),
        };
        let now = (self.settings.steady)();
        self.meters.look(now, &self.machine.view(), &counts);
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
        context.run_interval(LOOK, |actor, _| actor.look());
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
            Written::Failed(error) => self.end(Ending::Failed(error.to_string())),
        }
    }

    /// The journal's thread ended: it said why before, unless it panicked.
    fn finished(&mut self, _: &mut Self::Context) {
        let why = "the journal's thread panicked: start the coordinator again, and report the lines before this";
        self.end(Ending::Failed(why.into()));
    }
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

impl Handler<AdapterOf> for CoordinatorActor {
    type Result = Result<Vec<(String, String, Bytes)>, Refusal>;

    fn handle(&mut self, AdapterOf(job): AdapterOf, _: &mut Self::Context) -> Self::Result {
        files::adapter(&self.machine.book().ledger, &job)
    }
}

impl Handler<Gone> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Gone(handle): Gone, context: &mut Self::Context) {
        let waited = self.clients.remove(&handle).is_some();
        if self.slow.remove(&handle) || waited {
            self.take(Input::Dropped(handle), context);
        }
    }
}

impl Handler<Recalled> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, recalled: Recalled, context: &mut Self::Context) {
        let Recalled {
            handle,
            job,
            after,
            follow,
        } = recalled;
        if self.clients.contains_key(&handle) {
            let input = Input::Recalled {
                handle,
                job,
                after,
                follow,
            };
            self.take(input, context);
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
        self.meters.told();
        self.take(Input::Told { link, notice }, context);
    }
}

impl Handler<Left> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, left: Left, context: &mut Self::Context) {
        self.nodes.remove(&left.link);
        let input = match left.said_so {
            true => Input::Ended(left.link),
            false => Input::Closed(left.link),
        };
        self.take(input, context);
    }
}

impl Handler<Prepared> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Prepared(job, outcome): Prepared, context: &mut Self::Context) {
        self.take(Input::Prepared { job, outcome }, context);
    }
}

impl Handler<Arranged> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, Arranged(answer): Arranged, context: &mut Self::Context) {
        self.take(Input::Arranged(answer), context);
    }
}

impl Handler<Stop> for CoordinatorActor {
    type Result = ();

    fn handle(&mut self, _: Stop, _: &mut Self::Context) {
        self.end(Ending::Asked);
    }
}
