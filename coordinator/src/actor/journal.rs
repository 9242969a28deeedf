//! The thread of the journal: appends what waits together, renews the lease, reads the past.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use shared::ids::EventNumber;
use shared::units::Micros;
use tokio::sync::{mpsc, oneshot};

use crate::book::Book;
use crate::record::Record;
use crate::store::{Journal, JournalError, Lease};

/// What the thread is told.
#[derive(Debug)]
enum Task {
    Append(u64, Vec<Record>),
    Snapshot(Box<Book>),
    Read {
        after: EventNumber,
        most: u32,
        reply: oneshot::Sender<Result<Vec<Record>, JournalError>>,
    },
}

/// What the thread tells.
#[derive(Debug)]
pub(super) enum Written {
    /// All appends up to this number are safe.
    UpTo(u64),
    /// Nothing more will be written.
    Failed(JournalError),
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
    pub(super) fn start(
        journal: Box<dyn Journal + Send>,
        lease: Lease,
        lasts: Micros,
        told: mpsc::UnboundedSender<Written>,
    ) -> std::io::Result<Self> {
        let (tasks, inbox) = channel();
        let work = move || work(journal, &lease, lasts, &inbox, &told);
        let thread = thread::Builder::new().name("journal".into()).spawn(work)?;
        Ok(Self { tasks, thread })
    }

    /// Appends records; told as `UpTo` with this number once they are safe.
    pub(super) fn append(&self, number: u64, records: Vec<Record>) {
        // A thread that ended said why.
        let _ = self.tasks.send(Task::Append(number, records));
    }

    /// Writes what all records so far come to.
    pub(super) fn snapshot(&self, book: Book) {
        let _ = self.tasks.send(Task::Snapshot(Box::new(book)));
    }

    /// What reads records after a number, from anywhere.
    pub(super) fn reader(&self) -> Reader {
        Reader(self.tasks.clone())
    }

    /// Writes what waits, gives the lease back and ends. Blocks.
    pub(super) fn end(self) {
        drop(self.tasks);
        let _ = self.thread.join();
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

fn work(
    mut journal: Box<dyn Journal + Send>,
    lease: &Lease,
    lasts: Micros,
    inbox: &Receiver<Task>,
    told: &mpsc::UnboundedSender<Written>,
) {
    let third = Duration::from_micros((lasts.0 / 3).max(1));
    loop {
        let first = match inbox.recv_timeout(third) {
            Ok(task) => Some(task),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // Whoever comes next waits for the expiry instead.
                let _ = journal.give_back(lease);
                return;
            }
        };
        let outcome = round(&mut *journal, lease, lasts, first, inbox, told);
        if let Err(error) = outcome {
            let _ = told.send(Written::Failed(error));
            return;
        }
    }
}

/// Does what waits. The lease is renewed each time: records come more often than it expires, or nothing does.
fn round(
    journal: &mut dyn Journal,
    lease: &Lease,
    lasts: Micros,
    first: Option<Task>,
    inbox: &Receiver<Task>,
    told: &mpsc::UnboundedSender<Written>,
) -> Result<(), JournalError> {
    let mut records = Vec::new();
    let mut number = None;
    let mut later = Vec::new();
    for task in first.into_iter().chain(inbox.try_iter()) {
        match task {
            Task::Append(own, more) => {
                number = Some(own);
                records.extend(more);
            }
            other => later.push(other),
        }
    }
    if records.is_empty() {
        journal.renew(lease, lasts)?;
    } else {
        journal.append(lease, &records)?;
    }
    if let Some(number) = number {
        let _ = told.send(Written::UpTo(number));
    }
    for task in later {
        match task {
            Task::Snapshot(book) => journal.snapshot(lease, &book)?,
            Task::Read { after, most, reply } => {
                let _ = reply.send(journal.records(after, most));
            }
            Task::Append(..) => unreachable!("appends were done"),
        }
    }
    Ok(())
}
