//! Stopped and killed runs go on to the same bits as if nothing had happened.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::sandbox::{Sandbox, one_job};

fn prepared() -> Sandbox {
    let rest = "adapter = { method = 'lora', rank = 2, dropout = 0.1 }\n\
                train = { steps = 400, batch_size = 1 }\n\
                schedule = { kind = 'cosine', warmup_steps = 5 }\n\
                optimizer = { learning_rate = 1e-3 }\n\
                checkpoint = { every_steps = 7, keep_last = 2 }";
    Sandbox::with_jobs(&one_job(rest))
}

/// Starts training, does something to the process once so many steps were reported, and waits for the end: its code, and what
/// was said on standard error.
fn disturbed(sandbox: &Sandbox, after: usize, disturb: impl FnOnce(&str)) -> (Option<i32>, String) {
    let mut command = sandbox.command(&["train", "jobs.toml", "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut steps = 0;
    while steps < after {
        let line = lines
            .next()
            .expect("the run ended before it was disturbed")
            .unwrap();
        steps += usize::from(line.contains("\"event\":\"step\""));
    }
    disturb(&child.id().to_string());
    // The pipe is read to its end, so that the child never waits for us.
    lines.for_each(drop);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.code(), said)
}

fn signalled(sandbox: &Sandbox, signal: &str, after: usize) -> Option<i32> {
    let send = |id: &str| {
        let sent = Command::new("kill").args([signal, id]).status().unwrap();
        assert!(sent.success());
    };
    disturbed(sandbox, after, send).0
}

fn result(sandbox: &Sandbox) -> (Vec<u8>, String) {
    let weights = fs::read(sandbox.path("adapters/one/adapter/adapter_model.safetensors")).unwrap();
    (weights, sandbox.read("adapters/one/metrics.jsonl"))
}

#[test]
fn a_stopped_and_a_killed_run_end_in_the_same_bits() {
    let whole = prepared();
    whole.run(&["train", "jobs.toml"]).ended_with(0);
    let cut = prepared();
    assert_eq!(signalled(&cut, "-INT", 10), Some(130));
    assert!(!cut.names("adapters/one/checkpoints").is_empty());
    assert_eq!(signalled(&cut, "-KILL", 30), None);
    let told = cut.run(&["train", "jobs.toml", "--json"]).ended_with(0);
    assert!(told.lines()[0]["jobs"][0]["step"].as_u64().unwrap() >= 10);
    assert_eq!(result(&cut), result(&whole));
}

#[test]
fn a_model_that_is_written_in_place_ends_the_run_before_anything_is_kept() {
    let whole = prepared();
    whole.run(&["train", "jobs.toml"]).ended_with(0);
    let touched = prepared();
    let weights = touched.path("tiny/model.safetensors");
    let opened = fs::metadata(&weights).unwrap().modified().unwrap();
    let write = |_: &str| {
        let file = File::options().write(true).open(&weights).unwrap();
        file.set_modified(opened + Duration::from_secs(9)).unwrap();
    };
    let (code, said) = disturbed(&touched, 10, write);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("model.safetensors: the model's file was written to"),
        "{said}"
    );
    // As it was: what is there goes on to the same bits.
    touched.run(&["train", "jobs.toml"]).ended_with(0);
    assert_eq!(result(&touched), result(&whole));
}
