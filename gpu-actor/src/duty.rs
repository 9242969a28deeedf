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

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shared::ids::{JobId, NodeName, PlanEpoch, Term};
use shared::plan::Replica;
use shared::units::Micros;
use shared::wire::notice::{Held, Hello, JobNotice, Notice};
use shared::wire::order::{JobAction, JobOrder, Order, Ordered, SampleOrder};
use shared::wire::view::SpanView;

#[cfg(test)]
mod tests;

/// One stage of one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// The plan.
    pub epoch: PlanEpoch,
    /// The leadership that gave it.
    pub term: Term,
    /// The replica.
    pub replica: Replica,
    /// Which of its stages.
    pub stage: u32,
}

impl Post {
    fn leads(&self) -> bool {
        self.stage == 0
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The coordinator is reached.
    Connected,
    /// The coordinator is no longer reached.
    Disconnected,
    /// It ordered something.
    Ordered(Ordered),
    /// The layers of a post are open, or cannot be.
    Opened(PlanEpoch, Result<(), String>),
    /// A post is held and linked to its neighbours, or cannot be.
    Linked(PlanEpoch, Result<(), String>),
    /// The lead has finished and starts nothing more.
    Drained(PlanEpoch),
    /// The post cannot go on.
    Broken(PlanEpoch, Option<NodeName>, String),
    /// Something happened to a job.
    Job(PlanEpoch, JobId, Micros, JobNotice),
    /// Tokens of a sample.
    Piece(u64, Vec<u32>),
    /// The end of a sample.
    SampleEnded(u64, Result<(), String>),
    /// What the device did, by the number of the order.
    Spans(u64, Vec<SpanView>),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell the coordinator.
    Tell(Notice),
    /// Open a post's layers beside what is held.
    Open(Post),
    /// Let go of what is held, and take this post; its layers may be open already.
    Take(Post),
    /// Let go of what is held and open.
    LetGo,
    /// Jobs for the lead.
    Admit(Vec<JobOrder>),
    /// An action for the lead.
    Act(JobId, JobAction),
    /// The lead ends the steps it has begun and starts no other.
    Drain,
    /// The lead goes on.
    Undrain,
    /// A sample for the lead.
    Sample(SampleOrder),
    /// Say what the device did for a step.
    Trace {
        /// Number of the order.
        number: u64,
        /// The job.
        job: Option<JobId>,
        /// Its step.
        step: Option<u64>,
    },
    /// Save, close and end the process.
    Stop,
}

/// How far the post held is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Taking,
    Linked,
    Broken,
}

/// Steps of jobs that may be forgotten when more notices wait than this.
const MOST_WAITING: usize = 65_536;

/// The state of a node.
#[derive(Clone, Debug)]
pub struct Duty {
    hello: Hello,
    connected: bool,
    term: Term,
    held: Option<(Post, Standing)>,
    /// What was opened for, and whether it is.
    open: Option<(PlanEpoch, bool)>,
    /// Steps taken of the jobs of the post held; one that ended stays until its end is heard.
    jobs: BTreeMap<JobId, u64>,
    /// Numbers of the notices that told the end of a job.
    ends: BTreeMap<u64, JobId>,
    /// Jobs that halt, or are about to.
    paused: BTreeSet<JobId>,
    waiting: VecDeque<(u64, Notice)>,
    next: u64,
}

impl Duty {
    /// A node that holds nothing. `hello` says what it is; term, holding and the first notice in it are filled in.
    #[must_use]
    pub fn new(hello: Hello) -> Self {
        Self {
            hello,
            connected: false,
            term: Term(0),
            held: None,
            open: None,
            jobs: BTreeMap::new(),
            ends: BTreeMap::new(),
            paused: BTreeSet::new(),
            waiting: VecDeque::new(),
            next: 1,
        }
    }

    /// Takes an event and says what is to be done.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Connected => self.connect(&mut effects),
            Event::Disconnected => self.connected = false,
            Event::Ordered(Ordered { term, order }) => {
                if term < self.term {
                    let reason =
                        format!("the order is of term {term}: a newer leadership was heard");
                    self.refuse(reason, &mut effects);
                } else {
                    self.term = term;
                    self.obey(order, &mut effects);
                }
            }
            Event::Opened(epoch, outcome) => {
                if let Some((wanted, open)) = &mut self.open
                    && *wanted == epoch
                {
                    *open = outcome.is_ok();
                    self.tell(Notice::Prepared { epoch, outcome }, &mut effects);
                }
            }
            Event::Linked(epoch, outcome) => self.link(epoch, outcome, &mut effects),
            Event::Drained(epoch) => {
                if self.holds(epoch) {
                    self.tell(Notice::Drained { epoch }, &mut effects);
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

    /// Whether a first stage has jobs.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
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
            unheard: self
                .waiting
                .front()
                .map_or(self.next, |(number, _)| *number),
            ..self.hello.clone()
        };
        effects.push(Effect::Tell(Notice::Hello(hello)));
        let waiting = self.waiting.iter().map(|(_, notice)| notice.clone());
        effects.extend(waiting.map(Effect::Tell));
    }

    fn forget_jobs(&mut self) {
        self.jobs.clear();
        self.ends.clear();
        self.paused.clear();
    }

    fn tell(&self, notice: Notice, effects: &mut Vec<Effect>) {
        if self.connected {
            effects.push(Effect::Tell(notice));
        }
    }

    fn refuse(&self, reason: String, effects: &mut Vec<Effect>) {
        let term = self.term;
        self.tell(Notice::Refused { term, reason }, effects);
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
            Order::Drain { epoch } => self.if_leading(epoch, "drain", effects, |_| Effect::Drain),
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
                while self
                    .waiting
                    .front()
                    .is_some_and(|(number, _)| *number <= notice)
                {
                    self.waiting.pop_front();
                }
                let later = self.ends.split_off(&(notice + 1));
                for (_, job) in std::mem::replace(&mut self.ends, later) {
                    self.jobs.remove(&job);
                    self.paused.remove(&job);
                }
            }
            Order::Trace { number, job, step } => {
                effects.push(Effect::Trace { number, job, step });
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

    fn leads(&self, epoch: PlanEpoch) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|(post, _)| post.epoch == epoch && post.leads())
    }

    fn if_leading(
        &self,
        epoch: PlanEpoch,
        order: &str,
        effects: &mut Vec<Effect>,
        effect: impl FnOnce(&Self) -> Effect,
    ) {
        if self.leads(epoch) {
            effects.push(effect(self));
        } else {
            self.refuse(self.not_leading(epoch, order), effects);
        }
    }

    fn not_leading(&self, epoch: PlanEpoch, order: &str) -> String {
        let holds = match &self.held {
            None => "no stage".to_owned(),
            Some((post, _)) => format!("stage {} of plan {}", post.stage, post.epoch),
        };
        format!("{order} is for the first stage of plan {epoch}: this node holds {holds}")
    }

    fn older(&self, epoch: PlanEpoch) -> String {
        let held = self.epoch().unwrap_or_default();
        format!("plan {epoch} is not newer than plan {held}, which this node holds")
    }

    fn note(
        &mut self,
        epoch: PlanEpoch,
        job: JobId,
        at: Micros,
        notice: JobNotice,
        effects: &mut Vec<Effect>,
    ) {
        match &notice {
            JobNotice::Admitted { step, .. } | JobNotice::Step { step, .. } => {
                self.jobs.insert(job, *step);
            }
            JobNotice::Refused(_) | JobNotice::Exported { .. } | JobNotice::Cancelled { .. } => {
                self.ends.insert(self.next, job);
            }
            _ => {}
        }
        let number = self.next;
        self.next += 1;
        let told = Notice::Job {
            number,
            epoch,
            job,
            at,
            notice,
        };
        self.tell(told.clone(), effects);
        self.waiting.push_back((number, told));
        if self.waiting.len() > MOST_WAITING {
            self.forget_steps();
        }
    }

    /// Keeps of each job's steps only the newest, in place of which the others may be forgotten: it bears the sums.
    /// What is left gets new numbers, so that none is missing; what was heard before and comes again changes nothing.
    fn forget_steps(&mut self) {
        let mut newest: BTreeMap<JobId, u64> = BTreeMap::new();
        for (number, notice) in &self.waiting {
            if let Some(job) = step_of(notice) {
                newest.insert(job, *number);
            }
        }
        self.waiting.retain(|(number, notice)| {
            step_of(notice).is_none_or(|job| newest.get(&job) == Some(number))
        });
        for (own, notice) in &mut self.waiting {
            if let Some(job) = self.ends.remove(own) {
                self.ends.insert(self.next, job);
            }
            *own = self.next;
            self.next += 1;
            if let Notice::Job { number, .. } = notice {
                *number = *own;
            }
        }
    }
}

fn step_of(notice: &Notice) -> Option<JobId> {
    match notice {
        Notice::Job {
            job,
            notice: JobNotice::Step { .. },
            ..
        } => Some(*job),
        _ => None,
    }
}
