//! Jobs that ended are kept up to a number, the newest; the others are known no more.

use std::collections::BTreeMap;

use shared::ids::{JobId, JobName};

use super::Ledger;

impl Ledger {
    /// Jobs that ended, beyond the newest `kept` of them; those that ended first come first.
    #[must_use]
    pub fn ended_beyond(&self, kept: usize) -> Vec<JobId> {
        let ended = || self.jobs.values().filter(|job| job.state.is_final());
        let beyond = ended().count().saturating_sub(kept);
        if beyond == 0 {
            return Vec::new();
        }
        let mut all: Vec<_> = ended().map(|job| (job.ended, job.id)).collect();
        all.sort_unstable();
        let oldest = all.into_iter().take(beyond);
        oldest.map(|(_, job)| job).collect()
    }

    /// Knows nothing of these jobs any more, of those that ended. A name that meant one of them means the newest that is
    /// left of those that had it. LG-3
    pub(super) fn forget(&mut self, jobs: &[JobId]) {
        for job in jobs {
            // LG-1: what has not ended stays, whatever a journal says.
            if self.jobs.get(job).is_some_and(|job| job.state.is_final()) {
                self.jobs.remove(job);
            }
        }
        let jobs = &self.jobs;
        self.names.retain(|_, job| jobs.contains_key(job));
        let mut left: BTreeMap<&JobName, JobId> = BTreeMap::new();
        for job in jobs
            .values()
            .filter(|job| !self.names.contains_key(&job.name))
        {
            // In the order of ids: the newest comes last.
            left.insert(&job.name, job.id);
        }
        let left: Vec<(JobName, JobId)> = left.into_iter().map(|(n, id)| (n.clone(), id)).collect();
        self.names.extend(left);
    }
}
