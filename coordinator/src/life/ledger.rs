//! All jobs of the cluster: what is asked of them becomes changes or refusals, and changes become their state.
//!
//! Deciding and changing are apart: [`Ledger::submit`] and its neighbours only say what would change, and
//! [`Ledger::apply`] changes. A restart replays the same changes, and so ends in the same state.
//!
//! | id | invariant |
//! | --- | --- |
//! | LG-1 | a job that ended never changes |
//! | LG-2 | the durable step never falls, and no job goes on from before it |
//! | LG-3 | a name belongs to one job for ever |
//! | LG-4 | a queued job is on no replica; one that trains is on one |
//! | LG-5 | a loss or a move is never a failure: it is counted in `recoveries` and nowhere else |

mod asked;
pub mod job;
mod told;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, JobName};
use shared::life::JobState;
use shared::units::Micros;
use shared::wire::request::{JobRef, Refusal, RefusalCode};
use shared::wire::view::JobView;

use crate::record::{Change, Inputs};

pub use asked::Submitted;
pub use job::Job;

/// The jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    jobs: BTreeMap<JobId, Job>,
    names: BTreeMap<JobName, JobId>,
}

impl Ledger {
    /// A job.
    #[must_use]
    pub fn get(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job)
    }

    /// A job by its id or name.
    ///
    /// # Errors
    /// A refusal of code [`RefusalCode::NotFound`].
    pub fn find(&self, reference: &JobRef) -> Result<&Job, Refusal> {
        let (found, text) = match reference {
            JobRef::Id(id) => (self.jobs.get(id), id.to_string()),
            JobRef::Name(name) => {
                let id = self.names.get(name);
                (id.and_then(|id| self.jobs.get(id)), name.to_string())
            }
        };
        found.ok_or_else(|| Refusal {
            code: RefusalCode::NotFound,
            message: format!("no job {text} is known here: `spotmux jobs` lists all"),
        })
    }

    /// All jobs, oldest first.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// Jobs that have not ended.
    #[must_use]
    pub fn live(&self) -> usize {
        self.jobs
            .values()
            .filter(|job| !job.state.is_final())
            .count()
    }

    /// Jobs given to a replica, in the order of their ids.
    #[must_use]
    pub fn on(&self, replica: u32) -> Vec<JobId> {
        let jobs = self.jobs.values();
        let here = jobs.filter(|job| job.replica == Some(replica));
        here.map(|job| job.id).collect()
    }

    /// Whether a job that may train asks for several replicas to share its steps.
    #[must_use]
    pub fn shares(&self) -> bool {
        let mut jobs = self.jobs.values();
        jobs.any(|job| job.replicas > 1 && job.inputs.is_some() && !job.state.is_final())
    }

    /// Jobs that wait for a replica, in the order in which they will get one.
    pub fn waiting(&self) -> impl Iterator<Item = &Job> {
        self.jobs
            .values()
            .filter(|job| job.state == JobState::Queued && job.inputs.is_some())
    }

    /// Jobs whose files were not yet read.
    pub fn unprepared(&self) -> impl Iterator<Item = &Job> {
        self.jobs
            .values()
            .filter(|job| !job.state.is_final() && job.inputs.is_none())
    }

    /// A job as its owner sees it.
    #[must_use]
    pub fn view(&self, job: &Job) -> JobView {
        let queued = job.state == JobState::Queued;
        let before = || {
            let jobs = self.jobs.range(..job.id);
            jobs.filter(|(_, other)| other.state == JobState::Queued)
                .count()
        };
        JobView {
            queue_position: queued.then(|| before() as u32),
            ..job.view()
        }
    }

    /// Jobs by state.
    #[must_use]
    pub fn count(&self) -> Vec<(JobState, u32)> {
        let mut counts = BTreeMap::new();
        for job in self.jobs.values() {
            *counts.entry(job.state).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// Takes a change that is in the journal.
    pub fn apply(&mut self, at: Micros, change: &Change) {
        match change {
            Change::Submitted { job, accepted } => {
                self.names.insert(accepted.name.clone(), *job);
                self.jobs.insert(*job, Job::new(*job, accepted, at));
            }
            Change::Prepared { job, inputs } => self.prepared(*job, inputs),
            Change::Unfit { job, reason } => self.change(*job, |job| job.fail(reason.clone(), at)),
            Change::Placed { job, replica } => self.change(*job, |job| job.place(*replica)),
            Change::PauseAsked { job } => self.change(*job, |job| job.state = JobState::Paused),
            Change::ResumeAsked { job } => self.change(*job, Job::go_on),
            Change::CancelAsked { job } => self.change(*job, |job| job.cancel(at)),
            Change::Heard { job, notice, .. } => {
                let alone = self.is_alone(*job);
                self.change(*job, |job| job.hear(notice, at, alone));
                self.welcome(*job);
            }
            Change::Broken { replica, .. } => {
                let jobs = self.jobs.values_mut();
                let here = jobs.filter(|job| job.replica == Some(*replica));
                here.for_each(|job| job.stall(at));
            }
            Change::InForce { layout } => {
                let replicas: Vec<u32> = self.jobs.values().filter_map(|job| job.replica).collect();
                for replica in replicas {
                    match layout.replicas.get(&replica) {
                        Some(standing) if standing.since == layout.epoch => {
                            self.displace(replica, true, at);
                        }
                        Some(_) => {}
                        None => self.displace(replica, false, at),
                    }
                }
                self.jobs.values_mut().for_each(|job| job.shunned.clear());
            }
            _ => {}
        }
        self.check();
    }

    fn change(&mut self, job: JobId, how: impl FnOnce(&mut Job)) {
        let job = self.jobs.get_mut(&job);
        // LG-1
        if let Some(job) = job.filter(|job| !job.state.is_final()) {
            how(job);
        }
    }

    fn prepared(&mut self, job: JobId, inputs: &Inputs) {
        self.change(job, |job| job.inputs = Some(inputs.clone()));
    }

    fn displace(&mut self, replica: u32, stays: bool, at: Micros) {
        for job in self.jobs.values_mut() {
            if job.replica == Some(replica) {
                job.displace(stays, at);
            }
        }
    }

    /// Whether a job has its replica to itself.
    fn is_alone(&self, job: JobId) -> bool {
        let replica = self.jobs.get(&job).and_then(|job| job.replica);
        let on = |other: &&Job| other.replica == replica && other.id != job;
        replica.is_none() || self.jobs.values().find(on).is_none()
    }

    /// Where a job left, those that found no room may try again.
    fn welcome(&mut self, left: JobId) {
        let ended = |job: &Job| job.state.is_final().then_some(job.last_replica).flatten();
        if let Some(replica) = self.jobs.get(&left).and_then(ended) {
            for job in self.jobs.values_mut() {
                job.shunned.remove(&replica);
            }
        }
    }

    fn check(&self) {
        debug_assert!(self.names.len() == self.jobs.len(), "LG-3");
        debug_assert!(self.jobs.values().all(Job::is_sound), "LG-4");
    }
}
