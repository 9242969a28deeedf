//! What a node owes the cluster: orders in, notices out, as a pure state machine around one stage.
//!
//! The device holds at most one stage and has at most one more open beside it, for the plan that comes. What must not
//! be lost is numbered and kept until the journal has it, so that a coordinator may be away while jobs train on.
//!
//! | id | invariant |
//! | --- | --- |
//! | DU-1 | the highest term heard never falls, and an order of an older one has no effect but an answer |
//! | DU-2 | the epoch held never falls, and an order for another plan than the one held has no effect but an answer |
//! | DU-3 | a numbered notice is told again after every reconnection until it is heard, in the order of its number |
//! | DU-4 | nothing that the device did for a plan that is no longer held is told |
//! | DU-5 | a node that leaves stays until it is let go; without a coordinator, until its own steps are durable |
//! | DU-6 | a node says on each connection that its machine may be taken, for as long as it may |
//! | DU-7 | what one leadership hastened holds for that leadership and that post only |

mod leaving;
mod post;
mod refusal;
mod unheard;
mod word;

use std::collections::{BTreeMap, BTreeSet};

use shared::ids::{JobId, PlanEpoch, Term};
use shared::plan::Replica;
use shared::units::Micros;
use shared::wire::notice::{Held, Hello, JobNotice, Notice};
use shared::wire::order::{JobAction, Order, Ordered};

pub use self::post::Post;
use self::post::Standing;
use self::unheard::Unheard;
pub use self::word::{Effect, Event};

#[cfg(test)]
mod tests;

/// The state of a node.
#[derive(Clone, Debug)]
pub struct Duty {
    hello: Hello,
    connected: bool,
    leaving: bool,
    term: Term,
    held: Option<(Post, Standing)>,
    /// What was opened for, and whether it is.
    open: Option<(PlanEpoch, bool)>,
    /// Steps taken of the jobs of the post held; one that ended stays until its end is heard.
    jobs: BTreeMap<JobId, u64>,
    /// Why the machine may be taken, and whether that was ever said.
    risk: (Option<String>, bool),
    /// Whether the lead stores states more often than its jobs ask.
    hastened: bool,
    /// Jobs that halt, or are about to.
    paused: BTreeSet<JobId>,
    unheard: Unheard,
}

impl Duty {
    /// A node that holds nothing. `hello` says what it is; term, holding and the first notice in it are filled in.
    #[must_use]
    pub fn new(hello: Hello) -> Self {
        Self {
            hello,
            connected: false,
            leaving: false,
            term: Term(0),
            held: None,
            open: None,
            jobs: BTreeMap::new(),
            risk: (None, false),
            hastened: false,
            paused: BTreeSet::new(),
            unheard: Unheard::new(),
        }
    }

    /// Takes an event and says what is to be done.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Connected => self.connect(&mut effects),
            Event::Disconnected => {
                self.connected = false;
                self.fend(&mut effects);
            }
            Event::Leaving(departure) => self.leave(departure, &mut effects),
            Event::AtRisk(cause) => {
                if self.risk.0 != cause {
                    self.risk = (cause.clone(), true);
                    self.tell(Notice::AtRisk { cause }, &mut effects);
                }
            }
            Event::Ordered(Ordered { term, order }) => {
                if term < self.term {
                    let reason =
                        format!("the order is of term {term}: a newer leadership was heard");
                    self.refuse(reason, &mut effects);
                } else {
                    if term > self.term && std::mem::take(&mut self.hastened) {
                        // DU-7: the one that comes says it again.
                        effects.push(Effect::Hasten(0));
                    }
                    self.term = term;
                    self.obey(order, &mut effects);
                }
            }
            Event::Opened(epoch, outcome) => {
                if self.open.is_some_and(|(wanted, _)| wanted == epoch) {
                    // What failed is tried again when it is ordered again: this answer may not have been heard.
                    self.open = outcome.is_ok().then_some((epoch, true));
                    self.tell(Notice::Prepared { epoch, outcome }, &mut effects);
                }
            }
            Event::Linked(epoch, outcome) => self.link(epoch, outcome, &mut effects),
            Event::Drained([epoch, toward], outcome) => {
                if self.holds(epoch) {
                    let durable = outcome.is_ok();
                    let drained = Notice::Drained {
                        epoch,
                        toward,
                        outcome,
                    };
                    self.tell(drained, &mut effects);
                    if durable && self.leaving && !self.connected {
                        effects.push(Effect::Stop);
                    }
                }
            }
            Event::Broken(epoch, neighbour, reason) => {
                if let Some((post, standing)) = &mut self.held
                    && post.epoch == epoch
                    && *standing != Standing::Broken
                {
                    *standing = Standing::Broken;
                    let broken = Notice::Broken {
                        epoch,
                        neighbour,
                        reason,
                    };
                    self.tell(broken, &mut effects);
                    self.fend(&mut effects);
                }
            }
            Event::Job(epoch, job, at, notice) => {
                if self.holds(epoch) {
                    self.note(epoch, job, at, notice, &mut effects);
                }
            }
            Event::Piece(number, tokens) => {
                self.tell(Notice::Piece { number, tokens }, &mut effects);
            }
            Event::SampleEnded(number, outcome) => {
                self.tell(Notice::SampleEnded { number, outcome }, &mut effects);
            }
            Event::Spans(number, spans) => self.tell(Notice::Spans { number, spans }, &mut effects),
        }
        effects
    }

    /// The plan of the post held.
    #[must_use]
    pub fn epoch(&self) -> Option<PlanEpoch> {
        self.held.as_ref().map(|(post, _)| post.epoch)
    }

    /// The highest term heard.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    fn holds(&self, epoch: PlanEpoch) -> bool {
        self.epoch() == Some(epoch)
    }

    fn connect(&mut self, effects: &mut Vec<Effect>) {
        self.connected = true;
        let held = self.held.as_ref().map(|(post, standing)| Held {
            epoch: post.epoch,
            replica: post.replica.number,
            stage: post.stage,
            linked: *standing == Standing::Linked,
            jobs: self.jobs.iter().map(|(&job, &step)| (job, step)).collect(),
            paused: self.paused.iter().copied().collect(),
        });
        let hello = Hello {
            term: self.term,
            held,
            unheard: self.unheard.first(),
            ..self.hello.clone()
        };
        effects.push(Effect::Tell(Notice::Hello(hello)));
        if self.risk.1 {
            let cause = self.risk.0.clone();
            effects.push(Effect::Tell(Notice::AtRisk { cause }));
        }
        self.unheard.begin();
        self.tell_due(effects);
    }

    fn forget_jobs(&mut self) {
        self.hastened = false;
        self.jobs.clear();
        self.unheard.forget_ends();
        self.paused.clear();
    }

    fn tell(&mut self, notice: Notice, effects: &mut Vec<Effect>) {
        if self.connected {
            effects.extend(self.unheard.hold_back(notice).map(Effect::Tell));
        }
    }

    fn tell_due(&mut self, effects: &mut Vec<Effect>) {
        if self.connected {
            effects.extend(self.unheard.due().into_iter().map(Effect::Tell));
        }
    }

    fn obey(&mut self, order: Order, effects: &mut Vec<Effect>) {
        match order {
            Order::Prepare {
                epoch,
                replica,
                stage,
            } => match replica.fault(stage) {
                None => self.prepare(epoch, replica, stage, effects),
                Some(fault) => {
                    let outcome = Err(fault);
                    self.tell(Notice::Prepared { epoch, outcome }, effects);
                }
            },
            Order::Hold {
                epoch,
                replica,
                stage,
            } => match replica.fault(stage) {
                None => self.hold(epoch, replica, stage, effects),
                Some(fault) => {
                    let outcome = Err(fault);
                    self.tell(Notice::Holding { epoch, outcome }, effects);
                }
            },
            Order::Release { epoch } => self.release(epoch, effects),
            Order::Drain {
                epoch,
                toward,
                soon,
            } => {
                let drain = |_: &Self| Effect::Drain { toward, soon };
                self.if_leading(epoch, "drain", effects, drain);
            }
            Order::Undrain { epoch } => {
                self.if_leading(epoch, "undrain", effects, |_| Effect::Undrain);
            }
            Order::Admit { epoch, jobs } => {
                if self.leads(epoch) {
                    let halted = jobs.iter().filter(|order| order.paused);
                    self.paused.extend(halted.map(|order| order.job));
                }
                self.if_leading(epoch, "admit", effects, |_| Effect::Admit(jobs));
            }
            Order::Act { epoch, job, action } => {
                match action {
                    _ if !self.leads(epoch) => {}
                    JobAction::Pause => {
                        self.paused.insert(job);
                    }
                    JobAction::Resume | JobAction::Cancel => {
                        self.paused.remove(&job);
                    }
                }
                self.if_leading(epoch, "act", effects, |_| Effect::Act(job, action));
            }
            Order::Sample { epoch, sample } => {
                let number = sample.number;
                if self.leads(epoch) {
                    effects.push(Effect::Sample(sample));
                } else {
                    let outcome = Err(self.not_leading(epoch, "sample"));
                    self.tell(Notice::SampleEnded { number, outcome }, effects);
                }
            }
            Order::Heard { notice } => {
                for job in self.unheard.heard(notice) {
                    self.jobs.remove(&job);
                    self.paused.remove(&job);
                }
                self.tell_due(effects);
            }
            Order::Trace { number, job, step } => {
                effects.push(Effect::Trace { number, job, step });
            }
            Order::Arrange { epoch, arrangement } => match arrangement.fault() {
                None => {
                    let arrange = |_: &Self| Effect::Arrange(arrangement);
                    self.if_leading(epoch, "arrange", effects, arrange);
                }
                Some(fault) => self.refuse(fault, effects),
            },
            Order::Hasten { epoch, every_steps } => {
                if self.leads(epoch) {
                    self.hastened = every_steps > 0;
                }
                self.if_leading(epoch, "hasten", effects, |_| Effect::Hasten(every_steps));
            }
            Order::EndSample { epoch, number } => {
                if self.leads(epoch) {
                    effects.push(Effect::EndSample(number));
                }
            }
            Order::Stop => effects.push(Effect::Stop),
        }
    }

    fn prepare(
        &mut self,
        epoch: PlanEpoch,
        replica: Replica,
        stage: u32,
        effects: &mut Vec<Effect>,
    ) {
        if self.epoch().is_some_and(|held| held >= epoch) {
            return self.refuse(self.older(epoch), effects);
        }
        match self.open {
            Some((open, true)) if open == epoch => {
                let outcome = Ok(());
                self.tell(Notice::Prepared { epoch, outcome }, effects);
            }
            Some((open, false)) if open == epoch => {}
            _ => {
                self.open = Some((epoch, false));
                effects.push(Effect::Open(self.post(epoch, replica, stage)));
            }
        }
    }

    fn hold(&mut self, epoch: PlanEpoch, replica: Replica, stage: u32, effects: &mut Vec<Effect>) {
        match &self.held {
            Some((post, _)) if post.epoch > epoch => {
                return self.refuse(self.older(epoch), effects);
            }
            // Told before: the answer was lost, or is to come.
            Some((post, standing)) if post.epoch == epoch => {
                let outcome = match standing {
                    Standing::Taking => return,
                    Standing::Linked => Ok(()),
                    Standing::Broken => Err(format!("the stage of plan {epoch} is broken")),
                };
                return self.tell(Notice::Holding { epoch, outcome }, effects);
            }
            _ => {}
        }
        let post = self.post(epoch, replica, stage);
        self.open = None;
        self.forget_jobs();
        self.held = Some((post.clone(), Standing::Taking));
        effects.push(Effect::Take(post));
    }

    fn release(&mut self, epoch: PlanEpoch, effects: &mut Vec<Effect>) {
        if self.open.is_some_and(|(open, _)| open <= epoch) {
            self.open = None;
        }
        if self.epoch().is_some_and(|held| held <= epoch) {
            self.held = None;
            self.forget_jobs();
        }
        if self.held.is_none() && self.open.is_none() {
            effects.push(Effect::LetGo);
        }
    }

    fn link(&mut self, epoch: PlanEpoch, outcome: Result<(), String>, effects: &mut Vec<Effect>) {
        let Some((post, standing)) = &mut self.held else {
            return;
        };
        if post.epoch != epoch || *standing != Standing::Taking {
            return;
        }
        *standing = match outcome {
            Ok(()) => Standing::Linked,
            Err(_) => Standing::Broken,
        };
        self.tell(Notice::Holding { epoch, outcome }, effects);
    }

    fn post(&self, epoch: PlanEpoch, replica: Replica, stage: u32) -> Post {
        Post {
            epoch,
            term: self.term,
            replica,
            stage,
        }
    }

    fn note(
        &mut self,
        epoch: PlanEpoch,
        job: JobId,
        at: Micros,
        notice: JobNotice,
        effects: &mut Vec<Effect>,
    ) {
        let mut ended = None;
        match &notice {
            JobNotice::Admitted { step, .. } | JobNotice::Step { step, .. } => {
                self.jobs.insert(job, *step);
            }
            JobNotice::Refused(_) | JobNotice::Exported { .. } | JobNotice::Cancelled { .. } => {
                ended = Some(job);
            }
            _ => {}
        }
        let number = self.unheard.next();
        let told = Notice::Job {
            number,
            epoch,
            job,
            at,
            notice,
        };
        self.unheard.keep(told, ended);
        self.tell_due(effects);
    }
}
