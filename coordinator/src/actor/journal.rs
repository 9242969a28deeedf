//! The thread of the journal: appends what waits together, renews the lease, reads the past.
//!
//! | id | invariant |
//! | --- | --- |
//! | JT-1 | what is told as written is in the journal, and so is all before it |
//! | JT-2 | after a failure nothing more is written, and the failure is told |
//! | JT-3 | the lease is renewed every third of its time, however busy or idle the journal is |
//! | JT-4 | the end waits for what was to be written, and for nobody who reads |

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use shared::ids::EventNumber;
use shared::telemetry::registry::Histogram;
use shared::units::Micros;
use tokio::sync::{mpsc, oneshot};

use super::settings::Clock;
use crate::book::Book;
use crate::record::Record;
use crate::store::{Journal, JournalError, Lease};

#[cfg(test)]
mod tests;

/// What the thread is told.
#[derive(Debug)]
enum Task {
    Append(u64, Vec<Record>),
    /// And how many events are kept.
    Snapshot(Box<Book>, u64),
    Read {
        after: EventNumber,
        most: u32,
        reply: oneshot::Sender<Result<Vec<Record>, JournalError>>,
    },
    End,
}

/// What the thread tells.
#[derive(Debug)]
pub(super) enum Written {
    /// All appends up to this number are safe.
    UpTo(u64),
    /// Nothing more will be written.
    Failed(JournalError),
}

/// A journal, and the right to write it.
pub(super) struct Held {
    pub(super) journal: Box<dyn Journal + Send>,
    pub(super) lease: Lease,
    /// How long the lease lasts from each renewal.
    pub(super) lasts: Micros,
    pub(super) steady: Clock,
    /// Is told how long appends take.
    pub(super) appends: Histogram,
}

/// The journal as the actor sees it.
#[derive(Debug)]
pub(super) struct Writer {
    tasks: Sender<Task>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread with a journal whose lease it has.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(held: Held, told: mpsc::UnboundedSender<Written>) -> std::io::Result<Self> {
        let (tasks, inbox) = channel();
        let work = move || work(held, &inbox, &told);
        let thread = thread::Builder::new().name("journal".into()).spawn(work)?;
        Ok(Self { tasks, thread })
    }

    /// Appends records; told as `UpTo` with this number once they are safe.
    pub(super) fn append(&self, number: u64, records: Vec<Record>) {
        self.give(Task::Append(number, records));
    }

    /// Writes what all records so far come to.
    pub(super) fn snapshot(&self, book: Book, kept: u64) {
        self.give(Task::Snapshot(Box::new(book), kept));
    }

    fn give(&self, task: Task) {
        // A thread that ended said why, and its owner ends too.
        let _ = self.tasks.send(task);
    }

    /// What reads records after a number, from anywhere.
    pub(super) fn reader(&self) -> Reader {
        Reader(self.tasks.clone())
    }

    /// Writes what waits, gives the lease back and ends. Blocks for that, and not for readers. JT-4
    pub(super) fn end(self) {
        self.give(Task::End);
        if self.thread.join().is_err() {
            tracing::error!("the journal's thread panicked: report a bug");
        }
    }
}

/// Reads records.
#[derive(Clone, Debug)]
pub(super) struct Reader(Sender<Task>);

impl Reader {
    /// At most so many records after a number; none when the journal is closed or cannot be read.
    pub(super) async fn read(&self, after: EventNumber, most: u32) -> Option<Vec<Record>> {
        let (reply, received) = oneshot::channel();
        self.0.send(Task::Read { after, most, reply }).ok()?;
        match received.await.ok()? {
            Ok(records) => Some(records),
            Err(error) => {
                tracing::error!(%error, "the journal is not read");
                None
            }
        }
    }
}

fn work(mut held: Held, inbox: &Receiver<Task>, told: &mpsc::UnboundedSender<Written>) {
    let third = Micros((held.lasts.0 / 3).max(1));
    // The lease was just taken.
    let mut renewed = (held.steady)();
    loop {
        let left = third.since((held.steady)().since(renewed));
        let first = match inbox.recv_timeout(Duration::from_micros(left.0)) {
            Ok(task) => Some(task),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Task::End),
        };
        let round = Round::of(first.into_iter().chain(inbox.try_iter()));
        let ends = round.ends;
        if let Err(error) = round.run(&mut held, told) {
            // An owner that is gone acts on nothing any more.
            let _ = told.send(Written::Failed(error));
            return;
        }
        if ends {
            if let Err(error) = held.journal.give_back(&held.lease) {
                tracing::warn!(%error, "the lease is not given back: who comes next waits for its expiry");
            }
            return;
        }
        let now = (held.steady)();
        if now.since(renewed) >= third {
            if let Err(error) = held.journal.renew(&held.lease, held.lasts) {
                // As above.
                let _ = told.send(Written::Failed(error));
                return;
            }
            renewed = now;
        }
    }
}

/// What waits, taken together: one append for all records.
#[derive(Debug, Default)]
struct Round {
    records: Vec<Record>,
    number: Option<u64>,
    later: Vec<Task>,
    ends: bool,
}

impl Round {
    fn of(tasks: impl Iterator<Item = Task>) -> Self {
        let mut round = Self::default();
        for task in tasks {
            match task {
                Task::Append(own, more) => {
                    round.number = Some(own);
                    round.records.extend(more);
                }
                Task::End => {
                    round.ends = true;
                    return round;
                }
                other => round.later.push(other),
            }
        }
        round
    }

    fn run(
        self,
        held: &mut Held,
        told: &mpsc::UnboundedSender<Written>,
    ) -> Result<(), JournalError> {
        if !self.records.is_empty() {
            let begin = (held.steady)();
            held.journal.append(&held.lease, &self.records)?;
            let took = (held.steady)().since(begin);
            held.appends.record(took.seconds());
        }
        if let Some(number) = self.number {
            // An owner that is gone acts on nothing any more; its records are safe all the same.
            let _ = told.send(Written::UpTo(number));
        }
        for task in self.later {
            match task {
                Task::Snapshot(book, kept) => held.journal.snapshot(&held.lease, &book, kept)?,
                Task::Read { after, most, reply } => {
                    // A reader that is gone lost interest.
                    let _ = reply.send(held.journal.records(after, most));
                }
                Task::Append(..) | Task::End => unreachable!("they are no later tasks"),
            }
        }
        Ok(())
    }
}
