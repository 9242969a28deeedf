//! Files of a market actor: the record of machines, synced before each call, and what was decided, for who asks why.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::RunError;
use crate::broker::told::Decided;
use crate::custody::record::{self, Entry};

/// The record, held by one process at a time.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens it and reads what stands in it; a last line that was cut is removed.
    ///
    /// # Errors
    /// [`RunError`] when another process holds it, or it cannot be read.
    pub fn open(path: &Path) -> Result<(Self, Vec<Entry>), RunError> {
        let broken = |source| RunError::File {
            path: path.to_owned(),
            source,
        };
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(path)
            .map_err(broken)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunError::Held {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(broken(error)),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(broken)?;
        let entries = record::read(&text).map_err(|source| RunError::Record {
            path: path.to_owned(),
            source,
        })?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(broken)?;
        file.seek(SeekFrom::End(0)).map_err(broken)?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
        };
        if whole == 0 {
            journal.write(&record::head())?;
        }
        Ok((journal, entries))
    }

    /// Keeps an entry: when this returns it survives a crash.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn append(&mut self, entry: &Entry) -> Result<(), RunError> {
        self.write(&record::line(entry))
    }

    fn write(&mut self, text: &str) -> Result<(), RunError> {
        let written = self.file.write_all(text.as_bytes());
        written
            .and_then(|()| self.file.sync_data())
            .map_err(|source| RunError::File {
                path: self.path.clone(),
                source,
            })
    }
}

/// What a record says without holding it: for who only looks.
///
/// # Errors
/// When it cannot be read; one that is absent is empty.
pub fn look(path: &Path) -> Result<Vec<Entry>, RunError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(RunError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    record::read(&text).map_err(|source| RunError::Record {
        path: path.to_owned(),
        source,
    })
}

/// Appends a decision as a line of JSON. It is not synced: it explains, nothing rests on it.
///
/// # Errors
/// When the system refuses.
pub fn note(path: &Path, decided: &Decided) -> io::Result<()> {
    let mut line = serde_json::to_string(decided)?;
    line.push('\n');
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use shared::ids::NodeName;
    use shared::units::Micros;

    use super::*;

    #[test]
    fn what_was_appended_is_there_after_a_crash_and_one_process_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machines.jsonl");
        let closed = |at| Entry::Closed {
            at: Micros(at),
            token: NodeName::new("a").unwrap(),
            cause: "test".into(),
        };
        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries, []);
        journal.append(&closed(1)).unwrap();
        assert!(matches!(Journal::open(&path), Err(RunError::Held { .. })));
        drop(journal);
        // The crash cuts a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"asked\":{\"at\"").unwrap();
        drop(file);
        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries, [closed(1)]);
        journal.append(&closed(2)).unwrap();
        assert_eq!(look(&path).unwrap(), [closed(1), closed(2)]);
        assert_eq!(look(&folder.path().join("none")).unwrap(), []);
    }
}
