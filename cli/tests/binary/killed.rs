//! Runs that are killed at any moment, again and again, end as if nothing had happened.
//!
//! Public bugs: huggingface/accelerate #2016 and paiml/entrenar #294 (a resume after the first epoch replays the wrong
//! data), PolymathicAI/the_well #77 (the schedule is not saved).

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::sandbox::Sandbox;

/// Rows of the data, and optimizer steps of an epoch over them: 4 full ones and a smaller one.
const ROWS: usize = 26;
const EPOCH: u64 = 5;

/// A job of three epochs whose step is six samples in three micro-batches, each sample a pass of its own.
fn prepared() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    let row = |i: usize| {
        let words = "lorem ipsum dolor sit amet ".repeat(4 + i % 5);
        format!(
            "{{\"prompt\": \"{i} {words}\", \"completion\": \"{}\"}}\n",
            words.to_uppercase()
        )
    };
    sandbox.write("pairs.jsonl", (0..ROWS).map(row).collect::<String>());
    sandbox.write(
        "jobs.toml",
        "model = 'tiny'
         engine = { tokens_per_pass = 1 }
         [[job]]
         name = 'one'
         adapter = { method = 'lora', rank = 4, dropout = 0.1 }
         data = { train = 'pairs.jsonl', eval = 'pairs.jsonl' }
         train = { epochs = 3.0, batch_size = 2, accumulation = 3 }
         schedule = { kind = 'cosine', warmup_steps = 3 }
         optimizer = { learning_rate = 1e-3 }
         eval = { every_steps = 7 }
         checkpoint = { every_steps = 2, keep_last = 2 }",
    );
    sandbox
}

/// Trains until so many steps are taken in all, then a share of the time of a step longer, and kills.
fn killed(sandbox: &Sandbox, after: u64, share: f64) {
    let mut command = sandbox.command(&["train", "jobs.toml", "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Kept until the end: a run that nobody listens to stops by itself.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seconds = None;
    for line in lines.by_ref() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if line["event"] == "step" && line["step"].as_u64() >= Some(after) {
            seconds = line["seconds"].as_f64();
            break;
        }
    }
    let seconds = seconds.expect("the run ended before it was killed");
    #[expect(
        clippy::disallowed_methods,
        reason = "a kill comes from outside, at a time of its own"
    )]
    thread::sleep(Duration::from_secs_f64(share * seconds));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "it ended by itself");
    drop(lines);
}

/// Everything that a run leaves, by name.
fn left(sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let adapter = sandbox.names("adapters/one/adapter").into_iter();
    let files = adapter.map(|name| format!("adapters/one/adapter/{name}"));
    let files = files.chain(["adapters/one/metrics.jsonl".into()]);
    files
        .map(|name| (name.clone(), fs::read(sandbox.path(&name)).unwrap()))
        .collect()
}

fn steps(sandbox: &Sandbox) -> Vec<Value> {
    let metrics = sandbox.read("adapters/one/metrics.jsonl");
    let lines = metrics
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == "step").collect()
}

#[test]
fn a_run_killed_in_the_middle_of_its_second_epoch_ends_as_one_that_was_not() {
    let whole = prepared();
    whole.run(&["train", "jobs.toml"]).ended_with(0);
    assert_eq!(steps(&whole).len() as u64, 3 * EPOCH);
    let cut = prepared();
    // Before any checkpoint, then at places of the second epoch and of its steps that no save is aligned with.
    for (after, share) in [
        (1, 0.4),
        (EPOCH + 1, 0.2),
        (EPOCH + 2, 0.7),
        (EPOCH + 3, 1.4),
        (2 * EPOCH - 1, 0.5),
    ] {
        killed(&cut, after, share);
        assert!(!cut.path("adapters/one/adapter").exists());
    }
    cut.run(&["train", "jobs.toml"]).ended_with(0);
    let (cut_steps, whole_steps) = (steps(&cut), steps(&whole));
    for (cut, whole) in cut_steps.iter().zip(&whole_steps) {
        // The rate is a function of the step alone, the loss of the data of that step.
        assert_eq!(
            cut["learning_rate"], whole["learning_rate"],
            "{}",
            whole["step"]
        );
        assert_eq!(cut["loss"], whole["loss"], "{}", whole["step"]);
    }
    assert_ne!(
        whole_steps[4]["learning_rate"],
        whole_steps[9]["learning_rate"]
    );
    assert!(left(&cut) == left(&whole), "files differ");
    let checkpoints = "adapters/one/checkpoints";
    assert_eq!(
        cut.names(checkpoints),
        whole.names(checkpoints),
        "something was left behind"
    );
}

/// Killed after the last checkpoint: the end of the metrics and the adapter are all that is still to do.
#[test]
fn a_run_killed_at_its_very_end_still_tells_its_end() {
    let sandbox = prepared();
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    let expected = left(&sandbox);
    let metrics = sandbox.read("adapters/one/metrics.jsonl");
    let told = metrics
        .lines()
        .filter(|line| line.contains("\"finished\""))
        .count();
    assert_eq!(told, 1);
    let without: String = metrics
        .lines()
        .filter(|line| !line.contains("\"finished\""))
        .flat_map(|line| [line, "\n"])
        .collect();
    for left_over in [without, metrics] {
        fs::remove_dir_all(sandbox.path("adapters/one/adapter")).unwrap();
        sandbox.write("adapters/one/metrics.jsonl", left_over);
        sandbox.run(&["train", "jobs.toml"]).ended_with(0);
        assert!(left(&sandbox) == expected, "files differ");
    }
}
