//! Which states are being stored in parts, and when they are whole: a pure record.
//!
//! | id | invariant |
//! | --- | --- |
//! | LG-1 | a manifest is made once a state's parts cover all layers and it is due: its evaluation is counted, or not made in a hurry |
//! | LG-2 | of each state at most one manifest is made, and none of one that is durable |

use std::collections::BTreeMap;

use shared::ids::JobName;

use crate::artifacts::part::{self, PartRef};
use crate::train::progress::Progress;

/// A state whose parts are all stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Whole {
    pub(super) job: JobName,
    pub(super) progress: Progress,
    pub(super) parts: Vec<PartRef>,
}

#[derive(Clone, Debug, Default)]
struct Open {
    parts: Vec<PartRef>,
    /// Once the state is due.
    progress: Option<Progress>,
    /// Its manifest is being stored.
    sealing: bool,
}

/// States on their way to the store.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    layers: usize,
    open: BTreeMap<(JobName, u64), Open>,
    durable: BTreeMap<JobName, u64>,
}

impl Ledger {
    /// Of a model with so many layers.
    pub(super) fn new(layers: usize) -> Self {
        Self {
            layers,
            open: BTreeMap::new(),
            durable: BTreeMap::new(),
        }
    }

    /// Stages were told to store a state after a step; whether they were not before.
    pub(super) fn ask(&mut self, job: &JobName, step: u64) -> bool {
        if self.durable.get(job) == Some(&step) {
            return false;
        }
        let key = (job.clone(), step);
        let new = !self.open.contains_key(&key);
        self.open.entry(key).or_default();
        new
    }

    /// The state is due: no evaluation can change it any more.
    pub(super) fn due(&mut self, job: &JobName, progress: &Progress) -> Option<Whole> {
        let open = self.open.get_mut(&(job.clone(), progress.step))?;
        open.progress.get_or_insert_with(|| progress.clone());
        self.whole(job, progress.step)
    }

    /// A part is stored.
    pub(super) fn part(&mut self, job: &JobName, step: u64, part: PartRef) -> Option<Whole> {
        let open = self.open.get_mut(&(job.clone(), step))?;
        open.parts.retain(|other| other.layers() != part.layers());
        open.parts.push(part);
        self.whole(job, step)
    }

    fn whole(&mut self, job: &JobName, step: u64) -> Option<Whole> {
        let layers = self.layers;
        let open = self.open.get_mut(&(job.clone(), step))?;
        if open.sealing || !part::covers(&open.parts, layers) {
            return None;
        }
        let progress = open.progress.clone()?;
        open.sealing = true;
        Some(Whole {
            job: job.clone(),
            progress,
            parts: open.parts.clone(),
        })
    }

    /// The state's manifest is stored.
    pub(super) fn sealed(&mut self, job: &JobName, step: u64) {
        self.open.remove(&(job.clone(), step));
        let newest = self.durable.entry(job.clone()).or_insert(step);
        *newest = step.max(*newest);
    }

    /// The state will not be stored; whether it was to be.
    pub(super) fn give_up(&mut self, job: &JobName, step: u64) -> bool {
        self.open.remove(&(job.clone(), step)).is_some()
    }

    /// The newest durable step of a job that was found or made.
    pub(super) fn durable(&self, job: &JobName) -> Option<u64> {
        self.durable.get(job).copied()
    }

    /// A job is gone.
    pub(super) fn forget(&mut self, job: &JobName) {
        self.open.retain(|(other, _), _| other != job);
        self.durable.remove(job);
    }

    /// States that are due and not yet durable.
    pub(super) fn waiting(&self) -> Vec<(String, u64)> {
        let due = self.open.iter().filter(|(_, open)| open.progress.is_some());
        due.map(|((job, step), _)| (job.to_string(), *step))
            .collect()
    }

    /// Whether a state of this job is due and not yet durable.
    pub(super) fn waits(&self, job: &JobName) -> bool {
        self.due_of(job).next().is_some()
    }

    /// Whether the store falls behind the states of this job: one is on its way to it while steps go on, and rounds are planned
    /// before that is there, so only a second one says that it is too slow.
    pub(super) fn is_behind(&self, job: &JobName) -> bool {
        self.due_of(job).nth(1).is_some()
    }

    fn due_of(&self, job: &JobName) -> impl Iterator<Item = u64> {
        let due = self.open.iter().filter(|(_, open)| open.progress.is_some());
        due.filter(move |((other, _), _)| other == job)
            .map(|((_, step), _)| *step)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn part(first_layer: usize, end_layer: usize) -> PartRef {
        PartRef {
            first_layer,
            end_layer,
            key: format!("{first_layer}"),
            sha256: String::new(),
            bytes: 1,
        }
    }

    #[test]
    fn a_state_is_whole_once_its_parts_and_its_evaluation_are_there() {
        let job = JobName::new("a").unwrap();
        let progress = |step| Progress {
            step,
            ..Progress::default()
        };
        let mut ledger = Ledger::new(4);
        assert_eq!(ledger.part(&job, 5, part(0, 2)), None, "nobody asked");
        assert!(ledger.ask(&job, 5) && !ledger.ask(&job, 5));
        assert_eq!(ledger.part(&job, 5, part(2, 4)), None);
        assert_eq!(ledger.due(&job, &progress(5)), None);
        // LG-1
        let whole = ledger.part(&job, 5, part(0, 2)).unwrap();
        assert_eq!((whole.progress.step, whole.parts.len()), (5, 2));
        // LG-2
        assert_eq!(ledger.due(&job, &progress(5)), None);
        assert!(ledger.waits(&job) && !ledger.is_behind(&job));
        assert!(ledger.ask(&job, 6));
        assert!(!ledger.is_behind(&job), "the next is not due");
        assert_eq!(ledger.due(&job, &progress(6)), None);
        assert!(ledger.is_behind(&job));
        ledger.sealed(&job, 5);
        assert!(!ledger.is_behind(&job) && ledger.waits(&job));
        assert!(ledger.give_up(&job, 6));
        assert!(!ledger.ask(&job, 5) && ledger.waiting().is_empty());
        assert!(ledger.ask(&job, 6) && ledger.give_up(&job, 6) && !ledger.give_up(&job, 6));
    }
}
