//! A lead's part in making states durable: it has them kept, and names their parts once they are whole.

use shared::ids::JobName;

use super::Lead;
use crate::artifacts::keeper::Task;
use crate::artifacts::manifest::StateManifest;
use crate::replica::error::{Lacking, ReplicaError};
use crate::replica::event::ReplicaEvent;
use crate::replica::leading::{Leading, News};
use crate::replica::ledger::Whole;

/// How steps that are begun are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settling {
    /// Whether whole states are stored before the steps under way end.
    hurried: bool,
}

impl Lead {
    /// Ends the steps that are begun, takes back those that are only planned, has the state of every job stored, and
    /// starts nothing more until a round is asked for. What could not be stored is told as `NotDurable`, and is in
    /// [`Self::undurable`].
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn drain(&mut self) -> Result<Vec<ReplicaEvent>, ReplicaError> {
        let mut told = self.settle()?;
        while let Some(turn) = self.session.next_turn() {
            self.session.engine_mut().await_turn(turn)?;
            self.follow_ends()?;
        }
        loop {
            self.note_stored()?;
            let waiting = self.ledger.waiting();
            if waiting.is_empty() {
                told.append(&mut self.tend()?);
                return Ok(told);
            }
            let news = |own: &Leading| !own.news.is_empty();
            let lacking = move |_: &Leading| Some(Lacking::Stored(waiting.clone()));
            self.session.engine_mut().drive(news, lacking)?;
        }
    }

    /// As [`Self::drain`], without waiting: [`Self::tend`] goes on with it while it [`Self::is_settling`], and tells what is
    /// stored, of which there may be more to come while [`Self::is_storing`]. Jobs without a step on its way are stored at
    /// once.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn settle(&mut self) -> Result<Vec<ReplicaEvent>, ReplicaError> {
        self.session.begin_settling()?;
        let hurried = self.is_hurried();
        self.settling = Some(Settling { hurried });
        self.note(Vec::new())?;
        self.keep_ended()?;
        self.tend()
    }

    /// While it settles: has the last whole state of each job stored that has a step under way, which is no part of it, and
    /// from then on each that comes before all are ended. So a machine that goes too early takes no more with it than that
    /// step. Nothing is evaluated any more: that is due where the job goes on.
    ///
    /// # Errors
    /// When the replica cannot go on.
    pub fn hurry(&mut self) -> Result<(), ReplicaError> {
        let Some(settling) = self.settling.as_mut().filter(|settling| !settling.hurried) else {
            return Ok(());
        };
        settling.hurried = true;
        self.follow_ends()?;
        self.keep_ended()
    }

    /// Whether steps are under way that are to be ended.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.settling.is_some()
    }

    /// Whether a state is due and not yet stored, nor told as `NotDurable`.
    #[must_use]
    pub fn is_storing(&self) -> bool {
        !self.ledger.waiting().is_empty()
    }

    /// While it settles: has states stored as steps end.
    pub(super) fn follow_ends(&mut self) -> Result<(), ReplicaError> {
        while self.settling.is_some()
            && let Some(events) = self.session.note_ended(!self.is_hurried())?
        {
            self.moved = true;
            self.note(events)?;
            self.keep_ended()?;
        }
        Ok(())
    }

    /// Has states stored that no step on its way will change, and in a hurry those too that one will.
    fn keep_ended(&mut self) -> Result<(), ReplicaError> {
        let through = !self.session.is_under_way();
        let hurried = self.is_hurried();
        let names: Vec<JobName> = self.session.names().cloned().collect();
        for name in names {
            // One state of a job after another is on its way to the store, so that what waits is bounded.
            let in_hurry = hurried && !self.ledger.waits(&name);
            if through || in_hurry || self.session.is_at_rest(&name) {
                self.make_durable(&name)?;
            }
        }
        if through {
            self.settling = None;
        }
        Ok(())
    }

    fn is_hurried(&self) -> bool {
        self.settling.is_some_and(|settling| settling.hurried)
    }

    /// A stage took the step behind a state before it heard that this is to be stored: the next one is, if it is known.
    fn keep_next(&mut self, job: &JobName, step: u64) -> Result<(), ReplicaError> {
        let given_up = self.ledger.give_up(job, step);
        let progress = self.session.progress(job);
        if given_up && progress.is_some_and(|(progress, _)| progress.step > step) {
            self.make_durable(job)?;
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

    /// Has a job's state of now stored, if it is neither stored nor about to be: that after its last whole step, as stages
    /// have it until they take the next.
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
                News::Beyond(job, step) => self.keep_next(&job, step)?,
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
