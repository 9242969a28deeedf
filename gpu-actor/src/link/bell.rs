//! A bell: rung whenever something came for a stage, so that it sleeps otherwise and misses nothing.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts its rings; cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<(Mutex<u64>, Condvar)>);

impl Bell {
    /// Wakes who waits.
    pub fn ring(&self) {
        let (count, rung) = &*self.0;
        *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        rung.notify_all();
    }

    /// Rings so far: look at this, then at what may have come, then [`Self::wait`].
    #[must_use]
    pub fn heard(&self) -> u64 {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a ring after the `heard` ones, but no longer than `patience`; whether there was one.
    #[must_use]
    pub fn wait(&self, heard: u64, patience: Duration) -> bool {
        let (count, rung) = &*self.0;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = |count: &mut u64| *count == heard;
        let waited = rung
            .wait_timeout_while(count, patience, silent)
            .unwrap_or_else(PoisonError::into_inner);
        !waited.1.timed_out()
    }
}
