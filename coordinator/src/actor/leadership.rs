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
use crate::store::{Journal, JournalError};

/// What a leader begins with.
pub(super) struct Leadership {
    pub(super) term: Term,
    pub(super) machine: (Coordinator, Outcome),
    pub(super) journal: (Writer, mpsc::UnboundedReceiver<Written>),
}

impl Leadership {
    /// Waits for the lease as long as it takes to expire, and reads the journal.
    ///
    /// # Errors
    /// [`RunError`] when another leads, or the journal cannot be read.
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

/// Takes the lease; one that a coordinator before left behind expires within its time.
fn take_lease(
    journal: &mut dyn Journal,
    settings: &CoordinatorSettings,
) -> Result<crate::store::Lease, JournalError> {
    loop {
        match journal.take_lease(&settings.owner, settings.lease) {
            Err(JournalError::Led { owner, term, left }) if left <= settings.lease => {
                tracing::info!(owner, %term, %left, "waiting for the lease");
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the shell waits for a lease to expire, which nobody announces"
                )]
                std::thread::sleep(Duration::from_micros(left.0.clamp(50_000, 500_000)));
            }
            taken => return taken,
        }
    }
}
