//! Stopped and killed runs go on to the same bits as if nothing had happened.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::sandbox::{Sandbox, one_job};

fn prepared() -> Sandbox {
    let rest = "adapter = { method = 'lora', rank = 2, dropout = 0.1 }\n\
                train = { steps = 400, batch_size = 1 }\n\
                schedule = { kind = 'cosine', warmup_steps = 5 }\n\
                optimizer = { learning_rate = 1e-3 }\n\
                checkpoint = { every_steps = 7, keep_last = 2 }";
    Sandbox::with_jobs(&one_job(rest))
}

/// Starts training, sends a signal once so many steps were reported, and waits for the end.
fn signalled(sandbox: &Sandbox, signal: &str, after: usize) -> Option<i32> {
    let mut command = sandbox.command(&["train", "jobs.toml", "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut steps = 0;
    while steps < after {
        let line = lines
            .next()
            .expect("the run ended before the signal")
            .unwrap();
        steps += usize::from(line.contains("\"event\":\"step\""));
    }
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &id])
            .status()
            .unwrap()
            .success()
    );
    // The pipe is read to its end, so that the child never waits for us.
    lines.for_each(drop);
    child.wait().unwrap().code()
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
