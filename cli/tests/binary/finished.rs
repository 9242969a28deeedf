//! What is finished is proven, not believed; and one run at a time has a job's folder.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::sandbox::{Sandbox, one_job};

const WEIGHTS: &str = "adapters/one/adapter/adapter_model.safetensors";

fn prepared(steps: u32) -> Sandbox {
    let job = format!(
        "adapter = {{ method = 'lora', rank = 2 }}\ntrain = {{ steps = {steps}, batch_size = 1 }}"
    );
    Sandbox::with_jobs(&one_job(&job))
}

fn trained() -> (Sandbox, Vec<u8>) {
    let sandbox = prepared(4);
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    let weights = fs::read(sandbox.path(WEIGHTS)).unwrap();
    (sandbox, weights)
}

fn break_one(sandbox: &Sandbox, how: usize) {
    let path = sandbox.path(WEIGHTS);
    let mut bytes = fs::read(&path).unwrap();
    match how {
        0 => return fs::remove_file(path).unwrap(),
        1 => {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
        }
        _ => bytes.truncate(100),
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_adapter_is_written_anew_from_its_checkpoint() {
    let (sandbox, weights) = trained();
    for how in 0..3 {
        break_one(&sandbox, how);
        let plan = ["train", "jobs.toml", "--check", "--json"];
        let told = sandbox.run(&plan).ended_with(0).last();
        assert_eq!(told["jobs"][0]["done"], false, "{told}");
        sandbox.run(&["train", "jobs.toml"]).ended_with(0).said(&[
            "job one",
            "is damaged",
            "adapter_model.safetensors",
        ]);
        assert!(fs::read(sandbox.path(WEIGHTS)).unwrap() == weights);
        let told = sandbox.run(&plan).ended_with(0).last();
        assert_eq!(told["jobs"][0]["done"], true, "{told}");
    }
    // What was there is kept: it may hold somebody's changes.
    let damaged = ["adapter.damaged", "adapter.damaged-2", "adapter.damaged-3"];
    let names = sandbox.names("adapters/one");
    assert!(
        damaged
            .iter()
            .all(|name| names.contains(&(*name).to_owned())),
        "{names:?}"
    );
}

#[test]
fn a_damaged_adapter_without_a_checkpoint_is_refused_with_what_to_do() {
    let (sandbox, _) = trained();
    fs::remove_dir_all(sandbox.path("adapters/one/checkpoints")).unwrap();
    break_one(&sandbox, 1);
    sandbox.run(&["train", "jobs.toml"]).ended_with(3).said(&[
        "job one",
        "is damaged",
        "no checkpoint is left",
        "remove it to train again",
    ]);
}

#[test]
fn a_sound_adapter_is_done_without_its_checkpoints() {
    let (sandbox, weights) = trained();
    fs::remove_dir_all(sandbox.path("adapters/one/checkpoints")).unwrap();
    sandbox
        .run(&["train", "jobs.toml"])
        .ended_with(0)
        .said(&["nothing was left to do: the job is finished; another --output trains it anew"]);
    let told = sandbox.run(&["train", "jobs.toml", "--json"]).ended_with(0);
    assert_eq!(told.lines()[0]["jobs"][0]["done"], true);
    assert_eq!(told.last()["jobs"][0]["state"], "finished");
    assert_eq!(told.last()["jobs"][0]["step"], 4);
    assert!(fs::read(sandbox.path(WEIGHTS)).unwrap() == weights);
    // Of another job it is still not.
    let other = sandbox.read("jobs.toml").replace("rank = 2", "rank = 4");
    sandbox.write("jobs.toml", other);
    sandbox
        .run(&["train", "jobs.toml"])
        .ended_with(3)
        .said(&["not from this job"]);
}

/// A run that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts training and waits for its first step.
fn started(sandbox: &Sandbox) -> (Running, BufReader<ChildStdout>) {
    let mut child = sandbox
        .command(&["train", "jobs.toml", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let child = Running(child);
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["event"] == "step" {
            return (child, lines);
        }
    }
}

#[test]
fn a_second_run_is_told_who_has_the_folder() {
    let sandbox = prepared(1_000_000);
    let (child, _lines) = started(&sandbox);
    let metrics = || {
        sandbox
            .read("adapters/one/metrics.jsonl")
            .lines()
            .next()
            .map(str::to_owned)
    };
    let first = metrics();
    sandbox.run(&["train", "jobs.toml"]).ended_with(3).said(&[
        "job one",
        "adapters/one",
        "in use by another run",
        &child.0.id().to_string(),
    ]);
    assert_eq!(metrics(), first);
    // Looking is no use.
    sandbox
        .run(&["train", "jobs.toml", "--check"])
        .ended_with(0);
    drop(child);
    // Killed, it holds nothing.
    drop(started(&sandbox));
}
