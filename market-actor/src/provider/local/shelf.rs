//! Files of what was started: a request before its process, the process's number after.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use shared::ids::NodeName;
use shared::process::Process;

use super::REQUEST;
use crate::provider::Want;

/// Stands for a machine's name.
const NAME: &str = "{name}";
/// Extension of the mark of a machine that is gone and whose log is still there.
const GONE: &str = "gone";

/// What is kept of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) want: Want,
    pub(super) process: Option<Process>,
    /// Whether the process was looked for and found: its number does not stand in the file.
    #[serde(skip)]
    pub(super) found: bool,
}

/// Where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shelf {
    /// Of what was started.
    pub(super) machines: PathBuf,
    /// Of process ids that others read.
    pub(super) processes: PathBuf,
    /// Of logs.
    pub(super) logs: PathBuf,
    /// What was made for a machine, `{name}` in its path.
    pub(super) made: Option<PathBuf>,
    /// Machines that are gone and whose logs are kept.
    pub(super) kept_logs: usize,
}

impl Shelf {
    /// Where a request is kept.
    pub(super) fn file(&self, token: &NodeName) -> PathBuf {
        self.machines.join(format!("{token}.json"))
    }

    fn id_file(&self, token: &NodeName) -> PathBuf {
        self.processes.join(format!("{token}.json"))
    }

    pub(super) fn keep(&self, kept: &Kept) -> io::Result<()> {
        let token = &kept.want.token;
        write(&self.file(token), &serde_json::to_vec(kept)?)?;
        if let Some(process) = kept.process {
            write(&self.id_file(token), &serde_json::to_vec(&process)?)?;
        }
        Ok(())
    }

    /// Where a machine's log is.
    pub(super) fn log(&self, token: &NodeName) -> PathBuf {
        self.logs.join(format!("{token}.log"))
    }

    fn gone(&self, token: &str) -> PathBuf {
        self.machines.join(format!("{token}.{GONE}"))
    }

    /// What was made for a machine. One pattern of several machines is no file of one.
    fn made(&self, token: &NodeName) -> Option<PathBuf> {
        let pattern = self.made.as_ref()?;
        let path = pattern.to_str()?;
        let own = path.contains(NAME);
        own.then(|| path.replace(NAME, token.as_str()).into())
    }

    /// A machine is gone: nothing stays of it but its log, and that while it is among the newest.
    pub(super) fn forget(&self, token: &NodeName) {
        if self.log(token).exists() {
            // Without the mark its log is kept for ever, which harms nobody.
            let _ = fs::write(self.gone(token.as_str()), []);
        }
        let files = [self.file(token), self.id_file(token)].into_iter();
        for path in files.chain(self.made(token)) {
            // It may be gone already.
            let _ = fs::remove_file(path);
        }
        self.drop_logs();
    }

    /// Removes the logs of machines that went before the newest of those that are gone.
    fn drop_logs(&self) {
        let Ok(entries) = fs::read_dir(&self.machines) else {
            return;
        };
        let mut gone: Vec<(SystemTime, String)> = entries
            .flatten()
            .filter_map(|entry| {
                let path = entry.path();
                let marks = path.extension().is_some_and(|extension| extension == GONE);
                let token = path.file_stem()?.to_str()?.to_owned();
                marks.then(|| Some((entry.metadata().ok()?.modified().ok()?, token)))?
            })
            .collect();
        gone.sort();
        let more = gone.len().saturating_sub(self.kept_logs);
        for (_, token) in gone.into_iter().take(more) {
            let _ = fs::remove_file(self.logs.join(format!("{token}.log")));
            let _ = fs::remove_file(self.gone(&token));
        }
    }

    /// All that is kept, each with its process where one is known or found; nothing is written.
    pub(super) fn all(&self) -> io::Result<Vec<Kept>> {
        let mut all = Vec::new();
        let entries = match fs::read_dir(&self.machines) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let Ok(mut kept) = serde_json::from_slice::<Kept>(&fs::read(&path)?) else {
                continue;
            };
            if kept.process.is_none() {
                kept.process = started_for(&self.file(&kept.want.token));
                kept.found = kept.process.is_some();
            }
            all.push(kept);
        }
        all.sort_by(|a, b| a.want.token.cmp(&b.want.token));
        Ok(all)
    }
}

/// Written beside and renamed: a reader sees all of it or nothing.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("part");
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)
}

/// The process that was started for the request in a file, whose number was not kept.
fn started_for(file: &Path) -> Option<Process> {
    let mut wanted = format!("{REQUEST}=").into_bytes();
    wanted.extend_from_slice(file.as_os_str().as_bytes());
    let entries = fs::read_dir("/proc").ok()?;
    let mut ids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = ids.find(|id| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted)
    });
    found.map(Process::of)
}
