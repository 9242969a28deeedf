//! What is wrong is said with its place, its limit and what to do, and nothing is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::sandbox::{PAIRS, Ran, Sandbox, one_job};

const LORA: &str = "adapter = { method = 'lora', rank = 2 }";

/// A conversation of which nothing counts.
const UNTRAINED: &[u8] = br#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]}"#;

/// A sandbox with the tiny model, samples and a file of jobs.
#[track_caller]
fn refused(jobs: &str, parts: &[&str]) {
    let sandbox = Sandbox::with_jobs(jobs);
    sandbox
        .run(&["train", "jobs.toml"])
        .ended_with(3)
        .said(parts);
    assert!(
        sandbox.names("adapters").is_empty(),
        "something was written"
    );
}

#[test]
fn jobs_that_make_no_sense() {
    refused(
        &one_job("adapter = { method = 'lora', rank = 0 }"),
        &["job one", "adapter.rank", "outside 1 to 64"],
    );
    refused(
        &one_job(&format!("{LORA}\noptimizer = {{ learning_rate = nan }}")),
        &[
            "optimizer.learning_rate",
            "NaN is not a finite number above 0",
        ],
    );
    refused(
        &one_job("adapter = { method = 'lora', rank = 2, targets = ['c_attn'] }"),
        &["jobs.toml", "c_attn", "q_proj", "line 5"],
    );
    refused(
        &one_job("adapter = { method = 'lora', rnk = 2 }"),
        &["rnk", "line 5"],
    );
    refused(
        &one_job(&format!("{LORA}\neval = {{ patience = 2 }}")),
        &["eval.patience", "data.eval"],
    );
    refused("model = 'tiny'\njob = []\n", &["lists no job"]);
    let twice = format!(
        "{}[[job]]\nname = 'ONE'\n{LORA}\ndata = {{ train = 'pairs.jsonl' }}\n",
        one_job(LORA)
    );
    refused(&twice, &["\"ONE\" appears twice"]);
    refused(
        &one_job(LORA).replace("'one'", "'../one'"),
        &["../one", "start with a letter or digit"],
    );
}

#[test]
fn everything_wrong_is_said_at_once() {
    let first = one_job("adapter = { method = 'lora', rank = 0 }");
    let second = format!("[[job]]\nname = 'two'\n{LORA}\ndata = {{ train = 'absent.jsonl' }}\n");
    let third = format!("[[job]]\nname = 'three'\n{LORA}\ndata = {{ train = 'bad.jsonl' }}\n");
    let sandbox = Sandbox::with_jobs(&format!("{first}{second}{third}"));
    sandbox.write(
        "bad.jsonl",
        "{\"prompt\": \"a\", \"completion\": null}\n{\"prompt\": 3}\nnot json\n",
    );
    let parts = [
        "job one",
        "adapter.rank",
        "job two",
        "absent.jsonl",
        "job three",
        "line 1",
        "line 2",
        "line 3",
    ];
    sandbox
        .run(&["train", "jobs.toml"])
        .ended_with(3)
        .said(&parts);
}

#[test]
fn samples_that_cannot_be_trained() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "no record"),
        (UNTRAINED, "nothing_to_train"),
        (b"{\"text\": \"ok\"}\n{\"text\": \"\xff\"}\n", "line 2"),
        (b"{\"text\": 7}\n", "$.text"),
        (b"{\"text\": null}\n", "$.text"),
        (b"{\"foo\": \"bar\"}\n", "unknown_format"),
    ];
    let sandbox = Sandbox::with_jobs(&one_job(LORA));
    for (bytes, part) in cases {
        sandbox.write("pairs.jsonl", bytes);
        sandbox
            .run(&["train", "jobs.toml"])
            .ended_with(3)
            .said(&["job one", part]);
        let told = sandbox
            .run(&["data", "check", "pairs.jsonl", "--json"])
            .ended_with(3);
        assert_eq!(told.last()["sound"], false);
    }
    assert!(sandbox.names("adapters").is_empty());
}

#[test]
fn a_mark_and_windows_lines_change_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("plain.jsonl", PAIRS);
    sandbox.write(
        "marked.jsonl",
        format!("\u{feff}{}", PAIRS.replace('\n', "\r\n")),
    );
    let report = |file: &str| {
        let told = sandbox
            .run(&["data", "check", file, "--json", "--show-mask", "2"])
            .ended_with(0)
            .last();
        (told["report"]["tokens"].clone(), told["shown"].clone())
    };
    assert_eq!(report("plain.jsonl"), report("marked.jsonl"));
}

#[test]
fn models_that_are_absent_or_damaged() {
    let sandbox = Sandbox::with_jobs(&one_job(LORA));
    sandbox
        .run(&["generate", "--model", "smollm2-135m-instruct", "hi"])
        .ended_with(4)
        .said(&["neither a path", "spotmux model pull smollm2-135m-instruct"]);
    sandbox
        .run(&["generate", "--model", "../../no/such/model", "hi"])
        .ended_with(4)
        .said(&["neither a path"]);
    let weights = sandbox.path("tiny/model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    sandbox
        .run(&["train", "jobs.toml"])
        .ended_with(3)
        .said(&["model.safetensors"]);
    let config = sandbox
        .read("tiny/config.json")
        .replace("\"llama\"", "\"mamba\"");
    fs::write(&weights, &bytes).unwrap();
    sandbox.write("tiny/config.json", config);
    sandbox
        .run(&["model", "inspect", "tiny"])
        .ended_with(3)
        .said(&["config.json", "mamba", "llama"]);
}

#[test]
fn output_that_cannot_be_written() {
    let sandbox = Sandbox::with_jobs(&one_job(&format!("{LORA}\ntrain = {{ steps = 1 }}")));
    // A file where a folder must be: refused even to a user who may write everywhere.
    sandbox.write("adapters", "in the way");
    sandbox.run(&["train", "jobs.toml"]).ended_with(3).said(&[
        "job one",
        "adapters/one",
        "a part of that path is a file",
    ]);
    fs::create_dir_all(sandbox.path("taken/one/metrics.jsonl")).unwrap();
    let taken = ["train", "jobs.toml", "--output", "taken"];
    sandbox
        .run(&taken)
        .ended_with(1)
        .said(&["cannot write to taken/one"]);
    fs::create_dir(sandbox.path("locked")).unwrap();
    fs::set_permissions(sandbox.path("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(sandbox.path("locked/probe"), "").is_ok() {
        eprintln!("SKIPPED: this user may write to read-only folders");
        return;
    }
    sandbox
        .run(&["train", "jobs.toml", "--output", "locked"])
        .ended_with(1)
        .said(&["cannot write"]);
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let sandbox = Sandbox::with_jobs(&one_job(&format!("{LORA}\ntrain = {{ steps = 1 }}")));
    // No file may grow beyond a few blocks: what a full disk looks like to the writer.
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} train jobs.toml",
        env!("CARGO_BIN_EXE_spotmux")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(sandbox.path(""));
    Ran::of(&shell.output().unwrap()).ended_with(1).said(&[
        "job one",
        "checkpoint of step 1",
        "File too large",
    ]);
    assert_eq!(sandbox.names("adapters/one/checkpoints"), [""; 0]);
    assert!(!sandbox.path("adapters/one/adapter").exists());
    // With room again, the same command gets through.
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
}

#[test]
fn what_would_not_fit_is_refused_before_it_starts() {
    let sandbox = Sandbox::with_jobs(&format!(
        "engine = {{ tokens_per_pass = 16000000 }}\n{}",
        one_job(LORA)
    ));
    sandbox.run(&["train", "jobs.toml"]).ended_with(5).said(&[
        "the run needs about",
        "are available",
        "tokens_per_pass (now 16000000)",
        "--recompute all",
    ]);
    // With all layers made again there is nothing left to recompute.
    let again = sandbox.run(&["train", "jobs.toml", "--recompute", "all"]);
    let told = again.ended_with(5).err;
    assert!(!told.contains("--recompute"), "{told}");
    assert!(sandbox.names("adapters").is_empty());
}

#[test]
fn programs_get_the_error_as_a_line() {
    let sandbox = Sandbox::with_jobs(&one_job("adapter = { method = 'lora', rank = 0 }"));
    let told = sandbox
        .run(&["train", "jobs.toml", "--json"])
        .ended_with(3)
        .last();
    assert_eq!(told["event"], "error");
    assert_eq!(told["exit_code"], 3);
    assert!(told["message"].as_str().unwrap().contains("adapter.rank"));
}
