//! A folder of its own for each test, with a cache of its own, and the binary run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// A folder that is gone after the test.
pub(crate) struct Sandbox {
    folder: TempDir,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Fails the test unless the run ended with this code.
    #[track_caller]
    pub(crate) fn ended_with(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "standard output:\n{}\nstandard error:\n{}",
            self.out, self.err
        );
        self
    }

    /// Fails the test unless every part was said on standard error.
    #[track_caller]
    pub(crate) fn said(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in:\n{}", self.err);
        }
        self
    }

    /// The lines of standard output as JSON.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.out.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
            .collect()
    }

    /// The last of them.
    #[track_caller]
    pub(crate) fn last(&self) -> Value {
        self.lines().pop().unwrap()
    }
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// With the smallest model, [`PAIRS`] as `pairs.jsonl`, and this `jobs.toml`.
    pub(crate) fn with_jobs(jobs: &str) -> Self {
        let sandbox = Self::new();
        sandbox.tiny_model();
        sandbox.write("pairs.jsonl", PAIRS);
        sandbox.write("jobs.toml", jobs);
        sandbox
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The binary, about to run here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spotmux"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("SPOTMUX_CACHE", self.path("cache"))
            .env("HF_HOME", self.path("hub"))
            // No test reaches out by accident.
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .env("SPOTMUX_PYTHON", self.path("no-python"))
            .env_remove("SPOTMUX_LOG")
            .env_remove("SPOTMUX_CONFIG")
            .env_remove("HF_TOKEN");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(arguments).output().unwrap())
    }

    /// Writes the smallest model as `tiny`.
    pub(crate) fn tiny_model(&self) -> PathBuf {
        self.run(&["model", "tiny", "tiny", "--layers", "2", "--hidden", "64"])
            .ended_with(0);
        self.path("tiny")
    }

    /// Names in a folder, sorted.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        names(&self.path(folder))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Waits for the end of a process, but not for ever: none when it has not come; else its code.
pub(crate) fn wait_a_while(child: &mut Child) -> Option<Option<i32>> {
    let code = (0..100).find_map(|_| {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.code());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a process outside gives no event to wait for with a limit"
        )]
        std::thread::sleep(Duration::from_millis(100));
        None
    });
    if code.is_none() {
        child.kill().unwrap();
    }
    code
}

/// Samples that a byte model learns in a few steps.
pub(crate) const PAIRS: &str =
    "{\"prompt\": \"a\", \"completion\": \"xyz\"}\n{\"prompt\": \"b\", \"completion\": \"zyx\"}\n";

/// A file of jobs for the model `tiny`; `rest` is put into the one job.
pub(crate) fn one_job(rest: &str) -> String {
    format!("model = 'tiny'\n[[job]]\nname = 'one'\ndata = {{ train = 'pairs.jsonl' }}\n{rest}\n")
}
