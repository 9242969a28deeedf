//! The stage actor: what the coordinator and the stage say goes to [`Duty`]; its effects are performed.
//!
//! Messages wait when the mailbox is full, those of the coordinator on the network's side and those of the stage in
//! the order of their reports. Nothing is refused, and nothing replaces another.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use shared::units::Micros;
use shared::wire::notice::{Departure, Notice};
use tokio::sync::{mpsc, oneshot};

use super::meters::{Meters, Standing};
use super::resident::Resident;
use super::running::Command;
use super::settings::Clock;
use super::tasks::Task;
use super::traces::Traces;
use super::uplink::Uplinked;
use crate::duty::{Duty, Effect, Event};

/// Messages of each kind that may wait.
const MAILBOX: usize = 256;
/// What is measured of the node's standing is looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// A node's duty and what it is done with.
pub(super) struct StageActor {
    pub(super) duty: Duty,
    pub(super) uplink: Option<mpsc::Sender<Notice>>,
    pub(super) holder: mpsc::UnboundedSender<Task>,
    pub(super) traces: Arc<Traces>,
    pub(super) heartbeat: Duration,
    /// Never jumps.
    pub(super) steady: Clock,
    pub(super) meters: Arc<Meters>,
    /// What the program itself takes: what was resident before any layer was opened.
    pub(super) program: Resident,
    /// Once the process is asked to end: until when it stays at most, and what was told.
    pub(super) leaving: Option<(Micros, Departure)>,
    /// Never used, only dropped: the process must not stay without its actor.
    pub(super) _alive: oneshot::Sender<()>,
}

/// Something happened on the stage. When the mailbox is full it waits: what is in it is in order, and none is left out.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Happened(pub(super) Event);

/// Something happened on the uplink. When the mailbox is full it waits, and the coordinator with it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Uplink(pub(super) Uplinked);

/// The machine may be taken, for this cause, or no more. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct AtRisk(pub(super) Option<String>);

/// The process is asked to end. When the mailbox is full it waits.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Leave(pub(super) Departure);

impl Actor for StageActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX);
        context.run_interval(self.heartbeat, |actor, _| actor.beat());
        context.run_interval(LOOK, |actor, _| actor.look());
    }
}

impl Handler<Happened> for StageActor {
    type Result = ();

    fn handle(&mut self, Happened(event): Happened, _: &mut Self::Context) {
        let effects = self.duty.step(event);
        self.apply(effects);
    }
}

impl Handler<Uplink> for StageActor {
    type Result = ();

    fn handle(&mut self, Uplink(told): Uplink, _: &mut Self::Context) {
        let event = match told {
            Uplinked::Up(outbox) => {
                self.uplink = Some(outbox);
                Event::Connected
            }
            Uplinked::Ordered(ordered) => Event::Ordered(*ordered),
            Uplinked::Down => {
                self.uplink = None;
                Event::Disconnected
            }
        };
        let connected = event == Event::Connected;
        let effects = self.duty.step(event);
        self.apply(effects);
        if let Some((until, departure)) = self.leaving.filter(|_| connected) {
            let within = until.since((self.steady)());
            let departure = Departure {
                within,
                ..departure
            };
            let effects = self.duty.step(Event::Leaving(departure));
            self.apply(effects);
        }
    }
}

impl Handler<AtRisk> for StageActor {
    type Result = ();

    fn handle(&mut self, AtRisk(cause): AtRisk, _: &mut Self::Context) {
        let effects = self.duty.step(Event::AtRisk(cause));
        self.apply(effects);
    }
}

impl Handler<Leave> for StageActor {
    type Result = ();

    fn handle(&mut self, Leave(departure): Leave, context: &mut Self::Context) {
        let until = (self.steady)().plus(departure.within);
        self.leaving = Some((until, departure));
        let effects = self.duty.step(Event::Leaving(departure));
        self.apply(effects);
        // Let go or not.
        let within = Duration::from_micros(departure.within.0);
        context.run_later(within, |actor, _| actor.apply(vec![Effect::Stop]));
    }
}

impl StageActor {
    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Tell(notice) => self.tell(notice),
                Effect::Open(post) => self.hold(Task::Open(post)),
                Effect::Take(post) => self.hold(Task::Take(post)),
                Effect::LetGo => self.hold(Task::LetGo),
                Effect::Admit(jobs) => self.hold(Task::Lead(Command::Admit(jobs))),
                Effect::Act(job, action) => self.hold(Task::Lead(Command::Act(job, action))),
                Effect::Drain { toward, soon } => {
                    self.hold(Task::Lead(Command::Drain { toward, soon }));
                }
                Effect::Undrain => self.hold(Task::Lead(Command::Undrain)),
                Effect::Arrange(arrangement) => {
                    self.hold(Task::Lead(Command::Arrange(arrangement)));
                }
                Effect::Hasten(steps) => self.hold(Task::Lead(Command::Hasten(steps))),
                Effect::Sample(sample) => self.hold(Task::Lead(Command::Sample(sample))),
                Effect::EndSample(number) => self.hold(Task::Lead(Command::EndSample(number))),
                Effect::Trace { number, job, step } => {
                    let spans = self.traces.of(job, step);
                    self.tell(Notice::Spans { number, spans });
                }
                Effect::Stop => self.hold(Task::Stop),
            }
        }
    }

    /// A notice that finds no room ends the connection; what must not be lost is told on the next.
    fn tell(&mut self, notice: Notice) {
        let full = self
            .uplink
            .as_ref()
            .is_some_and(|uplink| uplink.try_send(notice).is_err());
        if full {
            self.uplink = None;
        }
    }

    fn hold(&self, task: Task) {
        // A holder that ended ends the process.
        let _ = self.holder.send(task);
    }

    fn beat(&mut self) {
        let notice = Notice::Heartbeat {
            device_age: self.traces.device_age(),
            memory_used: Resident::now().beyond(&self.program, self.traces.weights()),
            tokens: self.traces.tokens(),
        };
        self.tell(notice);
    }

    fn look(&self) {
        let now = (self.steady)();
        let standing = Standing {
            epoch: self.duty.epoch(),
            term: self.duty.term(),
            device_age: self.traces.device_age(),
            connected: self.uplink.is_some(),
        };
        self.meters.look(now, &standing);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use actix::System;
    use actix::prelude::SendError;
    use shared::ids::{NodeName, Term};
    use shared::job::Products;
    use shared::units::Bytes;
    use shared::wire::notice::Hello;

    use super::*;

    fn actor(room: usize) -> (StageActor, mpsc::Receiver<Notice>) {
        let node = NodeName::new("n1").unwrap();
        let (outbox, told) = mpsc::channel(room);
        let (holder, _) = mpsc::unbounded_channel();
        let (alive, _) = oneshot::channel();
        let hello = Hello {
            node: node.clone(),
            incarnation: 1,
            address: String::new(),
            backbone: String::new(),
            layers: 1,
            memory: Bytes(0),
            threads: 1,
            products: Products::F32,
            device: String::new(),
            term: Term(0),
            held: None,
            unheard: 1,
            clock: Micros(0),
        };
        let actor = StageActor {
            duty: Duty::new(hello),
            uplink: Some(outbox),
            holder,
            traces: Traces::new(node, 1, Arc::new(|| Micros(0))),
            heartbeat: Duration::from_secs(3600),
            steady: Arc::new(|| Micros(0)),
            meters: Meters::new(Micros(0)),
            program: Resident::default(),
            leaving: None,
            _alive: alive,
        };
        (actor, told)
    }

    #[test]
    fn a_notice_that_finds_no_room_ends_the_connection() {
        let (mut actor, mut told) = actor(1);
        actor.beat();
        assert!(actor.uplink.is_some());
        actor.beat();
        assert!(actor.uplink.is_none());
        assert!(matches!(told.try_recv(), Ok(Notice::Heartbeat { .. })));
        // Whoever serves the connection sees that nothing follows, and starts over.
        assert!(matches!(
            told.try_recv(),
            Err(mpsc::error::TryRecvError::Disconnected)
        ));
    }

    #[test]
    fn what_fills_the_mailbox_waits_and_all_of_it_is_taken() {
        let system = System::new();
        let taken = system.block_on(async {
            let (actor, _told) = actor(1);
            let actor = actor.start();
            // Once, so that the capacity is set. Until the next await the actor is not polled.
            actor.send(Uplink(Uplinked::Down)).await.unwrap();
            for number in 1..=MAILBOX {
                let sent = actor.try_send(Uplink(Uplinked::Down));
                assert!(sent.is_ok(), "message {number} finds no room");
            }
            let more = actor.try_send(Uplink(Uplinked::Down));
            assert!(matches!(more, Err(SendError::Full(_))), "{more:?}");
            let sends: Vec<_> = (0..3 * MAILBOX)
                .map(|_| actix::spawn(actor.send(Uplink(Uplinked::Down))))
                .collect();
            let mut taken = 0;
            for send in sends {
                taken += usize::from(send.await.unwrap().is_ok());
            }
            taken
        });
        assert_eq!(taken, 3 * MAILBOX);
    }
}
