//! Jobs that a replica could not take for reasons that are not theirs, as when the store of artifacts does not answer.
//!
//! Asked again at once, a replica refuses again at once. So each such job waits, twice as long each time, and fails only
//! when the reason has lasted for `bounds.outage`: an outage that is shorter fails no job. CL-10
//!
//! Only what is known to be of the reason counts: its waits, and its tries from the order to the refusal. That it was paused,
//! queued or without a replica meanwhile is nobody's outage, and after that much of it for which no try failed, nothing is
//! known of the reason any more: it begins anew.
//!
//! Times are of the clock that never jumps, so they are not of the journal: after a restart of the coordinator a job has
//! all its patience again.

use std::collections::BTreeMap;

use shared::actor::waits::Waits;
use shared::ids::JobId;
use shared::life::{Reason, ReasonClass};
use shared::units::Micros;
use shared::wire::notice::JobNotice;

use super::Coordinator;
use crate::record::Change;

#[derive(Clone, Copy, Debug)]
struct Reprieve {
    /// For how long the reason lasts, as far as is known.
    lasts: Micros,
    refusals: u32,
    /// When it was refused last.
    refused: Micros,
    /// When it may be tried again.
    until: Micros,
    /// When it was given to a replica since, last.
    tried: Option<Micros>,
}

/// Jobs that wait to be tried again.
#[derive(Clone, Debug, Default)]
pub(super) struct Reprieves(BTreeMap<JobId, Reprieve>);

impl Reprieves {
    /// Whether a job may be given to a replica.
    pub(super) fn may_try(&self, job: JobId, now: Micros) -> bool {
        self.0.get(&job).is_none_or(|one| now >= one.until)
    }

    /// A job is given to a replica, or given again to one that is attached again.
    pub(super) fn tried(&mut self, job: JobId, now: Micros) {
        if let Some(one) = self.0.get_mut(&job) {
            one.tried = Some(now);
        }
    }

    /// A replica could not take a job: how often in a row, and for how long by now; none when it is to be tried again.
    pub(super) fn refused(
        &mut self,
        job: JobId,
        now: Micros,
        waits: Waits,
        outage: Micros,
    ) -> Option<(u32, Micros)> {
        let fresh = Reprieve {
            lasts: Micros(0),
            refusals: 0,
            refused: now,
            until: now,
            tried: Some(now),
        };
        let one = self.0.entry(job).or_insert(fresh);
        let tried = one.tried.unwrap_or(one.until);
        if tried.since(one.until) > outage {
            *one = fresh;
        } else {
            let waited = one.until.since(one.refused);
            one.lasts = one.lasts.plus(waited).plus(now.since(tried));
        }
        one.refusals = one.refusals.saturating_add(1);
        (one.refused, one.tried) = (now, None);
        let lasts = one.lasts;
        // The last try is when the patience is over, and not a wait later.
        let wait = waits.after(one.refusals).min(outage.since(lasts));
        one.until = now.plus(wait);
        (lasts >= outage).then_some((one.refusals, lasts))
    }

    /// Jobs that wait to be tried again.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.0.keys().copied()
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.0.remove(&job);
    }
}

impl Coordinator {
    /// What a notice that the ledger has taken says of a job's patience.
    pub(super) fn note_reprieve(&mut self, job: JobId, told: &Told) {
        match told {
            Told::Taken => self.notes.reprieves.forget(job),
            Told::Refused(why) => {
                let bounds = &self.settings.bounds;
                let (waits, outage) = (bounds.again, bounds.outage);
                let now = self.now.steady;
                let waits_on = self.book.ledger.get(job);
                if waits_on.is_none_or(|job| job.state.is_final()) {
                    return;
                }
                let over = self.notes.reprieves.refused(job, now, waits, outage);
                if let Some((refusals, lasts)) = over {
                    let message = format!("{why}; it was tried {refusals} times within {lasts}");
                    let class = ReasonClass::System;
                    let reason = Reason { class, message };
                    self.record(Change::Unfit { job, reason });
                }
            }
            Told::Other => {}
        }
    }
}

/// What of a notice matters here.
pub(super) enum Told {
    Taken,
    /// For reasons of the replica's own; why.
    Refused(String),
    Other,
}

impl Told {
    pub(super) fn of(notice: &JobNotice) -> Self {
        match notice {
            // Its owner's pause is the end of a row, too: what is tried after it is another.
            JobNotice::Admitted { .. }
            | JobNotice::Recovered { .. }
            | JobNotice::Step { .. }
            | JobNotice::Paused { .. }
            | JobNotice::Resumed => Self::Taken,
            JobNotice::Refused(reason) if reason.class == ReasonClass::System => {
                Self::Refused(reason.message.clone())
            }
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cl_10_an_outage_that_is_shorter_than_the_patience_fails_no_job() {
        let waits = Waits {
            first: Micros(1),
            most: Micros(8),
        };
        let job = JobId(1);
        for outage in [20, 100, 300] {
            let mut reprieves = Reprieves::default();
            let (mut now, mut refusals) = (Micros(1_000), 0);
            loop {
                assert!(reprieves.may_try(job, now));
                refusals += 1;
                let over = reprieves.refused(job, now, waits, Micros(outage));
                if let Some(told) = over {
                    assert_eq!(told, (refusals, now.since(Micros(1_000))));
                    break;
                }
                let before = now;
                assert!(!reprieves.may_try(job, now), "not at once");
                while !reprieves.may_try(job, now) {
                    now = now.plus(Micros(1));
                }
                assert!(now.since(before) <= Micros(8));
            }
            assert_eq!(now, Micros(1_000 + outage), "the last try is not early");
            reprieves.forget(job);
            assert!(reprieves.may_try(job, now));
        }
    }

    #[test]
    fn cl_10_time_in_which_no_replica_was_asked_is_no_outage() {
        let waits = Waits {
            first: Micros(1),
            most: Micros(8),
        };
        let (job, outage) = (JobId(1), Micros(100));
        let mut reprieves = Reprieves::default();
        assert_eq!(reprieves.refused(job, Micros(0), waits, outage), None);
        // It waits for a place for less than the patience, and a try takes long.
        reprieves.tried(job, Micros(91));
        assert_eq!(reprieves.refused(job, Micros(150), waits, outage), None);
        // Its replica is lost as it is tried: what counts is from when that is attached again.
        reprieves.tried(job, Micros(152));
        reprieves.tried(job, Micros(200));
        assert_eq!(reprieves.refused(job, Micros(210), waits, outage), None);
        // 1 + 59, 2 + 10, and 4 + 24: that is the patience.
        reprieves.tried(job, Micros(214));
        let over = reprieves.refused(job, Micros(238), waits, outage);
        assert_eq!(over, Some((4, outage)));
        // For longer than that nobody asked: what was is over.
        reprieves.tried(job, Micros(1_000));
        assert_eq!(reprieves.refused(job, Micros(1_001), waits, outage), None);
    }
}
