//! What is remembered of jobs beside the book. None of it needs to outlive the coordinator, and none outlives its job. CL-12
//!
//! All of it is in one place, so that one place forgets it: [`Notes::follow`], called for every change of a job.

use std::collections::BTreeMap;

use shared::ids::JobId;
use shared::life::JobState;

use super::reprieve::Reprieves;
use super::tempo::Tempos;
use super::unfit::Verdicts;
use crate::life::ledger::Ledger;
use crate::plan::snapshot::Task;

/// By job.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    /// Jobs as the planner sees them.
    pub(super) tasks: BTreeMap<JobId, Task>,
    /// Why jobs wait that could have had a replica; of those that wait only.
    pub(super) waits: BTreeMap<JobId, String>,
    /// Jobs that wait to be tried again.
    pub(super) reprieves: Reprieves,
    /// What was told last of jobs that are shared by fewer replicas than they ask for.
    pub(super) told_sharing: BTreeMap<JobId, String>,
    /// How fast jobs go.
    pub(super) tempos: Tempos,
    /// Whether jobs ever fit the replicas that stand.
    pub(super) verdicts: Verdicts,
}

impl Notes {
    /// A job is in this state now, or is none.
    pub(super) fn follow(&mut self, job: JobId, state: Option<JobState>) {
        if state != Some(JobState::Queued) {
            self.waits.remove(&job);
        }
        if state.is_none_or(|state| state.is_final()) {
            self.tasks.remove(&job);
            self.reprieves.forget(job);
            self.told_sharing.remove(&job);
            self.tempos.forget(job);
            self.verdicts.forget(job);
        }
    }

    /// Any job may be in another state now.
    pub(super) fn follow_all(&mut self, ledger: &Ledger) {
        for job in self.jobs() {
            self.follow(job, ledger.get(job).map(|job| job.state));
        }
    }

    /// Jobs of which anything is remembered.
    pub(super) fn jobs(&self) -> Vec<JobId> {
        let tasks = self.tasks.keys().chain(self.waits.keys());
        let all = tasks.chain(self.told_sharing.keys()).copied();
        all.chain(self.reprieves.jobs())
            .chain(self.tempos.jobs())
            .chain(self.verdicts.jobs())
            .collect()
    }

    /// Whether nothing is remembered of a job that has ended.
    pub(super) fn is_sound(&self, ledger: &Ledger) -> bool {
        let live = |job: JobId| ledger.get(job).is_some_and(|job| !job.state.is_final());
        self.jobs().into_iter().all(live)
    }
}

#[cfg(test)]
mod tests {
    use shared::actor::waits::Waits;
    use shared::units::Micros;

    use super::*;

    #[test]
    fn cl_12_nothing_is_remembered_of_a_job_that_ended() {
        let job = JobId(3);
        let mut notes = Notes::default();
        let waits = Waits {
            first: Micros(1),
            most: Micros(1),
        };
        notes.waits.insert(job, "it waits".into());
        notes.told_sharing.insert(job, "by one".into());
        notes.reprieves.refused(job, Micros(1), waits, Micros(9));
        notes.follow(job, Some(JobState::Queued));
        assert_eq!(notes.jobs().len(), 3);
        notes.follow(job, Some(JobState::Running));
        assert_eq!(notes.jobs().len(), 2, "it does not wait any more");
        notes.follow(job, Some(JobState::Cancelled));
        assert_eq!(notes.jobs(), []);
    }
}
