//! What could not be stored and that nothing else would store: it is stored again after a while.
//!
//! While a job trains, its next checkpoint does that. One that took its last step has no next, nor has one whose adapter
//! could not be written, nor a replica that was told to end its steps and starts no others.

use shared::actor::waits::Waits;
use shared::ids::{JobName, PlanEpoch};
use shared::units::Micros;

use super::{Event, Leading, ReplicaError, ReplicaEvent};

/// Between two tries.
pub(super) const WAITS: Waits = Waits {
    first: Micros::of_millis(1_000),
    most: Micros::of_millis(30_000),
};

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
        if let Some(toward) = self.drained.filter(|_| self.again.drain) {
            return self.drain(toward);
        }
        let ending: Vec<JobName> = self.ending.keys().cloned().collect();
        for own in ending {
            self.lead.make_durable(&own)?;
            self.settle(&own)?;
        }
        Ok(())
    }

    /// Ends what is begun and says whether all states are durable, or why not.
    pub(super) fn drain(&mut self, toward: PlanEpoch) -> Result<(), ReplicaError> {
        let events = self.lead.drain()?;
        let undurable: Vec<String> = self
            .lead
            .undurable()
            .map(|(job, step)| {
                let why = events.iter().find_map(|event| match event {
                    ReplicaEvent::NotDurable {
                        job: other, reason, ..
                    } if other == job => Some(reason.as_str()),
                    _ => None,
                });
                let why = why.unwrap_or("it was not stored");
                format!("step {step} of {job}: {why}")
            })
            .collect();
        self.tell(events)?;
        self.again.drain = !undurable.is_empty();
        let outcome = match undurable.is_empty() {
            true => Ok(()),
            false => {
                self.again.failed((self.around.clock)());
                Err(undurable.join("; "))
            }
        };
        let epochs = [self.around.epoch, toward];
        (self.around.report)(Event::Drained(epochs, outcome));
        Ok(())
    }
}
