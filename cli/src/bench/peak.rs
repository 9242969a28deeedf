//! The most memory of this process while something is measured.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::machine;

/// How often it looks; the script that measures other trainers looks as often.
const EVERY: Duration = Duration::from_millis(200);

/// Looks at the proportional set size of this process again and again, and keeps the largest.
#[derive(Debug)]
pub(crate) struct PeakWatch {
    done: Sender<()>,
    thread: JoinHandle<Option<u64>>,
}

impl PeakWatch {
    /// Begins to look, at once and then now and again.
    pub(crate) fn start() -> Self {
        let (done, over) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let mut peak = None;
            loop {
                peak = peak.max(machine::memory().map(|memory| memory.proportional));
                if over.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    return peak;
                }
            }
        });
        Self { done, thread }
    }

    /// Bytes at the height; `None` where the system does not say.
    pub(crate) fn stop(self) -> Option<u64> {
        drop(self.done);
        self.thread.join().ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn even_a_short_moment_has_a_peak() {
        assert!(PeakWatch::start().stop() > Some(0));
    }
}
