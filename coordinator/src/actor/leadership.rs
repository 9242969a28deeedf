//! How a process comes to lead: it takes the lease, and with it what the journal says.

use std::time::Duration;

use shared::ids::{EventNumber, Term};
use tokio::sync::mpsc;

use super::error::RunError;
use super::journal::{Held, Writer, Written};
use super::meters::Meters;
use super::settings::CoordinatorSettings;
use crate::life::cluster::{Coordinator, Now, Outcome};
use crate::store::sqlite::Sqlite;
use crate::store::watch::Watch;
use crate::store::{Journal, JournalError};

/// What a leader begins with.
pub(super) struct Leadership {
    pub(super) term: Term,
    pub(super) machine: (Coordinator, Outcome),
    pub(super) journal: (Writer, mpsc::UnboundedReceiver<Written>),
}

impl Leadership {
    /// Waits for the lease while another leads, and reads the journal.
    ///
    /// # Errors
    /// [`RunError`] when the journal cannot be read or written.
    pub(super) fn take(settings: &CoordinatorSettings, meters: &Meters) -> Result<Self, RunError> {
        let mut journal = Sqlite::open(&settings.journal)?;
        let lease = take_lease(&mut journal, settings)?;
        let book = journal.load()?.book()?;
        let kept = settings.decisions.limits.events_kept as u64;
        let after = EventNumber(book.last.0.saturating_sub(kept));
        let recent = journal.records(after, u32::try_from(kept).unwrap_or(u32::MAX))?;
        let term = lease.term;
        let (told, written) = mpsc::unbounded_channel();
        let held = Held {
            journal: Box::new(journal),
            lease,
            lasts: settings.lease,
            steady: std::sync::Arc::clone(&settings.steady),
            appends: meters.appends(),
        };
        let writer = Writer::start(held, told)?;
        let now = Now {
            steady: (settings.steady)(),
            wall: (settings.wall)(),
        };
        let decisions = settings.decisions.clone();
        Ok(Self {
            term,
            machine: Coordinator::begin(now, decisions, term, book, &recent),
            journal: (writer, written),
        })
    }
}

/// Takes the lease; one that a coordinator before left behind is watched until it may be taken over.
fn take_lease(
    journal: &mut dyn Journal,
    settings: &CoordinatorSettings,
) -> Result<crate::store::Lease, JournalError> {
    let (owner, lasts) = (settings.owner.as_str(), settings.lease);
    let mut watch = Watch::new(lasts);
    loop {
        let taken = match journal.led()? {
            None => journal.take_lease(owner, lasts),
            Some(seen) if watch.is_free(&seen, (settings.steady)()) => {
                journal.take_over(owner, lasts, &seen)
            }
            Some(seen) => {
                let (owner, term) = (&seen.owner, seen.term);
                if watch.is_news(&seen) {
                    tracing::info!(owner, %term, left = %seen.left, "waiting for the lease");
                }
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the shell waits for a lease that is not renewed any more, which nobody announces"
                )]
                std::thread::sleep(Duration::from_micros(lasts.0.clamp(400_000, 4_000_000) / 8));
                continue;
            }
        };
        match taken {
            // Another was quicker: it is watched in its turn.
            Err(JournalError::Led { .. }) => {}
            // Whoever led was stopped in the middle of a write: nobody leads before it goes on or ends.
            Err(JournalError::InUse { .. }) => {
                tracing::warn!(
                    "the journal is held in the middle of a write by another process: still waiting for the lease"
                );
            }
            taken => return taken,
        }
    }
}
