//! A journal in an SQLite file: WAL, synced on every commit, every write in an immediate transaction.
//!
//! The expiry of the lease is compared by the database with the database's own clock. One process opens a file once:
//! the descriptor's locks would go with any other that it closes. Never on a network file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};
use shared::ids::{EventNumber, Term};
use shared::units::Micros;

use super::{Journal, JournalError, Lease, Loaded, Seen};
use crate::book::{Book, Gap};
use crate::record::Record;

/// The schema this program writes.
const SCHEMA: i64 = 1;

/// How long a write waits for another process.
const BUSY: Duration = Duration::from_secs(5);

/// Records that are forgotten with one snapshot at most: a file that was never trimmed is, little by little.
const TRIMMED: i64 = 20_000;

/// Microseconds since 1970, by the database.
const CLOCK: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

const TABLES: &str = "
    CREATE TABLE record (
        number INTEGER PRIMARY KEY,
        term INTEGER NOT NULL,
        at INTEGER NOT NULL,
        job INTEGER,
        change TEXT NOT NULL
    ) STRICT;
    CREATE INDEX record_of_job ON record (job, number) WHERE job IS NOT NULL;
    CREATE TABLE snapshot (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        number INTEGER NOT NULL,
        book TEXT NOT NULL
    ) STRICT;
    CREATE TABLE lease (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        owner TEXT NOT NULL,
        term INTEGER NOT NULL,
        expires INTEGER NOT NULL
    ) STRICT;
    INSERT INTO lease VALUES (1, '', 0, 0);
";

/// The journal.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    connection: Connection,
}

/// A failure of the database, with its file.
fn failed(path: &Path) -> impl Fn(rusqlite::Error) -> JournalError + '_ {
    |source| match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => JournalError::InUse {
            path: path.to_path_buf(),
        },
        _ => JournalError::Database {
            path: path.to_path_buf(),
            source,
        },
    }
}

impl Sqlite {
    /// Opens a journal, and makes it where none is.
    ///
    /// # Errors
    /// [`JournalError::Newer`] when a newer program wrote it, [`JournalError::InUse`] when another process keeps it
    /// locked, [`JournalError::Database`] when it is no journal or the disk refuses.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let failed = failed(path);
        let connection = Connection::open(path).map_err(&failed)?;
        let mut this = Self {
            path: path.to_path_buf(),
            connection,
        };
        this.connection.busy_timeout(BUSY).map_err(&failed)?;
        let schema = this.schema().map_err(&failed)?;
        // ST-4: looked at before anything is set, which would already write to the file.
        if schema > SCHEMA {
            return Err(this.newer(schema));
        }
        let settings = [("journal_mode", "WAL"), ("synchronous", "FULL")];
        for (name, value) in settings {
            this.connection
                .pragma_update(None, name, value)
                .map_err(&failed)?;
        }
        this.write(|transaction| {
            let schema: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            if schema == 0 {
                transaction.execute_batch(TABLES)?;
                transaction.pragma_update(None, "user_version", SCHEMA)?;
            }
            Ok(Ok(()))
        })?;
        Ok(this)
    }

    /// Reads a journal without writing to it or needing its lease.
    ///
    /// # Errors
    /// [`JournalError::Newer`] when a newer program wrote it, [`JournalError::Database`] when it is no journal,
    /// [`JournalError::Unreadable`] when a line of it is no record.
    pub fn read(path: &Path) -> Result<Loaded, JournalError> {
        let failed = failed(path);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(&failed)?;
        connection.busy_timeout(BUSY).map_err(&failed)?;
        let mut this = Self {
            path: path.to_path_buf(),
            connection,
        };
        match this.schema().map_err(&failed)? {
            // Made, and never begun.
            0 => Ok(Loaded::default()),
            schema if schema > SCHEMA => Err(this.newer(schema)),
            _ => this.load(),
        }
    }

    fn newer(&self, found: i64) -> JournalError {
        JournalError::Newer {
            path: self.path.clone(),
            found,
            known: SCHEMA,
        }
    }

    fn schema(&self) -> Result<i64, rusqlite::Error> {
        self.connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
    }

    /// Runs something in an immediate transaction, committed only when it succeeds.
    fn write<T>(
        &mut self,
        what: impl FnOnce(&Transaction<'_>) -> Result<Result<T, JournalError>, rusqlite::Error>,
    ) -> Result<T, JournalError> {
        let failed = failed(&self.path);
        let behavior = TransactionBehavior::Immediate;
        let transaction = self
            .connection
            .transaction_with_behavior(behavior)
            .map_err(&failed)?;
        let done = what(&transaction).map_err(&failed)??;
        transaction.commit().map_err(&failed)?;
        Ok(done)
    }
}

/// ST-1: whether the lease is ours still.
fn fence(
    transaction: &Transaction<'_>,
    lease: &Lease,
) -> Result<Result<(), JournalError>, rusqlite::Error> {
    let sql = "SELECT 1 FROM lease WHERE owner = ?1 AND term = ?2 AND expires > 0";
    let ours = transaction
        .query_row(sql, params![lease.owner, lease.term.0 as i64], |_| Ok(()))
        .optional()?;
    Ok(ours.ok_or(JournalError::Deposed { term: lease.term }))
}

/// The lease as it is.
fn found(connection: &Connection) -> Result<Seen, rusqlite::Error> {
    let sql = format!("SELECT owner, term, expires, expires - {CLOCK} FROM lease");
    connection.query_row(&sql, [], |row| {
        let (term, expires, left): (i64, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(Seen {
            owner: row.get(0)?,
            term: Term(term as u64),
            expires: Micros(expires.max(0) as u64),
            left: Micros(left.max(0) as u64),
        })
    })
}

/// ST-2: takes the lease where a condition holds, of which the parameters from the third on are these.
fn take(
    transaction: &Transaction<'_>,
    (owner, lasts): (&str, Micros),
    condition: &str,
    seen: Option<&Seen>,
) -> Result<Result<Lease, JournalError>, rusqlite::Error> {
    let sql = format!(
        "UPDATE lease SET owner = ?1, term = term + 1, expires = {CLOCK} + ?2 WHERE {condition} RETURNING term"
    );
    let term = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let lasts = lasts.0 as i64;
    let taken = match seen {
        None => transaction.query_row(&sql, params![owner, lasts], term),
        Some(seen) => {
            let (of, expires) = (seen.term.0 as i64, seen.expires.0 as i64);
            transaction.query_row(&sql, params![owner, lasts, of, expires], term)
        }
    };
    if let Some(term) = taken.optional()? {
        let (owner, term) = (owner.into(), Term(term as u64));
        return Ok(Ok(Lease { owner, term }));
    }
    let Seen {
        owner, term, left, ..
    } = found(transaction)?;
    Ok(Err(JournalError::Led { owner, term, left }))
}

fn insert(
    transaction: &Transaction<'_>,
    lease: &Lease,
    record: &Record,
) -> Result<Result<(), JournalError>, rusqlite::Error> {
    let change = match serde_json::to_string(&record.change) {
        Ok(change) => change,
        Err(source) => {
            let number = record.number;
            return Ok(Err(JournalError::Unreadable { number, source }));
        }
    };
    let sql = "INSERT INTO record VALUES (?1, ?2, ?3, ?4, ?5)";
    let job = record.change.job().map(|job| job.0 as i64);
    let number = record.number.0 as i64;
    let (term, at) = (lease.term.0 as i64, record.at.0 as i64);
    transaction
        .prepare_cached(sql)?
        .execute(params![number, term, at, job, change])?;
    Ok(Ok(()))
}

fn last(transaction: &Transaction<'_>) -> Result<EventNumber, rusqlite::Error> {
    let sql = "SELECT COALESCE(MAX(number), 0) FROM record";
    let last: i64 = transaction.query_row(sql, [], |row| row.get(0))?;
    Ok(EventNumber(last as u64))
}

impl Journal for Sqlite {
    fn led(&mut self) -> Result<Option<Seen>, JournalError> {
        let seen = found(&self.connection).map_err(failed(&self.path))?;
        Ok(Some(seen).filter(|seen| seen.expires > Micros(0)))
    }

    fn take_over(
        &mut self,
        owner: &str,
        lasts: Micros,
        seen: &Seen,
    ) -> Result<Lease, JournalError> {
        self.write(|transaction| {
            let condition = "term = ?3 AND expires = ?4";
            take(transaction, (owner, lasts), condition, Some(seen))
        })
    }

    fn take_lease(&mut self, owner: &str, lasts: Micros) -> Result<Lease, JournalError> {
        self.write(|transaction| {
            let condition = format!("expires <= {CLOCK}");
            take(transaction, (owner, lasts), &condition, None)
        })
    }

    fn renew(&mut self, lease: &Lease, lasts: Micros) -> Result<(), JournalError> {
        self.write(|transaction| {
            if let Err(deposed) = fence(transaction, lease)? {
                return Ok(Err(deposed));
            }
            let sql = format!("UPDATE lease SET expires = {CLOCK} + ?1");
            transaction.execute(&sql, params![lasts.0 as i64])?;
            Ok(Ok(()))
        })
    }

    fn give_back(&mut self, lease: &Lease) -> Result<(), JournalError> {
        self.write(|transaction| {
            if let Err(deposed) = fence(transaction, lease)? {
                return Ok(Err(deposed));
            }
            transaction.execute("UPDATE lease SET expires = 0", [])?;
            Ok(Ok(()))
        })
    }

    fn append(&mut self, lease: &Lease, records: &[Record]) -> Result<(), JournalError> {
        self.write(|transaction| {
            if let Err(deposed) = fence(transaction, lease)? {
                return Ok(Err(deposed));
            }
            let mut last = last(transaction)?;
            for record in records {
                // ST-3
                if record.number != last.next() {
                    let found = record.number;
                    return Ok(Err(Gap { last, found }.into()));
                }
                if let Err(unwritable) = insert(transaction, lease, record)? {
                    return Ok(Err(unwritable));
                }
                last = record.number;
            }
            Ok(Ok(()))
        })
    }

    fn snapshot(&mut self, lease: &Lease, book: &Book, kept: u64) -> Result<(), JournalError> {
        let number = book.last;
        let text = serde_json::to_string(book)
            .map_err(|source| JournalError::Unreadable { number, source })?;
        self.write(|transaction| {
            if let Err(deposed) = fence(transaction, lease)? {
                return Ok(Err(deposed));
            }
            let sql = "INSERT OR REPLACE INTO snapshot VALUES (1, ?1, ?2)";
            transaction.execute(sql, params![number.0 as i64, text])?;
            // ST-5
            let oldest = number.0.saturating_sub(kept.max(1));
            let sql = "DELETE FROM record WHERE number <= ?1 AND number < ?2 + (SELECT MIN(number) FROM record)";
            transaction.execute(sql, params![oldest as i64, TRIMMED])?;
            Ok(Ok(()))
        })
    }

    fn load(&mut self) -> Result<Loaded, JournalError> {
        let path = self.path.clone();
        let failed = failed(&path);
        let sql = "SELECT number, book FROM snapshot";
        let text: Option<(i64, String)> = self
            .connection
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(&failed)?;
        let read = |(number, text): (i64, String)| {
            let number = EventNumber(number as u64);
            serde_json::from_str::<Book>(&text)
                .map_err(|source| JournalError::Unreadable { number, source })
        };
        let snapshot = text.map(read).transpose()?;
        let after = snapshot.as_ref().map_or(EventNumber(0), |book| book.last);
        let records = self.records(after, u32::MAX)?;
        Ok(Loaded { snapshot, records })
    }

    fn records(&mut self, after: EventNumber, most: u32) -> Result<Vec<Record>, JournalError> {
        let failed = failed(&self.path);
        let sql =
            "SELECT number, at, change FROM record WHERE number > ?1 ORDER BY number LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql).map_err(&failed)?;
        let rows = statement
            .query_map(params![after.0 as i64, i64::from(most)], |row| {
                let line: (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(line)
            })
            .map_err(&failed)?;
        let read = |row: Result<(i64, i64, String), rusqlite::Error>| {
            let (number, at, change) = row.map_err(&failed)?;
            let number = EventNumber(number as u64);
            let change = serde_json::from_str(&change)
                .map_err(|source| JournalError::Unreadable { number, source })?;
            Ok(Record {
                number,
                at: Micros(at as u64),
                change,
            })
        };
        rows.map(read).collect()
    }
}
