//! The thread of a first stage: commands to the lead, its events to the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use shared::ids::{JobId, JobName, PlanEpoch};
use shared::job::Products;
use shared::life::{Reason, ReasonClass};
use shared::model::ModelShape;
use shared::wire::notice::JobNotice;
use shared::wire::order::{JobOrder, SampleOrder};

use self::again::Again;
use super::export::{self, Exported, Work};
use super::meters::Meters;
use super::running::{Command, Report};
use super::settings::Clock;
use super::stored_sample::{self, Search, StoredSample};
use super::traces::{Traces, id, name};
use crate::artifacts::Artifacts;
use crate::artifacts::manifest::StateManifest;
use crate::artifacts::stored::SharedStore;
use crate::duty::Event;
use crate::replica::error::{AdmitError, ReplicaError};
use crate::replica::event::ReplicaEvent;
use crate::replica::lead::{Lead, SampleError, TextRequest};
use crate::sample::choice::Sampling;
use crate::train::event::Ending;
use crate::train::session::Standing;

mod admission;
mod again;
mod telling;

#[cfg(test)]
mod tests;

/// What a lead is surrounded by.
pub(super) struct Surroundings {
    pub(super) epoch: PlanEpoch,
    pub(super) store: Arc<SharedStore>,
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

/// How long an idle lead sleeps when nothing rings.
const NAP: Duration = Duration::from_secs(1);

/// Runs a lead until it is stopped.
pub(super) fn run(
    lead: Lead,
    around: &Surroundings,
    commands: &Receiver<Command>,
    stop: &AtomicBool,
) -> Result<(), ReplicaError> {
    let bell = lead.bell();
    let (exports, exported) = channel();
    let (searches, found) = channel();
    let mut leading = Leading::new(lead, around, exports, searches);
    loop {
        let heard = bell.heard();
        if stop.load(Ordering::Acquire) {
            // Neighbours that wait for this stage are told that nothing follows; those that are gone need not be.
            let _ = leading.lead.close();
            return Ok(());
        }
        while let Ok(command) = commands.try_recv() {
            leading.obey(command)?;
        }
        leading.note_exported(&exported)?;
        leading.try_again()?;
        while let Ok(StoredSample { order, states }) = found.try_recv() {
            leading.host(&order, states)?;
        }
        let working = leading.drained.is_none() && !leading.lead.is_idle();
        let events = if working {
            leading.lead.round()?
        } else {
            leading.lead.tend()?
        };
        leading.tell(events)?;
        if !working && !leading.lead.moved() {
            // Whatever it was, the next look finds it.
            let _ = bell.wait(heard, NAP);
        }
    }
}

struct Leading<'a> {
    lead: Lead,
    around: &'a Surroundings,
    /// Toward which plan it ended its steps, while it is to start no others.
    drained: Option<PlanEpoch>,
    /// Jobs that took their last step or were set aside, each with that step, until it is durable.
    ending: BTreeMap<JobName, (u64, Last)>,
    /// Jobs whose adapter is being written.
    done: BTreeSet<JobName>,
    /// When what could not be stored is stored again.
    again: Again,
    /// What each job's submission is called in logs.
    submissions: BTreeMap<JobName, String>,
    exports: Sender<Exported>,
    searches: Sender<StoredSample>,
}

/// What is to be done with a job once its last state is durable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Export,
    Remove,
}

impl<'a> Leading<'a> {
    fn new(
        lead: Lead,
        around: &'a Surroundings,
        exports: Sender<Exported>,
        searches: Sender<StoredSample>,
    ) -> Self {
        Self {
            lead,
            around,
            drained: None,
            ending: BTreeMap::new(),
            done: BTreeSet::new(),
            again: Again::default(),
            submissions: BTreeMap::new(),
            exports,
            searches,
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), ReplicaError> {
        match command {
            Command::Admit(orders) => orders.into_iter().try_for_each(|order| self.admit(order)),
            Command::Act(job, action) => {
                self.lead.act(&name(job), action)?;
                let events = self.lead.tend()?;
                self.tell(events)
            }
            Command::Drain(toward) => {
                self.drained = Some(toward);
                self.drain(toward)
            }
            Command::Undrain => {
                self.drained = None;
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
            Command::Sample(order) => self.sample(order),
        }
    }

    fn admit(&mut self, order: JobOrder) -> Result<(), ReplicaError> {
        let (job, own) = (order.job, name(order.job));
        // An order that comes again finds its job here.
        if let Some((progress, total)) = self.lead.progress(&own) {
            let (step, total) = (progress.step, total);
            self.notice(job, JobNotice::Admitted { step, total });
            return Ok(());
        }
        let admission = admission::of(&order, self.around);
        let (admission, recovered) = match admission {
            Ok(admission) => admission,
            Err(reason) => {
                self.notice(job, JobNotice::Refused(reason));
                return Ok(());
            }
        };
        self.submissions.insert(own.clone(), order.trace.clone());
        match self.lead.admit(admission)? {
            Err(why) => {
                self.submissions.remove(&own);
                let class = match why {
                    AdmitError::Job(_) => ReasonClass::UserError,
                    AdmitError::State(_) => ReasonClass::System,
                };
                let message = why.to_string();
                self.notice(job, JobNotice::Refused(Reason { class, message }));
            }
            Ok((step, total)) => {
                let replicas = self.lead.sharing(&own);
                tracing::info!(trace = order.trace, job = %own, step, total, ?replicas, "job admitted");
                self.notice(job, JobNotice::Admitted { step, total });
                if let Some(step) = recovered {
                    self.notice(job, JobNotice::Recovered { step });
                }
                self.end_again(&own, step);
            }
        }
        let events = self.lead.tend()?;
        self.tell(events)
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
                self.export(own);
            }
        }
    }

    /// Makes a text with a job that is here; the state of one that is not is looked for beside training.
    fn sample(&mut self, order: SampleOrder) -> Result<(), ReplicaError> {
        match order.job {
            Some(job) if self.lead.progress(&name(job)).is_none() => {
                let search = Search {
                    store: Arc::clone(&self.around.store) as Arc<dyn Artifacts>,
                    backbone: self.around.backbone.clone(),
                    shape: Arc::clone(&self.around.shape),
                };
                let found = self.searches.clone();
                stored_sample::start(job, order, search, found, self.lead.bell());
                Ok(())
            }
            _ => self.write(&order, &[]),
        }
    }

    /// Makes a text with a state that was found; with the job itself, should it have come meanwhile.
    fn host(
        &mut self,
        order: &SampleOrder,
        states: Result<Vec<StateManifest>, String>,
    ) -> Result<(), ReplicaError> {
        let here = order
            .job
            .is_some_and(|job| self.lead.progress(&name(job)).is_some());
        match states {
            _ if here => self.write(order, &[]),
            Ok(states) => self.write(order, &states),
            Err(why) => {
                (self.around.report)(Event::SampleEnded(order.number, Err(why)));
                Ok(())
            }
        }
    }

    /// Makes a text with the first of these states whose parts are sound; with none, as the job is here or by the
    /// backbone alone.
    fn write(&mut self, order: &SampleOrder, states: &[StateManifest]) -> Result<(), ReplicaError> {
        let (number, report) = (order.number, &self.around.report);
        let job = order.job.map(name);
        let request = TextRequest {
            job: job.as_ref(),
            prompt: &order.prompt,
            sampling: Sampling {
                temperature: f64::from(order.temperature),
                top_k: order.top_k as usize,
                top_p: f64::from(order.top_p),
                seed: order.seed,
            },
            limit: order.max_tokens as usize,
            stops: &order.stops,
        };
        let tell = |token| {
            report(Event::Piece(number, vec![token]));
            true
        };
        let Some((newest, older)) = states.split_first() else {
            let made = self.lead.sample(&request, tell)?;
            report(Event::SampleEnded(number, made.map_err(|e| e.to_string())));
            return Ok(());
        };
        let mut made = self.lead.sample_stored(newest, &request, tell)?;
        for state in older {
            if !matches!(made, Err(SampleError::State { .. })) {
                break;
            }
            tracing::warn!(job = %state.job, error = ?made, "state skipped");
            made = self.lead.sample_stored(state, &request, tell)?;
        }
        report(Event::SampleEnded(
            number,
            made.map_err(|error| error.to_string()),
        ));
        Ok(())
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
        match last {
            Last::Export => self.export(own),
            Last::Remove => {
                self.ending.remove(own);
                self.forget(own)?;
            }
        }
        Ok(())
    }

    /// Takes a job off the backbone.
    fn forget(&mut self, own: &JobName) -> Result<(), ReplicaError> {
        self.submissions.remove(own);
        self.lead.remove(own).map(|_| ())
    }

    fn export(&mut self, own: &JobName) {
        if self.done.insert(own.clone())
            && let Some(identity) = self.lead.identity(own)
        {
            let work = Work {
                own: own.clone(),
                identity: identity.clone(),
                shape: Arc::clone(&self.around.shape),
                base: self.around.base.clone(),
            };
            let store = Arc::clone(&self.around.store);
            export::start(work, store, self.exports.clone(), self.lead.bell());
        }
    }

    fn note_exported(&mut self, exported: &Receiver<Exported>) -> Result<(), ReplicaError> {
        while let Ok(Exported { own, outcome }) = exported.try_recv() {
            let Some(job) = id(&own) else { continue };
            match outcome {
                Ok(files) => {
                    tracing::info!(trace = self.trace(&own), job = %own, "adapter exported");
                    self.notice(job, JobNotice::Exported { files });
                    self.ending.remove(&own);
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
