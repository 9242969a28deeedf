//! A lead's part in making states durable: it has them kept, and names their parts once they are whole.

use shared::ids::JobName;

use super::Lead;
use crate::artifacts::keeper::Task;
use crate::artifacts::manifest::StateManifest;
use crate::replica::error::{Lacking, ReplicaError};
use crate::replica::event::ReplicaEvent;
use crate::replica::leading::{Leading, News};
use crate::replica::ledger::Whole;

impl Lead {
    /// Ends the steps that are begun, takes back those that are only planned, has the state of every job stored, and
    /// starts nothing more until a round is asked for. What could not be stored is told as `NotDurable`, and is in
    /// [`Self::undurable`].
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn drain(&mut self) -> Result<Vec<ReplicaEvent>, ReplicaError> {
        self.begin_drain()?;
        loop {
            self.note_stored()?;
            let waiting = self.ledger.waiting();
            if waiting.is_empty() {
                return self.tend();
            }
            let news = |own: &Leading| !own.news.is_empty();
            let lacking = move |_: &Leading| Some(Lacking::Stored(waiting.clone()));
            self.session.engine_mut().drive(news, lacking)?;
        }
    }

    /// As [`Self::drain`], without waiting for the store: [`Self::tend`] tells what is stored, and there may be more to
    /// come while [`Self::is_storing`].
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn settle(&mut self) -> Result<Vec<ReplicaEvent>, ReplicaError> {
        self.begin_drain()?;
        self.tend()
    }

    /// Whether a state is due and not yet stored, nor told as `NotDurable`.
    #[must_use]
    pub fn is_storing(&self) -> bool {
        !self.ledger.waiting().is_empty()
    }

    fn begin_drain(&mut self) -> Result<(), ReplicaError> {
        let events = self.session.settle();
        self.note(events?)?;
        let names: Vec<JobName> = self.session.names().cloned().collect();
        for name in names {
            self.make_durable(&name)?;
        }
        Ok(())
    }

    /// Jobs whose state of now is not durable, each with its step.
    pub fn undurable(&self) -> impl Iterator<Item = (&JobName, u64)> {
        let jobs = self.session.names();
        jobs.filter_map(move |job| {
            let (progress, _) = self.session.progress(job)?;
            let durable = self.ledger.durable(job) == Some(progress.step);
            (!durable).then_some((job, progress.step))
        })
    }

    /// Has a job's state of now stored, if it is neither stored nor about to be.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn make_durable(&mut self, job: &JobName) -> Result<(), ReplicaError> {
        let (Some(slot), Some((progress, _))) =
            (self.session.slot(job), self.session.progress(job))
        else {
            return Ok(());
        };
        let (progress, step) = (progress.clone(), progress.step);
        if self.ledger.ask(job, step) {
            self.session.engine_mut().station().keep(slot, step)?;
        }
        if let Some(whole) = self.ledger.due(job, &progress) {
            self.seal(whole);
        }
        Ok(())
    }

    fn seal(&mut self, whole: Whole) {
        let Some(identity) = self.identities.get(&whole.job) else {
            return;
        };
        let keep_last = identity.spec.checkpoint.keep_last;
        let leadership = (self.settings.term, self.epoch);
        let manifest = StateManifest::new(
            whole.job,
            identity.clone(),
            leadership,
            whole.progress,
            whole.parts,
        );
        let manifest = Box::new(manifest);
        let keeper = self.session.engine_mut().station().keeper();
        keeper.keep(Task::Manifest {
            manifest,
            keep_last,
        });
    }

    pub(super) fn note_stored(&mut self) -> Result<(), ReplicaError> {
        while let Some(news) = self.session.engine_mut().news.pop_front() {
            match news {
                News::Part(job, step, Ok(part)) => {
                    if let Some(whole) = self.ledger.part(&job, step, part) {
                        self.seal(whole);
                    }
                }
                News::NotShared(job, replica, reason) => {
                    self.events.push(ReplicaEvent::NotShared {
                        job,
                        replica,
                        reason,
                    });
                }
                News::Sealed(job, step, Ok(bytes)) => {
                    self.ledger.sealed(&job, step);
                    self.events.push(ReplicaEvent::Durable { job, step, bytes });
                }
                News::Part(job, step, Err(reason)) | News::Sealed(job, step, Err(reason)) => {
                    if self.ledger.give_up(&job, step) {
                        self.events
                            .push(ReplicaEvent::NotDurable { job, step, reason });
                    }
                }
            }
        }
        self.let_leave()
    }

    /// Lets cancelled jobs go whose last state is durable.
    pub(super) fn let_leave(&mut self) -> Result<(), ReplicaError> {
        let ready = self
            .leaving
            .iter()
            .filter(|(job, _)| !self.ledger.waits(job));
        let ready: Vec<(JobName, u64)> = ready.map(|(job, step)| (job.clone(), *step)).collect();
        for (job, step) in ready {
            self.remove(&job)?;
            self.events.push(ReplicaEvent::Cancelled { job, step });
        }
        Ok(())
    }
}
