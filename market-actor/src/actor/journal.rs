//! The record of machines: synced before each call, held by one process at a time, and no longer than what is open takes.
//!
//! When more than `MOST_LINES` lines beyond what is open have gathered, it is written anew without what is closed: beside, synced, and
//! put in its place. The lock is on a file of its own, which stays.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use shared::ids::NodeName;

use super::error::RunError;
use crate::custody::record::{self, Entry};

/// Lines of closed requests before the record is written anew.
const MOST_LINES: usize = 4096;

/// The record.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Held until this ends.
    _lock: File,
    /// Entries of open requests.
    open: BTreeMap<NodeName, Vec<Entry>>,
    /// Lines in the file.
    lines: usize,
}

impl Journal {
    /// Opens it and reads what stands in it; a last line that was cut is removed.
    ///
    /// # Errors
    /// [`RunError`] when another process holds it, or it cannot be read.
    pub fn open(path: &Path) -> Result<(Self, Vec<Entry>), RunError> {
        let lock = locked(path)?;
        let entries = look(path)?;
        let broken = |source| RunError::File {
            path: path.to_owned(),
            source,
        };
        let mut open = BTreeMap::new();
        for entry in &entries {
            fold(&mut open, entry);
        }
        let file = written(path, &open).map_err(broken)?;
        let lines = open.values().map(Vec::len).sum();
        let journal = Self {
            file,
            path: path.to_owned(),
            _lock: lock,
            open,
            lines,
        };
        Ok((journal, entries))
    }

    /// Keeps an entry: when this returns it survives a crash.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn append(&mut self, entry: &Entry) -> Result<(), RunError> {
        let broken = |source| RunError::File {
            path: self.path.clone(),
            source,
        };
        let line = record::line(entry);
        let kept = self.file.write_all(line.as_bytes());
        kept.and_then(|()| self.file.sync_data()).map_err(broken)?;
        fold(&mut self.open, entry);
        self.lines += 1;
        let needed: usize = self.open.values().map(Vec::len).sum();
        if self.lines > needed + MOST_LINES {
            self.file = written(&self.path, &self.open).map_err(broken)?;
            self.lines = needed;
        }
        Ok(())
    }
}

/// What is open after one more entry.
fn fold(open: &mut BTreeMap<NodeName, Vec<Entry>>, entry: &Entry) {
    match entry {
        Entry::Asked { want, .. } => {
            open.insert(want.token.clone(), vec![entry.clone()]);
        }
        Entry::Granted { token, .. } | Entry::Releasing { token, .. } => {
            if let Some(own) = open.get_mut(token) {
                own.push(entry.clone());
            }
        }
        Entry::Closed { token, .. } => {
            open.remove(token);
        }
    }
}

/// Writes a record of what is open in the place of the one before, and opens it for more.
fn written(path: &Path, open: &BTreeMap<NodeName, Vec<Entry>>) -> io::Result<File> {
    let mut text = record::head();
    for entry in open.values().flatten() {
        text.push_str(&record::line(entry));
    }
    super::files::replace(path, text.as_bytes())?;
    OpenOptions::new().append(true).open(path)
}

/// Takes the lock beside a record, or says who has it.
fn locked(path: &Path) -> Result<File, RunError> {
    let beside = path.with_extension("lock");
    let broken = |source| RunError::File {
        path: beside.clone(),
        source,
    };
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&beside)
        .map_err(broken)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RunError::Held {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(broken(error)),
    }
}

/// What a record says without holding it: for who only looks.
///
/// # Errors
/// When it cannot be read; one that is absent is empty.
pub fn look(path: &Path) -> Result<Vec<Entry>, RunError> {
    let text = match fs::read_to_string(path) {
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

/// Whether a process holds a record, without holding or making it: for who only looks.
///
/// # Errors
/// When its lock is there and cannot be looked at.
pub fn is_held(path: &Path) -> Result<bool, RunError> {
    let beside = path.with_extension("lock");
    let broken = |source| RunError::File {
        path: beside.clone(),
        source,
    };
    let file = match OpenOptions::new().append(true).open(&beside) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(broken(source)),
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(broken(error)),
    }
}

#[cfg(test)]
mod tests {
    use shared::units::Micros;

    use super::*;
    use crate::custody::tests::want;

    fn asked(token: &str) -> Entry {
        Entry::Asked {
            at: Micros(1),
            want: want(token),
        }
    }

    fn closed(token: &str) -> Entry {
        Entry::Closed {
            at: Micros(2),
            token: NodeName::new(token).unwrap(),
            cause: "test".into(),
        }
    }

    #[test]
    fn who_only_looks_sees_whether_a_record_is_held() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("machines.jsonl");
        assert!(!is_held(&path).expect("it is absent"));
        assert!(!path.with_extension("lock").exists(), "nothing is made");
        let held = Journal::open(&path).expect("nobody holds it");
        assert!(is_held(&path).expect("it can be looked at"));
        drop(held);
        assert!(!is_held(&path).expect("it can be looked at"));
    }

    #[test]
    fn what_was_appended_is_there_after_a_crash_and_one_process_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machines.jsonl");
        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries, []);
        journal.append(&asked("a")).unwrap();
        journal.append(&asked("b")).unwrap();
        assert!(matches!(Journal::open(&path), Err(RunError::Held { .. })));
        drop(journal);
        // The crash cuts a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"asked\":{\"at\"").unwrap();
        drop(file);
        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries, [asked("a"), asked("b")]);
        journal.append(&closed("a")).unwrap();
        assert_eq!(look(&path).unwrap(), [asked("a"), asked("b"), closed("a")]);
        assert_eq!(look(&folder.path().join("none")).unwrap(), []);
    }

    #[test]
    fn a_record_is_no_longer_than_what_is_open_takes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machines.jsonl");
        let mut text = record::head();
        text.push_str(&record::line(&asked("first")));
        for at in 0..2 * MOST_LINES {
            let token = format!("m-{at}");
            text.push_str(&record::line(&asked(&token)));
            text.push_str(&record::line(&closed(&token)));
        }
        fs::write(&path, text).unwrap();
        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries.len(), 4 * MOST_LINES + 1, "all was read once");
        assert_eq!(look(&path).unwrap(), [asked("first")]);
        // At work too, as soon as enough has gathered.
        journal.lines = MOST_LINES;
        journal.append(&asked("last")).unwrap();
        journal.append(&closed("last")).unwrap();
        assert_eq!(look(&path).unwrap(), [asked("first")]);
        journal.append(&asked("next")).unwrap();
        assert_eq!(look(&path).unwrap(), [asked("first"), asked("next")]);
    }
}
