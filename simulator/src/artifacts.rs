//! The store of artifacts, and what a step of a job comes to.

use std::collections::BTreeMap;

use shared::ids::JobId;
use shared::units::Micros;

/// The state of a job after so many steps: each step hashes the job, the step, and the state before.
pub(crate) fn state_after(before: u64, job: JobId, step: u64) -> u64 {
    let mut hash = before ^ 0xcbf2_9ce4_8422_2325;
    for word in [job.0, step] {
        for byte in word.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

/// What an undisturbed run comes to.
pub(crate) fn undisturbed(job: JobId, steps: u64) -> u64 {
    (1..=steps).fold(0, |state, step| state_after(state, job, step))
}

/// States and adapters; a write is there whole or not at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Artifacts {
    states: BTreeMap<JobId, (u64, u64)>,
    closed_until: Micros,
}

impl Artifacts {
    /// It does not answer until then.
    pub(crate) fn close(&mut self, until: Micros) {
        self.closed_until = until;
    }

    /// Whether it answers.
    pub(crate) fn answers(&self, now: Micros) -> bool {
        now >= self.closed_until
    }

    /// Keeps a state, if none of a later step is there.
    pub(crate) fn put(&mut self, job: JobId, step: u64, state: u64) {
        let newest = self.states.entry(job).or_insert((step, state));
        if step > newest.0 {
            *newest = (step, state);
        }
    }

    /// The newest state: its step and what it comes to.
    pub(crate) fn newest(&self, job: JobId) -> (u64, u64) {
        self.states.get(&job).copied().unwrap_or((0, 0))
    }
}
