//! What could not be stored and that nothing else would store: it is stored again after a while.
//!
//! While a job trains, its next checkpoint does that. One that took its last step has no next, nor has one whose adapter
//! could not be written, nor a replica that was told to end its steps and starts no others.

use std::collections::BTreeMap;

use shared::actor::waits::Waits;
use shared::ids::{JobName, PlanEpoch};
use shared::units::Micros;

use super::{Event, Leading, ReplicaError};

/// Between two tries.
pub(super) const WAITS: Waits = Waits {
    first: Micros::of_millis(1_000),
    most: Micros::of_millis(30_000),
};

/// A store that has not taken the states of a drain within this is told as one that does not, well before the coordinator
/// takes the lead for lost.
pub(super) const STORE_PATIENCE: Micros = Micros::of_millis(20_000);

/// Where a machine may go before the steps of a drain end, those that have not ended within this are not waited for with
/// what was learned before them: the last whole states are stored while they go on. Shorter steps end sooner than a store
/// takes a state that the next one supersedes. Where no machine goes, each state is stored once, after the last step.
pub(super) const HASTE: Micros = Micros::of_millis(250);

/// A drain whose steps are being ended, and whose states are being stored.
#[derive(Debug)]
pub(super) struct Draining {
    toward: PlanEpoch,
    /// Whether a machine may go before the steps end.
    soon: bool,
    since: Micros,
    /// When the last step had ended.
    ended: Option<Micros>,
    /// Why states of jobs were not stored.
    pub(super) refused: BTreeMap<JobName, String>,
}

impl Draining {
    /// Whether a machine may go before the steps end.
    pub(super) fn is_soon(&self) -> bool {
        self.soon
    }
}

/// When it is tried again.
#[derive(Debug, Default)]
pub(super) struct Again {
    /// When it failed last, and how long is waited; none when nothing failed.
    failed: Option<(Micros, Micros)>,
    failures: u32,
    /// Whether the last drain is not durable.
    pub(super) drain: bool,
}

impl Again {
    /// Something could not be stored; more of it within a wait counts once.
    pub(super) fn failed(&mut self, now: Micros) {
        if self.failed.is_none() {
            self.failures = self.failures.saturating_add(1);
            self.failed = Some((now, WAITS.after(self.failures)));
        }
    }

    /// Something was stored.
    pub(super) fn stored(&mut self) {
        self.failures = 0;
    }

    /// Whether it is to be tried again now.
    fn is_due(&mut self, now: Micros) -> bool {
        // A clock that was set back is no reason to wait for it.
        let due = |(since, wait): (Micros, Micros)| now < since || now.since(since) >= wait;
        let due = self.failed.is_some_and(due);
        if due {
            self.failed = None;
        }
        due
    }
}

impl Leading<'_> {
    /// Stores again what could not be stored and is not of a job that trains on.
    pub(super) fn try_again(&mut self) -> Result<(), ReplicaError> {
        if !self.again.is_due((self.around.clock)()) {
            return Ok(());
        }
        if let Some(toward) = self
            .drained
            .filter(|_| self.again.drain && self.draining.is_none())
        {
            // All steps have ended: nothing is left to be stored in haste.
            return self.drain(toward, false);
        }
        let ending: Vec<JobName> = self.ending.keys().cloned().collect();
        for own in ending {
            self.lead.make_durable(&own)?;
            self.settle(&own)?;
        }
        Ok(())
    }

    /// Begins to end what is begun and to have all states stored; [`Self::note_drained`] says whether they are.
    pub(super) fn drain(&mut self, toward: PlanEpoch, soon: bool) -> Result<(), ReplicaError> {
        self.draining = None;
        let events = self.lead.settle()?;
        self.draining = Some(Draining {
            toward,
            soon,
            since: (self.around.clock)(),
            ended: None,
            refused: BTreeMap::new(),
        });
        self.tell(events)?;
        self.note_drained()
    }

    /// Says whether all states of a drain are durable, or why not, once all steps have ended and the store has taken or
    /// refused all states; or once it has taken too long for that. What takes long meanwhile is not waited for with all the
    /// rest.
    pub(super) fn note_drained(&mut self) -> Result<(), ReplicaError> {
        let Some(draining) = &mut self.draining else {
            return Ok(());
        };
        let now = (self.around.clock)();
        // A clock that was set back is no reason to wait for it.
        let passed = |since: Micros, time| now < since || now.since(since) >= time;
        if self.lead.is_settling() {
            return match draining.soon && passed(draining.since, HASTE) {
                true => self.lead.hurry(),
                false => Ok(()),
            };
        }
        let ended = *draining.ended.get_or_insert(now);
        if self.lead.is_storing() && !passed(ended, STORE_PATIENCE) {
            return Ok(());
        }
        let undurable = self.lead.undurable().map(|(job, step)| {
            let why = draining.refused.get(job);
            let why = why.map_or("the store has not answered", String::as_str);
            format!("step {step} of {job}: {why}")
        });
        let undurable: Vec<String> = undurable.collect();
        let epochs = [self.around.epoch, draining.toward];
        self.draining = None;
        self.again.drain = !undurable.is_empty();
        let outcome = match undurable.is_empty() {
            true => Ok(()),
            false => {
                self.again.failed(now);
                Err(undurable.join("; "))
            }
        };
        (self.around.report)(Event::Drained(epochs, outcome));
        Ok(())
    }
}
