//! Inputs that are no regular files, too large, or never end; and signals while they are read.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::sandbox::{Ran, Sandbox, one_job};

const JOB: &str = "adapter = { method = 'lora', rank = 2 }\ntrain = { steps = 2, batch_size = 1 }";

fn prepared() -> Sandbox {
    Sandbox::with_jobs(&one_job(JOB))
}

fn pipe(sandbox: &Sandbox, name: &str) {
    let path = sandbox.path(name);
    if path.exists() {
        fs::remove_file(&path).unwrap();
    }
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// Runs with a bound on time, so that a read without an end fails instead of hanging.
#[track_caller]
fn bounded(sandbox: &Sandbox, arguments: &[&str]) -> Ran {
    let ours = sandbox.command(&[]);
    let mut command = Command::new("timeout");
    command
        .args(["-s", "KILL", "20", env!("CARGO_BIN_EXE_spotmux")])
        .args(arguments)
        .current_dir(sandbox.path(""));
    for (name, value) in ours.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Ran::of(&command.output().unwrap())
}

#[test]
fn pipes_devices_and_folders_are_refused_before_they_are_opened() {
    let sandbox = prepared();
    pipe(&sandbox, "pipe");
    fs::create_dir(sandbox.path("folder")).unwrap();
    for what in ["pipe", "/dev/zero", "folder"] {
        let refused = |arguments: &[&str]| {
            bounded(&sandbox, arguments)
                .ended_with(3)
                .said(&["not a regular file"]);
        };
        refused(&["train", what]);
        refused(&["data", "check", what]);
        refused(&["data", "check", "pairs.jsonl", "--template", what]);
        sandbox.write("other.toml", one_job(JOB).replace("pairs.jsonl", what));
        refused(&["train", "other.toml"]);
    }
    bounded(&sandbox, &["data", "check", "/dev/stdin"]).ended_with(3);
}

#[test]
fn parts_of_adapters_and_checkpoints_are_regular_files() {
    let sandbox = prepared();
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    let weights = "adapters/one/adapter/adapter_model.safetensors";
    let whole = fs::read(sandbox.path(weights)).unwrap();
    pipe(&sandbox, weights);
    let inspect = ["adapter", "inspect", "adapters/one"];
    bounded(&sandbox, &inspect)
        .ended_with(3)
        .said(&["not a regular file"]);
    sandbox.write(
        "next.toml",
        one_job(&format!("{JOB}\ninit_from = 'adapters/one/adapter'")),
    );
    bounded(&sandbox, &["train", "next.toml", "--output", "next"])
        .ended_with(3)
        .said(&["init_from", "not a regular file"]);
    fs::remove_file(sandbox.path(weights)).unwrap();
    sandbox.write(weights, whole);
    let checkpoint = "adapters/one/checkpoints/step-00000002";
    for part in ["state.safetensors", "manifest.json"] {
        let name = format!("{checkpoint}/{part}");
        let bytes = fs::read(sandbox.path(&name)).unwrap();
        pipe(&sandbox, &name);
        // The adapter is whole, so nothing else is needed.
        bounded(&sandbox, &["train", "jobs.toml"]).ended_with(0);
        fs::remove_file(sandbox.path(&name)).unwrap();
        sandbox.write(&name, bytes);
    }
    let config = "adapters/one/adapter/adapter_config.json";
    let generate = [
        "generate",
        "--model",
        "tiny",
        "--adapter",
        "adapters/one",
        "a",
    ];
    for folder in [false, true] {
        pipe(&sandbox, config);
        if folder {
            fs::remove_file(sandbox.path(config)).unwrap();
            fs::create_dir(sandbox.path(config)).unwrap();
        }
        for command in [&generate[..], &inspect] {
            bounded(&sandbox, command)
                .ended_with(3)
                .said(&["adapter_config.json is not a regular file"]);
        }
    }
}

#[test]
fn small_files_are_small() {
    let sandbox = prepared();
    let sparse = |name: &str, bytes: u64| {
        let file = fs::File::create(sandbox.path(name)).unwrap();
        file.set_len(bytes).unwrap();
    };
    sparse("huge", 1 << 40);
    sandbox
        .run(&["train", "huge"])
        .ended_with(3)
        .said(&["the limit is 16777216"]);
    sandbox
        .run(&["data", "check", "pairs.jsonl", "--template", "huge"])
        .ended_with(3)
        .said(&["the limit is 1048576"]);
}

#[test]
fn a_prompt_longer_than_any_context_is_not_read() {
    let sandbox = prepared();
    let mut command = sandbox.command(&["generate", "--model", "tiny", "--raw", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let chunk = vec![b'a'; 1 << 20];
    // It ends before it has all of them.
    let taken = (0..1000)
        .take_while(|_| stdin.write_all(&chunk).is_ok())
        .count();
    drop(stdin);
    assert!(taken < 1000, "it read everything");
    Ran::of(&child.wait_with_output().unwrap())
        .ended_with(3)
        .said(&["the prompt has more than", "context of"]);
}

/// Before anything is trained there is nothing to save, so nothing to wait for.
#[test]
fn the_first_signal_ends_what_only_reads() {
    for signal in ["-TERM", "-INT"] {
        let sandbox = prepared();
        // Minutes of reading, if nobody asked it to end.
        let line = format!(
            "{{\"prompt\": \"a\", \"completion\": \"{}\"}}\n",
            "b ".repeat(20_000)
        );
        sandbox.write("pairs.jsonl", line.repeat(3000));
        let mut command = sandbox.command(&["train", "jobs.toml"]);
        command.env("SPOTMUX_LOG", "trace");
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "a signal comes from outside, at a time of its own"
        )]
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert_eq!(child.try_wait().unwrap(), None, "it was not reading");
        let sent = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        let waited = crate::sandbox::wait_a_while(&mut child);
        assert_eq!(waited, Some(Some(130)));
        assert!(sandbox.names("adapters").is_empty());
    }
}

#[test]
fn what_is_absent_has_one_code() {
    let sandbox = prepared();
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    let absent = |arguments: &[&str]| {
        sandbox.run(arguments).ended_with(4);
    };
    absent(&["train", "nope.toml"]);
    absent(&["data", "check", "nope"]);
    absent(&["data", "check", "pairs.jsonl", "--template", "nope"]);
    absent(&["adapter", "inspect", "nope"]);
    sandbox.write(
        "data.toml",
        one_job(JOB).replace("pairs.jsonl", "nope.jsonl"),
    );
    absent(&["train", "data.toml"]);
    sandbox.write("from.toml", one_job(&format!("{JOB}\ninit_from = 'nope'")));
    absent(&["train", "from.toml", "--output", "from"]);
    let weights = "adapters/one/adapter/adapter_model.safetensors";
    fs::remove_file(sandbox.path(weights)).unwrap();
    absent(&["adapter", "inspect", "adapters/one"]);
    absent(&[
        "generate",
        "--model",
        "tiny",
        "--adapter",
        "adapters/one",
        "a",
    ]);
}

#[test]
fn what_cannot_be_written_has_one_code_and_its_own_name() {
    let sandbox = prepared();
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    // Refused even to a user who may write everywhere.
    let place = "/proc/nowhere";
    let refused = |arguments: &[&str]| {
        let ran = sandbox.run(arguments).ended_with(1).said(&[place]);
        assert!(!ran.err.contains(".spotmux-"), "{}", ran.err);
    };
    refused(&["train", "jobs.toml", "--output", place]);
    refused(&["train", "jobs.toml", "--output", place, "--check"]);
    let adapter = ["adapters/one", "--model", "tiny", "--output", place];
    refused(&[&["adapter", "merge"], &adapter[..]].concat());
    refused(&[&["adapter", "import"], &adapter[..]].concat());
    refused(&["model", "tiny", place]);
    // Looking leaves nothing behind.
    sandbox
        .run(&["train", "jobs.toml", "--output", "new", "--check"])
        .ended_with(0);
    assert!(!sandbox.path("new").exists());
}

#[test]
fn a_model_is_inspected_with_its_tokenizer() {
    let sandbox = prepared();
    let config = sandbox.read("tiny/tokenizer_config.json");
    for (name, text) in [
        ("tokenizer.json", "{\"version\": \"1.0\"}".to_owned()),
        ("chat_template.jinja", "{% for m in messages %}".to_owned()),
    ] {
        let before = sandbox
            .path("tiny")
            .join(name)
            .exists()
            .then(|| sandbox.read(&format!("tiny/{name}")));
        sandbox.write(&format!("tiny/{name}"), text);
        let told = sandbox
            .run(&["model", "inspect", "tiny", "--json"])
            .ended_with(3)
            .last();
        assert!(told["tokenizer_problem"].is_string(), "{told}");
        sandbox.run(&["model", "inspect", "tiny"]).ended_with(3);
        match before {
            Some(text) => drop(sandbox.write(&format!("tiny/{name}"), text)),
            None => fs::remove_file(sandbox.path("tiny").join(name)).unwrap(),
        }
    }
    sandbox.write("tiny/tokenizer_config.json", config);
    let told = sandbox
        .run(&["model", "inspect", "tiny", "--json"])
        .ended_with(0)
        .last();
    assert!(told["tokenizer_problem"].is_null(), "{told}");
}
