//! The first stage of a replica and the session on it: what a shell drives on one thread.
//!
//! Rounds must be asked for while there is work: what is planned ahead goes on only within the calls of a lead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use data::rows::TokenRow;
use kernels::cpu::Cpu;
use shared::ids::JobName;
use shared::plan::arrangement::Arrangement;
use shared::wire::order::JobAction;

use self::durable::Settling;
use super::error::{AdmitError, ReplicaError};
use super::event::ReplicaEvent;
use super::leading::{Leading, Origin};
use super::ledger::Ledger;
use super::seat::{LeadSettings, Ports, Seat};
use super::station::Station;
use crate::artifacts::manifest::StateManifest;
use crate::link::bell::Bell;
use crate::link::word::Source;
use crate::model::Model;
use crate::pipeline::Slot;
use crate::stage::step::Stage;
use crate::train::event::Event;
use crate::train::identity::Identity;
use crate::train::progress::{self, Progress};
use crate::train::proof::Proof;
use crate::train::session::{Halt, Session, Standing, layout_of};

mod durable;
mod pace;
mod sample;

pub use sample::{SampleError, Text, TextRequest};

/// Where a job's first state comes from.
#[derive(Clone, Debug)]
pub enum Start {
    /// Each stage makes its values from the job's seed.
    Fresh {
        /// Tokens of the text that a prompt starts from.
        init_tokens: Vec<u32>,
    },
    /// A durable state in the store, of which each stage reads its part: one that was found, or that of an adapter to start
    /// from.
    Stored(Box<StateManifest>),
}

/// A job for a replica.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Its name in the store and in events; unique on the replica.
    pub name: JobName,
    /// What its states belong to, its specification among that.
    pub identity: Identity,
    /// Rows to train on.
    pub rows: Vec<TokenRow>,
    /// Held-out rows.
    pub eval_rows: Vec<TokenRow>,
    /// Its first state.
    pub start: Start,
    /// Whether it waits for an order to go on.
    pub paused: bool,
    /// Numbers of the replicas that share its steps, this one first; empty when none do. One that is not linked takes
    /// no part: the bits are the same.
    pub replicas: Vec<u32>,
}

/// The first stage of a replica and its session.
#[derive(Debug)]
pub struct Lead {
    session: Session<Leading>,
    ledger: Ledger,
    identities: BTreeMap<JobName, Identity>,
    /// Jobs that leave once their last state is durable, each with its step.
    leaving: BTreeMap<JobName, u64>,
    settings: LeadSettings,
    /// States are stored after so many steps at most; 0: as jobs ask.
    every_steps: u64,
    epoch: u64,
    texts: u64,
    /// While it ends the steps that are begun, and starts no other.
    settling: Option<Settling>,
    /// Whether the last turn moved anything.
    moved: bool,
    events: Vec<ReplicaEvent>,
}

impl Lead {
    /// A replica's first stage, without jobs. The model holds the layers of its seat.
    #[must_use]
    pub fn new(
        model: Arc<Model>,
        cpu: Cpu,
        seat: Seat,
        ports: Ports,
        settings: LeadSettings,
    ) -> Self {
        let (layers, epoch) = (model.shape.layers, seat.epoch);
        let station = Station::new(Stage::new(model, cpu), seat, ports);
        Self {
            session: Session::on(Leading::new(station, settings)),
            ledger: Ledger::new(layers),
            identities: BTreeMap::new(),
            leaving: BTreeMap::new(),
            settings,
            every_steps: 0,
            epoch,
            texts: 0,
            settling: None,
            moved: false,
            events: Vec::new(),
        }
    }

    /// Once this is set, and its bell rung, it waits for no others any more.
    pub fn heed(&mut self, stop: Arc<AtomicBool>) {
        self.session.engine_mut().heed(stop);
    }

    /// What is rung when something came for this stage.
    #[must_use]
    pub fn bell(&self) -> Bell {
        self.session.engine().bell()
    }

    /// Puts a job on all stages; returns its steps taken and its steps in all. Replicas that will not share its steps are
    /// told as events; the job is then led alone.
    ///
    /// # Errors
    /// When the replica cannot go on; inside, why the job cannot be put there.
    pub fn admit(
        &mut self,
        job: Admission,
    ) -> Result<Result<(u64, u64), AdmitError>, ReplicaError> {
        let spec = job.identity.spec.clone();
        let model = self.model();
        if let Some(problem) = spec.problems(&model.shape).first() {
            return Ok(Err(AdmitError::Job(format!("job {}: {problem}", job.name))));
        }
        let layout = layout_of(&spec.adapter, &model, spec.seed);
        let total = progress::total_steps(&spec.train, job.rows.len().max(1));
        let wrong = |problem: String| {
            let problem = format!("job {}: the checkpoint {problem}", job.name);
            AdmitError::Job(problem)
        };
        let (source, progress, durable) = match job.start {
            Start::Fresh { init_tokens } => {
                (Source::Fresh { init_tokens }, Progress::default(), None)
            }
            Start::Stored(manifest) => {
                let step = manifest.progress.step;
                if step > total {
                    let problem = format!("is of step {step}, the job has {total}");
                    return Ok(Err(wrong(problem)));
                }
                let text = manifest.text();
                let source = Source::Stored { manifest: text };
                (source, manifest.progress, Some(step))
            }
        };
        let step = progress.step;
        let (name, rows) = (job.name.clone(), [job.rows, job.eval_rows]);
        if let Some(problem) = self.session.refuses(&name, &rows) {
            return Ok(Err(AdmitError::Job(problem)));
        }
        let origin = Origin {
            source,
            step,
            replicas: job.replicas,
        };
        let source = (origin, progress);
        let admitted = self
            .session
            .admit_as(job.name, spec, layout, rows, source)?;
        if let Err(problem) = admitted {
            // What is wrong with the job itself was seen before: what is left is how its state was read.
            return Ok(Err(match durable {
                Some(_) => AdmitError::State(problem),
                None => AdmitError::Job(problem),
            }));
        }
        self.ledger.forget(&name);
        if let Some(step) = durable {
            self.ledger.sealed(&name, step);
        }
        self.identities.insert(name.clone(), job.identity);
        if job.paused {
            self.session.halt(&name, Halt::Pause);
            self.session.take_halted();
        }
        Ok(Ok((step, total)))
    }

    /// Does what a job's owner asks for, after its steps on their way; whether that was possible.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn act(&mut self, job: &JobName, action: JobAction) -> Result<bool, ReplicaError> {
        let done = match action {
            JobAction::Pause => self.session.halt(job, Halt::Pause),
            JobAction::Cancel => self.session.halt(job, Halt::Cancel),
            JobAction::Resume => {
                let resumed = self.session.resume(job);
                if resumed {
                    let job = job.clone();
                    self.events.push(ReplicaEvent::Resumed { job });
                }
                resumed
            }
        };
        self.note_halted()?;
        Ok(done)
    }

    /// From the next round that is planned on, jobs share passes and take turns like this, whatever the number of stages;
    /// no result shows it. Jobs that are not here are passed over, and those that are not named are packed behind the
    /// others.
    pub fn arrange(&mut self, arrangement: Arrangement<JobName>) {
        self.session.arrange(arrangement);
    }

    /// From the next round that is planned on, the state of every job is stored after so many steps at most, besides when it asks for
    /// it; 0: as it asks. A job whose state before is still on its way to the store is passed over, so that what waits is bounded.
    pub fn hasten(&mut self, every_steps: u64) {
        self.every_steps = every_steps;
    }

    /// One step of every active job, with the evaluations due before and after it; other rounds are planned behind it.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn round(&mut self) -> Result<Vec<ReplicaEvent>, ReplicaError> {
        self.prepare_rounds();
        let events = self.session.advance();
        self.note(events?)?;
        self.tend()
    }

    /// Takes what arrived; for times without rounds. With work under way, the own or another replica's, it does one piece
    /// of it and returns, so that an order is heard between two pieces, and not behind all that is planned.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn tend(&mut self) -> Result<Vec<ReplicaEvent>, ReplicaError> {
        loop {
            self.moved = self.session.engine_mut().turn_over()?;
            let busy = self.session.is_under_way() || self.session.engine().is_busy();
            if !self.moved || busy {
                break;
            }
        }
        self.follow_ends()?;
        self.note_stored()?;
        Ok(std::mem::take(&mut self.events))
    }

    /// Whether the last turn moved anything: then there may be more to do, and no bell rings for it.
    #[must_use]
    pub fn moved(&self) -> bool {
        self.moved
    }

    /// Takes a job off all stages; what is being stored of it is stored, but no longer told.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn remove(&mut self, job: &JobName) -> Result<bool, ReplicaError> {
        self.identities.remove(job);
        self.leaving.remove(job);
        self.ledger.forget(job);
        self.session.let_go(job)
    }

    /// Tells all stages that nothing will follow, and ends. What is planned, or other replicas asked for, and no stage has is
    /// not begun.
    ///
    /// # Errors
    /// When they cannot be told.
    pub fn close(mut self) -> Result<(), ReplicaError> {
        self.session.make_room();
        let engine = self.session.engine_mut();
        engine.help_no_more();
        let busy = |own: &Leading| !own.is_busy();
        engine.drive(busy, |_| None)?;
        engine.station().close()
    }

    /// Whether no job is active and nothing is on its way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.session.is_idle()
    }

    /// What a job's states belong to.
    #[must_use]
    pub fn identity(&self, job: &JobName) -> Option<&Identity> {
        self.identities.get(job)
    }

    /// What a job is doing.
    #[must_use]
    pub fn standing(&self, job: &JobName) -> Option<&Standing> {
        self.session.standing(job)
    }

    /// Which of a job's states are proven.
    #[must_use]
    pub fn proof(&self, job: &JobName) -> Option<Proof> {
        self.session.proof(job)
    }

    /// A job's place in its life, and its steps in all.
    #[must_use]
    pub fn progress(&self, job: &JobName) -> Option<(&Progress, u64)> {
        self.session.progress(job)
    }

    /// The newest durable step of a job, if one was found or made here.
    #[must_use]
    pub fn durable(&self, job: &JobName) -> Option<u64> {
        self.ledger.durable(job)
    }

    /// Replicas that share a job's steps, this one first; empty when none do.
    #[must_use]
    pub fn sharing(&self, job: &JobName) -> &[u32] {
        let slot = self.session.slot(job);
        slot.map_or(&[], |slot| self.session.engine().sharing(slot))
    }

    /// Names of the jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &JobName> {
        self.session.names()
    }

    fn model(&mut self) -> Arc<Model> {
        let station = self.session.engine_mut().station();
        Arc::clone(station.stage().model())
    }

    fn note(&mut self, events: Vec<Event>) -> Result<(), ReplicaError> {
        let engine = self.session.engine_mut();
        let (asked, broken) = (
            std::mem::take(&mut engine.asked),
            std::mem::take(&mut engine.broken),
        );
        for (job, step) in asked {
            self.ledger.ask(&job, step);
        }
        for (job, step) in broken {
            self.ledger.give_up(&job, step);
        }
        for event in events {
            match &event {
                Event::CheckpointDue { job, .. } => {
                    let job = job.clone();
                    self.make_durable(&job)?;
                    continue;
                }
                Event::Quarantined { job, .. } => {
                    let job = job.clone();
                    self.make_durable(&job)?;
                }
                _ => {}
            }
            self.events.push(ReplicaEvent::Training(event));
        }
        self.note_halted()
    }

    fn note_halted(&mut self) -> Result<(), ReplicaError> {
        for halted in self.session.take_halted() {
            let (job, step) = (halted.job, halted.step);
            self.make_durable(&job)?;
            match halted.how {
                Halt::Pause => self.events.push(ReplicaEvent::Paused { job, step }),
                Halt::Cancel => {
                    self.leaving.insert(job, step);
                }
            }
        }
        self.let_leave()
    }

    fn slot(&self, job: &JobName) -> Option<Slot> {
        self.session.slot(job)
    }
}
