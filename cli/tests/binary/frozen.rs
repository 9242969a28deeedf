//! Training holds nothing as large as the backbone: no gradient, no moment, no copy; and leaves its file as it was.
//!
//! Public bug: TUDB-Labs/mLoRA #90 (the base weights kept gradients, and training ran out of memory).

use std::fs;
use std::process::Command;

use crate::sandbox::{PAIRS, Ran, Sandbox, one_job};

#[test]
fn a_run_whose_own_memory_may_be_a_quarter_of_the_backbone_trains_it() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["model", "tiny", "tiny", "--layers", "12", "--hidden", "512"])
        .ended_with(0);
    let weights = sandbox.path("tiny/model.safetensors");
    let before = fs::read(&weights).unwrap();
    // What the system counts against this limit is memory of the process itself: a mapped file is not.
    let limit = before.len() / 4;
    sandbox.write("pairs.jsonl", PAIRS);
    let rest = "adapter = { method = 'lora', rank = 2 }\ntrain = { steps = 2 }";
    sandbox.write(
        "jobs.toml",
        format!(
            "engine = {{ threads = 1, tokens_per_pass = 64 }}\n{}",
            one_job(rest)
        ),
    );
    let script = format!(
        "ulimit -d {}; exec {} train jobs.toml",
        limit / 1024,
        env!("CARGO_BIN_EXE_spotmux")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(sandbox.path(""));
    Ran::of(&shell.output().unwrap()).ended_with(0);
    assert!(
        fs::read(&weights).unwrap() == before,
        "the backbone changed"
    );
}
