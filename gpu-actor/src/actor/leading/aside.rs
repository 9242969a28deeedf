//! Jobs that were set aside as their numbers are not finite: the state after their last step is stored before that is told,
//! and the adapter of the newest state that is known to be good is written, for the coordinator takes the job for failed
//! then, and hears no more of it.
//!
//! - `AS-1` That a job is set aside is told once: when both are in the store, or when the store has not taken them for
//!   [`STORE_PATIENCE`].
//! - `AS-2` What is told as good is proven ([`crate::train::proof`]).

use std::collections::BTreeMap;

use shared::ids::JobName;
use shared::units::Micros;
use shared::wire::notice::JobNotice;

use super::super::export::Written;
use super::again::STORE_PATIENCE;
use super::{Last, Leading, id};

/// What is to be told of a job that was set aside.
#[derive(Debug)]
struct Untold {
    step: u64,
    reason: String,
    since: Micros,
}

/// Jobs that were set aside and are not told.
#[derive(Debug, Default)]
pub(super) struct Aside(BTreeMap<JobName, Untold>);

impl Aside {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Leading<'_> {
    /// A job is set aside after its last good step.
    pub(super) fn set_aside(&mut self, own: &JobName, step: u64, reason: String) {
        let since = (self.around.clock)();
        tracing::warn!(trace = self.trace(own), job = %own, step, reason, "job set aside");
        self.ending.insert(own.clone(), (step, Last::Remove));
        let untold = Untold {
            step,
            reason,
            since,
        };
        self.aside.0.insert(own.clone(), untold);
    }

    /// Its state is durable, and the adapter of a good one is written; or nothing more is waited for.
    pub(super) fn tell_kept(&mut self, own: &JobName, good: Option<Written>) {
        let Some(Untold { step, reason, .. }) = self.aside.0.remove(own) else {
            return;
        };
        let Some(job) = id(own) else { return };
        if let Some((step, files)) = good {
            self.notice(job, JobNotice::Salvaged { step, files });
        }
        self.notice(job, JobNotice::Quarantined { step, reason });
    }

    /// Tells what the store has not taken for long.
    pub(super) fn tell_aside(&mut self) {
        let now = (self.around.clock)();
        let late = |untold: &Untold| {
            // A clock that was set back is no reason to wait for it.
            now < untold.since || now.since(untold.since) >= STORE_PATIENCE
        };
        let late = self.aside.0.iter().filter(|(_, untold)| late(untold));
        let late: Vec<JobName> = late.map(|(own, _)| own.clone()).collect();
        for own in late {
            self.tell_kept(&own, None);
        }
    }
}
