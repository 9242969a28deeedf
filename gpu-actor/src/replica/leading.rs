//! The session's engine over the first station of a replica.
//!
//! Turns become micro-batches, which are numbered through and given to the station as the ones before come back; what
//! the last stage found out comes back as words and is gathered by turn, of a step that is spread over turns by the last of
//! them. A job whose steps other replicas share sends
//! each of them its run of the sequences, in micro-batches of their own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::helping::Guest;
use self::passing::{Open, Rows, Share, Ticket, Under};
use self::sharing::{Assisted, Shared};
use super::error::{Lacking, ReplicaError};
use super::seat::LeadSettings;
use super::station::Station;
use crate::artifacts::part::PartRef;
use crate::link::word::{Attach, Pass, Planned, Source, StepGoal, Word};
use crate::pipeline::council::Matter;
use crate::pipeline::{MicroBatchNumber, Slot};
use crate::train::engine::{Engine, Finding, Newcomer, Turn, TurnNumber, Withdrawn};
use crate::train::pack;
use crate::train::tally::Tally;
use shared::ids::JobName;

mod helping;
mod listen;
mod passing;
mod queue;
mod sharing;
mod withdraw;

/// What the station told that is not about a turn.
#[derive(Debug)]
pub(super) enum News {
    /// A part is stored, or not.
    Part(JobName, u64, Result<PartRef, String>),
    /// A stage took a step behind this one before it was told to store the state.
    Beyond(JobName, u64),
    /// A manifest is stored, or not.
    Sealed(JobName, u64, Result<u64, String>),
    /// A replica will not share a job, and why.
    NotShared(JobName, u32, String),
}

/// Where a job comes from, and who computes its steps.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// Its first state.
    pub(super) source: Source,
    /// Steps taken.
    pub(super) step: u64,
    /// Replicas that share its steps, this one first; empty when none do.
    pub(super) replicas: Vec<u32>,
}

/// The engine.
#[derive(Debug)]
pub(super) struct Leading {
    station: Station,
    settings: LeadSettings,
    /// Not yet given to the station.
    queue: VecDeque<(Ticket, Planned)>,
    under: BTreeMap<Ticket, Under>,
    numbers: BTreeMap<MicroBatchNumber, Ticket>,
    next: MicroBatchNumber,
    ticket: Ticket,
    /// Jobs whose steps are shared, led here or elsewhere.
    shared: BTreeMap<Slot, Shared>,
    /// Those that are led elsewhere.
    guests: BTreeMap<JobName, Guest>,
    /// Micro-batches that other replicas compute.
    assisted: BTreeMap<Ticket, Assisted>,
    /// What replicas say about jobs that they shall share; none while they are asked.
    enlisted: BTreeMap<(JobName, u32), Option<Result<(), String>>>,
    /// Words of other leads that wait for a job of before to be gone.
    deferred: VecDeque<(u32, Word)>,
    /// Nothing more is begun for other replicas.
    leaving: bool,
    turns: BTreeMap<TurnNumber, Open>,
    turn: TurnNumber,
    /// Passes that stages were told to hold at most.
    held: Vec<u32>,
    /// What turns found of steps that go on in a later one.
    begun: BTreeMap<Matter, Tally>,
    /// Steps planned with all their rows, by job.
    steps: BTreeMap<Slot, u64>,
    names: BTreeMap<Slot, JobName>,
    answers: BTreeMap<Slot, Result<(), String>>,
    chosen: BTreeMap<Ticket, Result<u32, String>>,
    pub(super) news: VecDeque<News>,
    /// States that stages were told to store with a plan.
    pub(super) asked: Vec<(JobName, u64)>,
    /// Of those, the ones whose step broke.
    pub(super) broken: Vec<(JobName, u64)>,
    /// Set when nobody wants what is waited for any more.
    stop: Arc<AtomicBool>,
}

/// How long a stage that was told to end waits, while nothing moves, for what is on its way.
const STOPPED: Duration = Duration::from_secs(1);

impl Leading {
    pub(super) fn new(station: Station, settings: LeadSettings) -> Self {
        Self {
            station,
            settings,
            queue: VecDeque::new(),
            under: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next: 0,
            ticket: 0,
            shared: BTreeMap::new(),
            guests: BTreeMap::new(),
            assisted: BTreeMap::new(),
            enlisted: BTreeMap::new(),
            deferred: VecDeque::new(),
            leaving: false,
            turns: BTreeMap::new(),
            turn: 0,
            held: Vec::new(),
            begun: BTreeMap::new(),
            steps: BTreeMap::new(),
            names: BTreeMap::new(),
            answers: BTreeMap::new(),
            chosen: BTreeMap::new(),
            news: VecDeque::new(),
            asked: Vec::new(),
            broken: Vec::new(),
            stop: Arc::default(),
        }
    }

    /// Waits for others end soon once this is set.
    pub(super) fn heed(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    pub(super) fn station(&mut self) -> &mut Station {
        &mut self.station
    }

    pub(super) fn model(&self) -> &crate::model::Model {
        self.station.stage().model()
    }

    pub(super) fn stages(&self) -> usize {
        self.station.seat().place.stages
    }

    pub(super) fn bell(&self) -> crate::link::bell::Bell {
        self.station.bell().clone()
    }

    /// Steps planned of a job: a text that is read now meets the weights after them.
    pub(super) fn steps(&self, slot: Slot) -> u64 {
        self.steps.get(&slot).copied().unwrap_or(0)
    }

    /// Whether anything that was planned is not done.
    pub(super) fn is_busy(&self) -> bool {
        !self.under.is_empty() || !self.assisted.is_empty() || self.station.is_busy()
    }

    /// Lets the station work until something is so, or it is told to end and nothing moves.
    pub(super) fn drive(
        &mut self,
        done: impl Fn(&Self) -> bool,
        lacking: impl Fn(&Self) -> Option<Lacking>,
    ) -> Result<(), ReplicaError> {
        loop {
            let bell = self.bell();
            let heard = bell.heard();
            let moved = self.turn_over()?;
            if done(self) {
                return Ok(());
            }
            let stopped = self.stop.load(Ordering::Acquire);
            let patience = match stopped {
                true => STOPPED.min(self.patience()),
                false => self.patience(),
            };
            if moved || bell.wait(heard, patience) {
                continue;
            }
            let stage = self.station.seat().place.stage;
            return Err(match stopped {
                true => ReplicaError::Stopped { stage },
                false => self.stalled(lacking(self)),
            });
        }
    }

    /// Nothing moved for too long, while this was wanted.
    pub(super) fn stalled(&self, wanted: Option<Lacking>) -> ReplicaError {
        let stage = self.station.seat().place.stage;
        let own = self.station.lacking();
        let nothing = own == Lacking::Work(crate::pipeline::Lack::Plan);
        let wanted = wanted.or_else(|| self.lacks_help()).filter(|_| nothing);
        let lacking = wanted.unwrap_or(own);
        ReplicaError::Stalled { stage, lacking }
    }

    /// How long nothing may move while there is work.
    pub(super) fn patience(&self) -> Duration {
        self.station.seat().patience
    }

    /// Takes what a turn found out about a job, once.
    fn take_found(&mut self, turn: TurnNumber, slot: Slot) -> Option<Finding> {
        let share = self.turns.get_mut(&turn)?.shares.remove(&slot)?;
        let begun = self.begun.remove(&(slot, share.number));
        let (tally, step) = (begun.unwrap_or(share.tally), share.step);
        Some(Finding { slot, tally, step })
    }

    /// Waits until a turn is done.
    pub(super) fn await_turn(&mut self, turn: TurnNumber) -> Result<(), ReplicaError> {
        let done = move |own: &Self| own.is_done(turn);
        self.drive(done, |own| own.first_under(turn).map(Lacking::Outcome))
    }

    /// Names the first micro-batch of a turn that is not done.
    pub(super) fn first_under(&self, turn: TurnNumber) -> Option<Ticket> {
        let mut under = self.under.iter();
        let first = under.find(|(_, under)| under.turn == Some(turn));
        first.map(|(ticket, _)| *ticket)
    }

    /// One turn of the loop without waiting; whether anything moved.
    pub(super) fn turn_over(&mut self) -> Result<bool, ReplicaError> {
        self.feed()?;
        let mut moved = self.station.pump()?;
        for told in self.station.take_told() {
            self.listen(told)?;
            moved = true;
        }
        moved |= self.let_guests_go()?;
        Ok(moved)
    }

    /// Puts a job on all stages.
    fn attach_as(&mut self, attach: Attach) -> Result<Result<Slot, String>, ReplicaError> {
        let (slot, job) = (attach.slot, attach.job.clone());
        self.station.attach(attach)?;
        let answered = move |own: &Self| own.answers.contains_key(&slot);
        self.drive(answered, |_| Some(Lacking::Answer(slot)))?;
        match self.answers.remove(&slot) {
            Some(Err(problem)) => {
                self.station.detach(slot)?;
                Ok(Err(problem))
            }
            _ => {
                self.names.insert(slot, job);
                Ok(Ok(slot))
            }
        }
    }

    /// A place leads no job, but lends a text its adapter: the job may be led or shared here meanwhile.
    pub(super) fn unname(&mut self, slot: Slot) {
        self.names.remove(&slot);
    }

    /// The token that the last stage chose behind a micro-batch of this name.
    pub(super) fn token(&mut self, number: Ticket) -> Result<Result<u32, String>, ReplicaError> {
        let chosen = move |own: &Self| own.chosen.contains_key(&number);
        self.drive(chosen, |_| Some(Lacking::Outcome(number)))?;
        let token = self.chosen.remove(&number);
        Ok(token.expect("it was chosen"))
    }

    /// A step is agreed on while micro-batches of other jobs pass; one device agrees with itself at once.
    fn cut(&self) -> pack::Cut {
        match self.stages() {
            1 => pack::Cut::Anywhere,
            _ => pack::Cut::BetweenJobs,
        }
    }

    /// Rows of a micro-batch, so that as many in all fill the pipeline twice if they can: once to be on its way, once
    /// to hide what the stages say to each other about a step.
    fn budget(&self, total: usize) -> usize {
        let parts = match self.stages() {
            1 => 1,
            stages => 2 * stages,
        };
        let even = total.div_ceil(parts);
        let most = self.settings.tokens_per_pass.max(1);
        even.max(self.settings.least_rows).min(most)
    }
}

impl Engine for Leading {
    type Source = Origin;
    type Error = ReplicaError;

    /// Adapters are small, and a keeper stores them beside training.
    const EVERY_STEPS: u64 = 1;

    fn attach(
        &mut self,
        job: Newcomer<'_>,
        origin: Origin,
    ) -> Result<Result<Slot, String>, ReplicaError> {
        let slot = self.free_slot();
        let spec = serde_json::to_string(job.spec).expect("a specification has a JSON form");
        let attach = Attach {
            slot,
            job: job.name.clone(),
            spec,
            source: origin.source,
            replicas: self.reached(origin.replicas),
        };
        // Taken before anything is waited for: another lead may ask for a place meanwhile.
        self.steps.insert(slot, origin.step);
        let attached = match attach.replicas.len() {
            0 => self.attach_as(attach)?,
            _ => self.attach_shared(attach, origin.step)?,
        };
        if attached.is_err() {
            self.steps.remove(&slot);
        }
        Ok(attached)
    }

    fn detach(&mut self, slot: Slot) -> Result<(), ReplicaError> {
        let passed = move |own: &Self| {
            let shares = |under: &Under| under.jobs.iter().any(|job| job.slot == slot);
            let steps = |open: &Open| open.steps.iter().any(|matter| matter.0 == slot);
            let helps = own.assisted.values().any(|assisted| assisted.slot == slot);
            !own.under.values().any(shares) && !own.turns.values().any(steps) && !helps
        };
        let under = move |own: &Self| {
            let mut under = own.under.iter();
            let first = under.find(|(_, under)| under.jobs.iter().any(|job| job.slot == slot));
            first.map(|(number, _)| Lacking::Outcome(*number))
        };
        self.drive(passed, under)?;
        for open in self.turns.values_mut() {
            open.jobs.retain(|other| *other != slot);
            open.shares.remove(&slot);
        }
        self.begun.retain(|matter, _| matter.0 != slot);
        self.steps.remove(&slot);
        let name = self.names.remove(&slot);
        self.dismiss(slot, name.as_ref())?;
        self.station.detach(slot)
    }

    fn ahead(&self) -> usize {
        self.settings.ahead
    }

    /// As many as fill the pipeline twice with the largest passes, as [`Self::budget`] has it.
    fn turn_rows(&self) -> usize {
        let most = self.settings.tokens_per_pass.max(1);
        most.saturating_mul(2 * self.stages())
    }

    /// Of a shared step each replica takes its shard.
    fn takes_whole(&self, slot: Slot) -> bool {
        self.shared.contains_key(&slot)
    }

    fn plan(&mut self, turn: Turn<'_>) -> Result<TurnNumber, ReplicaError> {
        self.turn += 1;
        let number = self.turn;
        let mut open = Open::default();
        let mut goals = BTreeMap::new();
        for (index, request) in turn.requests.iter().enumerate() {
            let (slot, goal) = (request.slot, turn.goals.get(index));
            if let Some(None) = goal {
                let tally = || Tally::of(request);
                self.begun.entry((slot, request.step)).or_insert_with(tally);
                continue;
            }
            open.jobs.push(slot);
            let shared = self.shared.contains_key(&slot);
            let share = Share {
                tally: Tally::of(request),
                number: request.step,
                blocks: shared.then(|| request.blocks(0..request.rows.len())),
                step: None,
            };
            open.shares.insert(slot, share);
            let Some(goal) = goal.copied().flatten() else {
                continue;
            };
            let goal = StepGoal {
                slot,
                step: request.step,
                learning_rate: goal.learning_rate,
                keep: goal.keep,
                shard: None,
            };
            open.steps.insert((slot, request.step));
            self.steps.insert(slot, request.step + 1);
            if let Some(name) = self.names.get(&slot).filter(|_| goal.keep) {
                self.asked.push((name.clone(), goal.step + 1));
            }
            goals.insert(slot, goal);
        }
        let pass = match turn.goals.is_empty() {
            true => Pass::Evaluate,
            false => Pass::Train,
        };
        self.turns.insert(number, open);
        let requests = turn.requests.into_iter();
        let (shared, alone): (Vec<_>, Vec<_>) =
            requests.partition(|request| self.shared.contains_key(&request.slot));
        let size = pack::Size {
            budget: self.settings.tokens_per_pass.max(1),
            chunk: self.settings.chunk_tokens,
            cut: self.cut(),
        };
        let arrangement = &turn.arrangement;
        if self.held != arrangement.ahead {
            self.held.clone_from(&arrangement.ahead);
            self.station.go_ahead(arrangement.ahead.clone())?;
        }
        let passes = pack::arranged(&alone, arrangement, size, |rows| self.budget(rows));
        let mut unmeasured = passes.len();
        for batch in passes {
            let ends = batch.jobs.iter().filter(|job| job.closes);
            let goals = ends.filter_map(|job| goals.get(&job.slot).copied());
            let goals = goals.collect();
            self.enqueue((Some(number), None), pass.clone(), batch, goals);
        }
        for request in &shared {
            let goal = goals.get(&request.slot).copied();
            unmeasured += self.plan_shared(number, request, (&pass, arrangement), goal)?;
        }
        if let Some(open) = self.turns.get_mut(&number) {
            open.unmeasured = unmeasured;
        }
        Ok(number)
    }

    fn withdraw(&mut self) -> Vec<Withdrawn> {
        self.take_back()
    }

    fn holds(&self, turn: TurnNumber) -> bool {
        self.turns.contains_key(&turn)
    }

    fn is_done(&self, turn: TurnNumber) -> bool {
        self.turns.get(&turn).is_none_or(Open::is_done)
    }

    /// Of a shared step losses are complete at the end of its turn only.
    fn closed(&mut self, turn: TurnNumber) -> Vec<Finding> {
        let Some(open) = self.turns.get(&turn) else {
            return Vec::new();
        };
        let closed = |share: &Share| share.step.is_some() && share.blocks.is_none();
        let closed = open.shares.iter().filter(|(_, share)| closed(share));
        let slots: Vec<Slot> = closed.map(|(slot, _)| *slot).collect();
        let found = slots
            .into_iter()
            .filter_map(|slot| self.take_found(turn, slot));
        found.collect()
    }

    fn forget(&mut self, turn: TurnNumber) {
        self.forget_turn(turn);
    }

    fn finish(&mut self, turn: TurnNumber) -> Result<Vec<Finding>, ReplicaError> {
        self.await_turn(turn)?;
        let jobs = self.turns.get(&turn).map(|open| open.jobs.clone());
        let jobs = jobs.unwrap_or_default().into_iter();
        let found = jobs
            .filter_map(|slot| self.take_found(turn, slot))
            .collect();
        self.turns.remove(&turn);
        Ok(found)
    }
}
