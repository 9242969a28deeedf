//! All jobs of the cluster: what is asked of them becomes changes or refusals, and changes become their state.
//!
//! Deciding and changing are apart: [`Ledger::submit`] and its neighbours only say what would change, and
//! [`Ledger::apply`] changes. A restart replays the same changes, and so ends in the same state.
//!
//! | id | invariant |
//! | --- | --- |
//! | LG-1 | a job that ended never changes |
//! | LG-2 | the durable step never falls, and no job goes on from before it |
//! | LG-3 | a name means the newest of the jobs that had it, and only one of them has not ended |
//! | LG-4 | a queued job is on no replica; one that trains is on one |
//! | LG-5 | a loss or a move is never a failure: it is counted, in `recoveries` or in `moves`, and nowhere else |
//! | LG-6 | a token is charged to its tenant once, and only what a job waits counts as waiting |

pub mod account;
mod asked;
pub mod job;
mod kept;
mod told;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, JobName};
use shared::life::JobState;
use shared::units::Micros;
use shared::wire::notice::JobNotice;
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
    /// The newest id that was given; absent in snapshots of before.
    #[serde(default)]
    last: Option<JobId>,
    /// Tokens that each tenant's jobs were trained on; where it came back from having no job, what it started at.
    #[serde(default)]
    served: BTreeMap<String, u64>,
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
            message: format!(
                "no job {text} is known here: `spotmux jobs --all` lists all; of those that ended the newest are, as many \
                 as limits.ended_jobs_kept says"
            ),
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

    /// Jobs that wait for a replica, in the order of their ids; in which order they get one admission decides.
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

    /// All jobs as their owners see them, oldest first: what [`Self::view`] says of each, at the price of one look.
    pub fn views(&self) -> impl Iterator<Item = (&Job, JobView)> {
        let mut before = 0;
        self.jobs.values().map(move |job| {
            let queued = job.state == JobState::Queued;
            let queue_position = queued.then_some(before);
            before += u32::from(queued);
            let view = JobView {
                queue_position,
                ..job.view()
            };
            (job, view)
        })
    }

    /// What each tenant was served, by name.
    #[must_use]
    pub fn served(&self) -> &BTreeMap<String, u64> {
        &self.served
    }

    /// Tenants with a job that waits or trains.
    pub fn active(&self) -> impl Iterator<Item = &str> {
        let jobs = self.jobs.values();
        let active = jobs.filter(|job| !job.state.is_final() && job.state != JobState::Paused);
        active.map(Job::tenant)
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
            Change::Began { .. } => self.adopt(at),
            Change::Submitted { job, accepted } => {
                self.names.insert(accepted.name.clone(), *job);
                self.last = self.last.max(Some(*job));
                let new = Job::new(*job, accepted, at);
                let served = self.served.entry(new.tenant().to_owned()).or_default();
                *served = accepted.served_from.max(*served);
                self.jobs.insert(*job, new);
            }
            Change::Prepared { job, inputs } => self.prepared(*job, inputs, at),
            Change::Unfit { job, reason } => {
                self.change(*job, at, |job| job.fail(reason.clone(), at));
            }
            Change::Placed { job, replica } => self.change(*job, at, |job| job.place(*replica)),
            Change::PauseAsked { job } => {
                self.change(*job, at, |job| job.state = JobState::Paused);
            }
            Change::ResumeAsked { job } => self.change(*job, at, Job::go_on),
            Change::CancelAsked { job } => self.change(*job, at, |job| job.cancel(at)),
            Change::Heard { job, notice, .. } => {
                let alone = self.is_alone(*job);
                self.charge(*job, notice);
                self.change(*job, at, |job| job.hear(notice, at, alone));
                self.welcome(*job);
            }
            Change::Broken { replica, .. } => {
                let jobs = self.jobs.values_mut();
                let here = jobs.filter(|job| job.replica == Some(*replica));
                here.for_each(|job| {
                    job.stall(at);
                    job.note_waiting(at);
                });
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
            Change::Forgotten { jobs, .. } => self.forget(jobs),
            _ => {}
        }
        self.check();
    }

    fn change(&mut self, job: JobId, at: Micros, how: impl FnOnce(&mut Job)) {
        let job = self.jobs.get_mut(&job);
        // LG-1
        if let Some(job) = job.filter(|job| !job.state.is_final()) {
            how(job);
            job.note_waiting(at);
        }
    }

    fn prepared(&mut self, job: JobId, inputs: &Inputs, at: Micros) {
        self.change(job, at, |job| job.inputs = Some(inputs.clone()));
    }

    /// Charges a step to its job's tenant. LG-6
    fn charge(&mut self, job: JobId, notice: &JobNotice) {
        let job = self.jobs.get_mut(&job);
        let job = job.filter(|job| !job.state.is_final());
        if let (Some(job), JobNotice::Step { tokens, .. }) = (job, notice) {
            let gained = job.charge(*tokens);
            let served = self.served.entry(job.tenant().to_owned()).or_default();
            *served = served.saturating_add(gained);
        }
    }

    /// Jobs of a snapshot of before have no tenant, were charged to none, and it is not noted that they wait.
    fn adopt(&mut self, at: Micros) {
        for job in self.jobs.values_mut() {
            if let Some(gained) = job.adopt() {
                let served = self.served.entry(job.tenant().to_owned()).or_default();
                *served = served.saturating_add(gained);
            }
            job.note_waiting(at);
        }
    }

    fn displace(&mut self, replica: u32, stays: bool, at: Micros) {
        for job in self.jobs.values_mut() {
            if job.replica == Some(replica) {
                job.displace(stays, at);
                job.note_waiting(at);
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
        debug_assert!(self.names_are_sound(), "LG-3");
        debug_assert!(self.jobs.values().all(Job::is_sound), "LG-4");
    }

    fn names_are_sound(&self) -> bool {
        let newest = |job: &Job| self.names.get(&job.name).copied();
        let mut jobs = self.jobs.values();
        jobs.all(|job| {
            let newest = newest(job);
            newest == Some(job.id) || (newest > Some(job.id) && job.state.is_final())
        })
    }
}
