//! The journal: records of all changes, snapshots of what they come to, and the lease of who may write.
//!
//! | id | invariant |
//! | --- | --- |
//! | ST-1 | records are written only by who took the lease last, in the same transaction that checks it |
//! | ST-2 | a lease is taken over only when it was given back, expired by the journal's own clock, or is as who takes it over saw it for its whole time; its term grows by one |
//! | ST-3 | numbers have no gap and none is written twice |
//! | ST-4 | a journal of a newer schema is not touched |
//! | ST-5 | only records that a snapshot covers are forgotten, and never the newest |
//!
//! Whoever has the lease writes until another took it: its expiry lets others in, and shuts nobody out. So no jump of the
//! wall clock ends a leadership. When others may take it is [`watch`]'s to say.
//!
//! Records stay when a snapshot is made, as many as are to be kept: they are the history of the cluster.

pub mod memory;
pub mod sqlite;
pub mod watch;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use shared::ids::{EventNumber, Term};
use shared::units::Micros;
use thiserror::Error;

use crate::book::{Book, Gap};
use crate::record::Record;

/// The right to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who has it.
    pub owner: String,
    /// The leadership.
    pub term: Term,
}

/// A lease that was not given back, as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who has it.
    pub owner: String,
    /// The leadership.
    pub term: Term,
    /// When it expires, by the journal's own clock; each renewal changes it.
    pub expires: Micros,
    /// Until then; 0 when that is over.
    pub left: Micros,
}

/// Why the journal was not written or read.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another leads.
    #[error(
        "{owner} leads this cluster (term {term}) for another {left}: wait, or stop it; two coordinators never lead \
         the same journal"
    )]
    Led {
        /// Who.
        owner: String,
        /// Its term.
        term: Term,
        /// Until its lease expires.
        left: Micros,
    },
    /// The lease is not ours any more.
    #[error(
        "the lease of term {term} was taken over: nothing was written; stop, and start again as a follower"
    )]
    Deposed {
        /// The term that was ours.
        term: Term,
    },
    /// ST-3.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// ST-4.
    #[error(
        "the journal {path} has schema {found}, this program knows up to {known}: use the newer program that wrote it"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Somebody else has the file.
    #[error("the journal {path} is in use by another process: stop it, or choose another path")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A line that is not a record.
    #[error(
        "record {number} of the journal cannot be read: {source}; where a newer program wrote it, use that one, else restore the \
         journal from a backup"
    )]
    Unreadable {
        /// Which.
        number: EventNumber,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The database failed.
    #[error("the journal {path} failed: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// The database's reason.
        source: rusqlite::Error,
    },
}

/// What a journal held when it was loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// The newest snapshot.
    pub snapshot: Option<Book>,
    /// All records after it.
    pub records: Vec<Record>,
}

impl Loaded {
    /// What all of it comes to.
    ///
    /// # Errors
    /// [`Gap`] when records are missing.
    pub fn book(self) -> Result<Book, Gap> {
        let mut book = self.snapshot.unwrap_or_default();
        for record in &self.records {
            book.apply(record)?;
        }
        Ok(book)
    }
}

/// Where the coordinator writes what must outlive it.
pub trait Journal {
    /// The lease as it is, unless it was given back.
    ///
    /// # Errors
    /// When it cannot be read.
    fn led(&mut self) -> Result<Option<Seen>, JournalError>;

    /// Takes the right to write, for so long, from who had it and does not renew it any more, if it is still as it was seen.
    ///
    /// # Errors
    /// [`JournalError::Led`] when it was renewed or taken meanwhile.
    fn take_over(&mut self, owner: &str, lasts: Micros, seen: &Seen)
    -> Result<Lease, JournalError>;

    /// Takes the right to write, for so long, if nobody has it or it expired by the journal's own clock.
    ///
    /// # Errors
    /// [`JournalError::Led`] while another has it.
    fn take_lease(&mut self, owner: &str, lasts: Micros) -> Result<Lease, JournalError>;

    /// Keeps the right to write, for so long from now.
    ///
    /// # Errors
    /// [`JournalError::Deposed`] when it was lost.
    fn renew(&mut self, lease: &Lease, lasts: Micros) -> Result<(), JournalError>;

    /// Gives the right to write back, so that the next need not wait.
    ///
    /// # Errors
    /// [`JournalError::Deposed`] when it was lost.
    fn give_back(&mut self, lease: &Lease) -> Result<(), JournalError>;

    /// Writes records, all or none.
    ///
    /// # Errors
    /// [`JournalError::Deposed`] when the right was lost, [`JournalError::Gap`] when they do not follow.
    fn append(&mut self, lease: &Lease, records: &[Record]) -> Result<(), JournalError>;

    /// Writes what all records so far come to; the newest snapshot is kept, and behind it the newest so many records.
    ///
    /// # Errors
    /// [`JournalError::Deposed`] when the right was lost.
    fn snapshot(&mut self, lease: &Lease, book: &Book, kept: u64) -> Result<(), JournalError>;

    /// The newest snapshot and all records after it.
    ///
    /// # Errors
    /// When something cannot be read.
    fn load(&mut self) -> Result<Loaded, JournalError>;

    /// At most so many records after a number.
    ///
    /// # Errors
    /// When something cannot be read.
    fn records(&mut self, after: EventNumber, most: u32) -> Result<Vec<Record>, JournalError>;
}
