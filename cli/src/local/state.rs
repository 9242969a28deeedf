//! Who runs, in files of the cluster's state folder: a lock of the one who watches, a process id of each, logs.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context;
use shared::config::load::Loaded;
use shared::config::places;
use shared::process::Process;

use crate::exit::{Exit, Failure, OrExit};
use crate::security;

/// Name of the one who watches.
const WATCHER: &str = "up";
/// Bytes at the end of a log that are looked at for last words.
const TAIL: u64 = 8 << 10;
/// Lines of last words.
const WORDS: usize = 8;

/// The folder.
#[derive(Clone, Debug)]
pub(crate) struct State {
    folder: PathBuf,
}

/// Held by the one who watches, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    _lock: File,
    state: State,
    /// Whether its end was not asked for.
    alone: bool,
}

impl Watcher {
    /// Ends without having been asked to: its mark stays, so that whoever finds no cluster is told.
    pub(crate) fn ends_alone(mut self) {
        self.alone = true;
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !self.alone {
            self.state.forget(WATCHER);
        }
    }
}

impl State {
    /// That of a cluster.
    pub(crate) fn of(loaded: &Loaded) -> Self {
        Self {
            folder: loaded.path_of(&loaded.config.cluster.state),
        }
    }

    /// The log of a process.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(places::LOGS).join(format!("{name}.log"))
    }

    fn id_file(&self, name: &str) -> PathBuf {
        self.folder
            .join(places::PROCESSES)
            .join(format!("{name}.json"))
    }

    fn lock_file(&self) -> PathBuf {
        self.folder.join("up.lock")
    }

    /// Becomes the one who watches.
    ///
    /// # Errors
    /// [`Exit::Conflict`] when there is one, or processes of one that is gone.
    pub(crate) fn watch(&self) -> Result<Watcher, Failure> {
        for folder in [places::LOGS, places::PROCESSES] {
            security::private_folder(&self.folder.join(folder))?;
        }
        let path = self.lock_file();
        let cannot = || format!("cannot write {}", path.display());
        let lock = File::create(&path)
            .with_context(cannot)
            .or_exit(Exit::Internal)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(self.is_up()),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(cannot).or_exit(Exit::Internal);
            }
        }
        let left = self.living();
        if !left.is_empty() {
            let names: Vec<String> = left
                .iter()
                .map(|(name, process)| format!("{name} (process {})", process.id))
                .collect();
            let message = format!(
                "processes of an earlier start still run: {}",
                names.join(", ")
            );
            return Err(Failure::new(Exit::Conflict, message).hint("end them: spotmux down"));
        }
        self.note(WATCHER, Process::of(std::process::id()))?;
        Ok(Watcher {
            _lock: lock,
            state: self.clone(),
            alone: false,
        })
    }

    fn is_up(&self) -> Failure {
        let process = self.process(WATCHER);
        let process = process.map_or(String::new(), |process| {
            format!(" (process {})", process.id)
        });
        let message = format!(
            "the cluster of {} is up already{process}",
            self.folder.display()
        );
        Failure::new(Exit::Conflict, message)
            .hint("look at it: spotmux status")
            .hint("end it: spotmux down")
    }

    /// Waits until nobody watches.
    ///
    /// # Errors
    /// When the lock cannot be opened.
    pub(crate) fn until_unwatched(&self) -> std::io::Result<()> {
        match File::open(self.lock_file()) {
            Ok(file) => file.lock(),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The one who watches, if it lives.
    pub(crate) fn watcher(&self) -> Option<Process> {
        self.process(WATCHER).filter(|process| process.lives())
    }

    /// A sentence on a cluster that was up and has ended without being asked to; none when it is up, or was ended. Nothing
    /// is written for it, so it is told of a full disk too: the mark of the one who watches is what it did not remove.
    pub(crate) fn ended_alone(&self) -> Option<String> {
        let mark = self.id_file(WATCHER);
        if self.process(WATCHER)?.lives() {
            return None;
        }
        let said = "the last `spotmux up` ended without being asked to";
        let log = self.log(WATCHER);
        let written = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
        // A log of before, when it watched in a terminal last.
        if written(&log) < written(&mark) {
            return Some(format!("{said}; logs: {}", self.log("*").display()));
        }
        let words = self.last_words(WATCHER, 0);
        let why = words.lines().rfind(|line| line.starts_with("error: "));
        let why = why.map_or_else(String::new, |line| format!(" ({line})"));
        Some(format!("{said}{why}; its log: {}", log.display()))
    }

    /// Removes the mark of one who watches no more.
    pub(crate) fn forget_watcher(&self) {
        if self.watcher().is_none() {
            self.forget(WATCHER);
        }
    }

    /// Processes of the cluster that live, the one who watches left out; the coordinator last.
    pub(crate) fn living(&self) -> Vec<(String, Process)> {
        let entries = fs::read_dir(self.folder.join(places::PROCESSES));
        let mut found: Vec<(String, Process)> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                let name = name.strip_suffix(".json")?.to_owned();
                let process = self.process(&name).filter(|process| process.lives())?;
                (name != WATCHER).then_some((name, process))
            })
            .collect();
        found.sort_by_key(|(name, _)| (name == "coordinator", name.clone()));
        found
    }

    fn process(&self, name: &str) -> Option<Process> {
        serde_json::from_slice(&fs::read(self.id_file(name)).ok()?).ok()
    }

    /// Keeps who runs.
    ///
    /// # Errors
    /// [`Exit::Internal`] when it cannot be written.
    pub(crate) fn note(&self, name: &str, process: Process) -> Result<(), Failure> {
        let path = self.id_file(name);
        let text = serde_json::to_vec(&process)
            .context("a process id cannot be written as JSON")
            .or_exit(Exit::Internal)?;
        fs::write(&path, text)
            .with_context(|| format!("cannot write {}", path.display()))
            .or_exit(Exit::Internal)
    }

    /// It runs no more.
    pub(crate) fn forget(&self, name: &str) {
        // A file that stays names a process that does not live.
        let _ = fs::remove_file(self.id_file(name));
    }

    /// The last lines of a log from an offset on.
    pub(crate) fn last_words(&self, name: &str, from: u64) -> String {
        last_words(&self.log(name), from).unwrap_or_default()
    }
}

fn last_words(log: &Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL))))
        .ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(WORDS)..];
    Some(last.join("\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn one_watches_at_a_time_and_leftovers_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let state = State {
            folder: folder.path().join("state"),
        };
        let watcher = state.watch().unwrap();
        let again = state.watch().unwrap_err();
        assert_eq!(again.exit, Exit::Conflict);
        let own = std::process::id();
        assert!(
            again
                .message()
                .contains(&format!("is up already (process {own})"))
        );
        drop(watcher);
        assert!(state.watcher().is_none());
        state.until_unwatched().unwrap();
        state.note("n1", Process::of(own)).unwrap();
        let left = state.watch().unwrap_err();
        assert!(
            left.message().contains(&format!("n1 (process {own})")),
            "{}",
            left.message()
        );
        state.forget("n1");
        drop(state.watch().unwrap());
    }

    #[test]
    fn an_end_that_nobody_asked_for_is_told_until_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let state = State {
            folder: folder.path().join("state"),
        };
        drop(state.watch().unwrap());
        assert_eq!(state.ended_alone(), None, "it was asked to");
        state.watch().unwrap().ends_alone();
        // Who wrote it lives in this test: a process that does not is what is found later.
        assert_eq!(state.ended_alone(), None, "it lives");
        let mark = state.id_file(WATCHER);
        let gone = serde_json::to_vec(&Process {
            start: Some(0),
            ..Process::of(std::process::id())
        });
        fs::write(&mark, gone.unwrap()).unwrap();
        let told = state.ended_alone().unwrap();
        assert!(told.contains("without being asked to; logs: "), "{told}");
        fs::write(
            state.log(WATCHER),
            "ready\nerror: coordinator ended too often\n  hint: a\n",
        )
        .unwrap();
        let told = state.ended_alone().unwrap();
        assert!(
            told.contains("(error: coordinator ended too often); its log: "),
            "{told}"
        );
        state.forget_watcher();
        assert_eq!(state.ended_alone(), None);
    }

    #[test]
    fn last_words_are_those_of_this_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let lines: String = (0..20).map(|line| format!("line {line}\n\n")).collect();
        fs::write(&path, format!("old\n{lines}")).unwrap();
        let words = last_words(&path, 4).unwrap();
        assert_eq!(words.lines().count(), WORDS);
        assert!(words.ends_with("line 19"));
        assert_eq!(last_words(&path, 1 << 20).unwrap(), "");
    }
}
