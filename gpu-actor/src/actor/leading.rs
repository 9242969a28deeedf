//! The thread of a first stage: commands to the lead, its events to the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use shared::ids::{JobId, JobName, PlanEpoch, Term};
use shared::job::Products;
use shared::life::ReasonClass;
use shared::model::ModelShape;
use shared::wire::notice::JobNotice;

use self::admission::{Looked, Sources};
use self::again::{Again, Draining, HASTE};
use self::aside::Aside;
use self::coming::Coming;
use self::texts::Texts;
use super::export::{self, Exported, Work};
use super::meters::Meters;
use super::running::{Command, Report};
use super::settings::Clock;
use super::stored_sample::{self, Search, StoredSample};
use super::traces::{Traces, id, name};
use crate::artifacts::Artifacts;
use crate::duty::Event;
use crate::replica::error::{AdmitError, ReplicaError};
use crate::replica::event::ReplicaEvent;
use crate::replica::lead::Lead;
use crate::train::event::Ending;
use crate::train::session::Standing;

mod admission;
mod again;
mod aside;
mod coming;
mod telling;
mod texts;

#[cfg(test)]
mod tests;

/// What a lead is surrounded by.
pub(super) struct Surroundings {
    pub(super) epoch: PlanEpoch,
    /// Leadership.
    pub(super) term: Term,
    pub(super) store: Arc<dyn Artifacts>,
    /// Content hash of the backbone's identity.
    pub(super) backbone: String,
    /// How products with frozen weights are computed.
    pub(super) products: Products,
    /// What adapters call their base model.
    pub(super) base: String,
    pub(super) shape: Arc<ModelShape>,
    pub(super) clock: Clock,
    pub(super) traces: Arc<Traces>,
    pub(super) meters: Arc<Meters>,
    pub(super) report: Report,
}

/// How long a lead sleeps when nothing rings.
const NAP: Duration = Duration::from_secs(1);

impl Surroundings {
    fn sources(&self) -> Sources {
        Sources {
            store: Arc::clone(&self.store),
            backbone: self.backbone.clone(),
            products: self.products,
            shape: Arc::clone(&self.shape),
            written: (self.term.0, self.epoch.0),
        }
    }
}

/// Runs a lead until it is stopped.
pub(super) fn run(
    mut lead: Lead,
    around: &Surroundings,
    commands: &Receiver<Command>,
    stop: &Arc<AtomicBool>,
) -> Result<(), ReplicaError> {
    lead.heed(Arc::clone(stop));
    let mut leading = Leading::new(lead, around);
    let ended = leading.work(commands, stop);
    // Who asked for a text that nobody makes must not wait for it.
    for command in commands.try_iter() {
        if let Command::Sample(order) = command {
            leading.texts.ask(&order);
        }
    }
    leading.end_texts("its stage ends: ask again");
    match ended {
        Err(ReplicaError::Stopped { .. }) => return Ok(()),
        other => other?,
    }
    // Neighbours that wait for this stage are told that nothing follows; those that are gone need not be.
    let _ = leading.lead.close();
    Ok(())
}

/// Where work beside training sends what came of it.
#[derive(Debug)]
struct Outside {
    exports: Sender<Exported>,
    searches: Sender<StoredSample>,
    looks: Sender<Looked>,
}

/// What came of work beside training.
#[derive(Debug)]
struct Inside {
    exported: Receiver<Exported>,
    searched: Receiver<StoredSample>,
    looked: Receiver<Looked>,
}

struct Leading<'a> {
    lead: Lead,
    around: &'a Surroundings,
    /// Toward which plan it ends its steps, or ended them, while it is to start no others.
    drained: Option<PlanEpoch>,
    /// Jobs that took their last step or were set aside, each with that step, until it is durable.
    ending: BTreeMap<JobName, (u64, Last)>,
    aside: Aside,
    /// Jobs whose adapter is being written.
    done: BTreeSet<JobName>,
    /// When what could not be stored is stored again.
    again: Again,
    /// What each job's submission is called in logs.
    submissions: BTreeMap<JobName, String>,
    coming: Coming,
    texts: Texts,
    /// A drain whose states are being stored.
    draining: Option<Draining>,
    outside: Outside,
    inside: Inside,
}

/// What is to be done with a job once its last state is durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Its adapter is written.
    Export,
    /// It leaves, once the adapter of its newest good state is written, if there is one.
    Remove,
}

impl<'a> Leading<'a> {
    fn new(lead: Lead, around: &'a Surroundings) -> Self {
        let ((exports, exported), (searches, searched)) = (channel(), channel());
        let (looks, looked) = channel();
        Self {
            lead,
            around,
            drained: None,
            ending: BTreeMap::new(),
            aside: Aside::default(),
            done: BTreeSet::new(),
            again: Again::default(),
            submissions: BTreeMap::new(),
            coming: Coming::default(),
            texts: Texts::default(),
            draining: None,
            outside: Outside {
                exports,
                searches,
                looks,
            },
            inside: Inside {
                exported,
                searched,
                looked,
            },
        }
    }

    /// Works until it is stopped.
    fn work(
        &mut self,
        commands: &Receiver<Command>,
        stop: &AtomicBool,
    ) -> Result<(), ReplicaError> {
        let bell = self.lead.bell();
        // How long nothing moved nor rang.
        let mut still = Duration::ZERO;
        loop {
            let heard = bell.heard();
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            while let Ok(command) = commands.try_recv() {
                self.obey(command)?;
            }
            // Whatever comes meanwhile, the next look finds it.
            if !self.turn()? || self.lead.moved() || bell.wait(heard, self.nap()) {
                still = Duration::ZERO;
                continue;
            }
            still += self.nap();
            if self.lead.is_under_way() && still >= self.lead.patience() {
                return Err(self.lead.stalled());
            }
        }
    }

    /// How long is slept when nothing rings.
    fn nap(&self) -> Duration {
        let soon = self.draining.as_ref().is_some_and(Draining::is_soon);
        match soon && self.lead.is_settling() {
            true => Duration::from_micros(HASTE.0),
            false => NAP,
        }
    }

    /// Does a piece of each thing that is to be done; whether nothing is left but to wait for what is under way.
    fn turn(&mut self) -> Result<bool, ReplicaError> {
        self.land()?;
        self.note_exported()?;
        self.try_again()?;
        self.tell_aside();
        while let Ok(StoredSample { order, states }) = self.inside.searched.try_recv() {
            self.host(order, states);
        }
        let gathers = self.coming.gathers((self.around.clock)());
        let working = self.drained.is_none() && !self.lead.is_idle() && !gathers;
        if !working {
            self.texts.owe_nothing();
        }
        let written = self.write_on(working)?;
        let begins = working && !self.holds_rounds();
        if begins {
            self.coming.begun();
        }
        // Who is expected waits for a turn at most, and not for the whole step of a job that is alone.
        let expected = self.coming.expects() || self.texts.are_asked();
        self.lead.keep_turns_short(expected);
        let rounds = self.lead.rounds();
        let events = self.lead.advance(begins)?;
        self.texts.rounds_taken(self.lead.rounds() - rounds);
        self.tell(events)?;
        self.note_drained()?;
        Ok(!written)
    }

    fn obey(&mut self, command: Command) -> Result<(), ReplicaError> {
        match command {
            Command::Admit(orders) => {
                orders.into_iter().for_each(|order| self.admit(order));
                self.lead.make_room()
            }
            Command::Act(job, action) => self.act(job, action),
            Command::Drain { toward, soon } => {
                self.drained = Some(toward);
                self.end_text_of_step()?;
                self.drain(toward, soon)
            }
            Command::Undrain => {
                self.drained = None;
                self.draining = None;
                self.again.drain = false;
                Ok(())
            }
            Command::Arrange(arrangement) => {
                let arrangement = arrangement.renamed(|job| Some(name(*job)));
                tracing::info!(
                    hybrid_tasks = arrangement.hybrid_tasks().count(),
                    units = arrangement.units().count(),
                    pass_rows = arrangement.pass_rows,
                    "jobs arranged"
                );
                self.lead.arrange(arrangement);
                Ok(())
            }
            Command::Hasten(every_steps) => {
                tracing::info!(every_steps, "states are stored so often");
                self.lead.hasten(every_steps);
                Ok(())
            }
            Command::Sample(order) => {
                self.sample(order);
                self.lead.make_room()
            }
            Command::EndSample(number) => self.let_text_go(number),
        }
    }

    /// A job that had ended before its adapter was written has nothing more to do than that.
    fn end_again(&mut self, own: &JobName, step: u64) {
        if let Some(Standing::Finished(why)) = self.lead.standing(own) {
            let early = *why == Ending::EarlyStopping;
            if let Some(job) = id(own) {
                self.notice(job, JobNotice::Finished { step, early });
            }
            self.ending.insert(own.clone(), (step, Last::Export));
            if self.lead.durable(own) == Some(step) {
                self.export(own, Last::Export);
            }
        }
    }

    fn notice(&self, job: JobId, notice: JobNotice) {
        let at = (self.around.clock)();
        (self.around.report)(Event::Job(self.around.epoch, job, at, notice));
    }

    fn tell(&mut self, events: Vec<ReplicaEvent>) -> Result<(), ReplicaError> {
        for event in events {
            let (own, notice) = self.translate(event);
            let Some(job) = id(&own) else { continue };
            if let Some(notice) = notice {
                self.notice(job, notice);
            }
            self.settle(&own)?;
        }
        Ok(())
    }

    /// Ends a job whose last state is durable.
    fn settle(&mut self, own: &JobName) -> Result<(), ReplicaError> {
        let Some(&(step, last)) = self.ending.get(own) else {
            return Ok(());
        };
        if self.lead.durable(own) != Some(step) {
            return Ok(());
        }
        self.export(own, last);
        Ok(())
    }

    /// Takes a job off the backbone.
    fn forget(&mut self, own: &JobName) -> Result<(), ReplicaError> {
        self.submissions.remove(own);
        self.lead.remove(own).map(|_| ())
    }

    fn export(&mut self, own: &JobName, last: Last) {
        let proof = match last {
            Last::Export => None,
            Last::Remove => self.lead.proof(own),
        };
        if self.done.insert(own.clone())
            && let Some(identity) = self.lead.identity(own)
        {
            let work = Work {
                own: own.clone(),
                identity: identity.clone(),
                proof,
                shape: Arc::clone(&self.around.shape),
                base: self.around.base.clone(),
            };
            let store = Arc::clone(&self.around.store);
            export::start(work, store, self.outside.exports.clone(), self.lead.bell());
        }
    }

    fn note_exported(&mut self) -> Result<(), ReplicaError> {
        while let Ok(Exported { own, outcome }) = self.inside.exported.try_recv() {
            let Some(job) = id(&own) else { continue };
            match outcome {
                Ok(written) => {
                    let step = written.as_ref().map(|(step, _)| step);
                    tracing::info!(trace = self.trace(&own), job = %own, step, "adapter exported");
                    match (self.ending.remove(&own), written) {
                        (Some((_, Last::Remove)), written) => self.tell_kept(&own, written),
                        (_, Some((_, files))) => self.notice(job, JobNotice::Exported { files }),
                        (_, None) => {}
                    }
                    self.done.remove(&own);
                    self.forget(&own)?;
                }
                Err(reason) => {
                    // Its state is durable: it is exported again after a while.
                    self.again.failed((self.around.clock)());
                    tracing::error!(trace = self.trace(&own), job = %own, reason, "adapter not stored");
                    self.done.remove(&own);
                }
            }
        }
        Ok(())
    }
}
