//! Standard output and standard error that are closed, full, or a terminal's: nothing panics, and no work is lost.

use std::fs::{self, OpenOptions};
use std::process::{Command, Stdio};

use crate::sandbox::{PAIRS, Ran, Sandbox, one_job};

const JOB: &str = "adapter = { method = 'lora', rank = 2 }\ntrain = { steps = 6, batch_size = 1 }\ncheckpoint = { every_steps = 2 }";

fn prepared() -> Sandbox {
    Sandbox::with_jobs(&one_job(JOB))
}

fn full() -> Stdio {
    OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// A pipe whose reader is gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn remarks_that_nobody_can_read_stop_nothing() {
    let kinds: [fn() -> Stdio; 2] = [full, closed];
    for stderr in kinds {
        let sandbox = prepared();
        let ended = |arguments: &[&str]| {
            let mut command = sandbox.command(arguments);
            command.stdout(Stdio::null()).stderr(stderr());
            command.status().unwrap().code()
        };
        assert_eq!(ended(&["train", "jobs.toml"]), Some(0));
        assert!(sandbox.path("adapters/one/adapter").exists());
        assert_eq!(ended(&["train", "absent.toml"]), Some(4));
        assert_eq!(ended(&["train", "--no-such-option"]), Some(2));
        assert_eq!(ended(&["generate", "--model", "tiny", "hi"]), Some(0));
        assert_eq!(ended(&["train", "jobs.toml", "--threads", "999"]), Some(0));
    }
}

#[test]
fn a_listener_that_leaves_does_not_stop_training() {
    let whole = prepared();
    whole.run(&["train", "jobs.toml", "--json"]).ended_with(0);
    let cases: [(fn() -> Stdio, i32); 2] = [(closed, 0), (full, 1)];
    for (stdout, code) in cases {
        for json in [&["--json"][..], &[]] {
            let sandbox = prepared();
            let mut command = sandbox.command(&["train", "jobs.toml"]);
            command.args(json).stdout(stdout());
            Ran::of(&command.output().unwrap()).ended_with(code);
            for file in ["adapter/adapter_model.safetensors", "metrics.jsonl"] {
                let read = |from: &Sandbox| fs::read(from.path(&format!("adapters/one/{file}")));
                assert!(read(&sandbox).unwrap() == read(&whole).unwrap(), "{file}");
            }
        }
    }
    // What is found wrong is still told by the code.
    let sandbox = Sandbox::new();
    sandbox.write("bad.jsonl", "no json\n");
    let mut command = sandbox.command(&["data", "check", "bad.jsonl"]);
    assert_eq!(command.stdout(closed()).status().unwrap().code(), Some(3));
}

#[test]
fn programs_are_told_of_a_wrong_command_line_too() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["train", "--no-such-option", "--json"][..],
        &["--json", "train"],
        &[
            "--json",
            "generate",
            "--model",
            "tiny",
            "--max-tokens",
            "many",
            "hi",
        ],
    ] {
        let told = sandbox.run(arguments).ended_with(2);
        let last = told.last();
        assert_eq!(last["event"], "error");
        assert_eq!(last["exit_code"], 2);
        let message = last["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains('\u{1b}'));
        assert!(told.err.contains("error"), "{}", told.err);
    }
    assert_eq!(sandbox.run(&["train"]).ended_with(2).out, "");
    assert!(
        sandbox
            .run(&["--help", "--json"])
            .ended_with(0)
            .out
            .contains("Usage")
    );
}

const EVIL: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}";

#[track_caller]
fn harmless(ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        let evil = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
        assert!(!text.contains(evil), "{text:?}");
    }
    assert!(
        ["\u{fffd}", "\\u{1b}"]
            .iter()
            .any(|shown| ran.out.contains(shown) || ran.err.contains(shown)),
        "{ran:?}"
    );
}

#[test]
fn no_file_and_no_name_commands_the_terminal() {
    let sandbox = prepared();
    let shown = format!("e{EVIL}l");
    let json = |text: &str| serde_json::to_string(text).unwrap();
    sandbox.write(
        "pairs.jsonl",
        format!("{{\"prompt\": {0}, \"completion\": {0}}}\n", json(&shown)),
    );
    harmless(
        &sandbox
            .run(&["data", "check", "pairs.jsonl", "--show-mask"])
            .ended_with(0),
    );
    sandbox.write(
        "role.jsonl",
        format!(
            "{{\"messages\": [{{\"role\": {0}, {0}: 1, \"content\": \"a\"}}]}}\n",
            json(&shown)
        ),
    );
    harmless(&sandbox.run(&["data", "check", "role.jsonl"]).ended_with(3));
    sandbox.write(
        "jobs.toml",
        one_job(JOB).replace("'pairs.jsonl'", &json(&shown)),
    );
    harmless(&sandbox.run(&["train", "jobs.toml"]).ended_with(4));
    sandbox.write(
        "jobs.toml",
        format!("{}\n{} = 1\n", one_job(JOB), json(&shown)),
    );
    harmless(&sandbox.run(&["train", "jobs.toml"]).ended_with(3));
    sandbox.write("pairs.jsonl", PAIRS);
    let file = format!("{shown}.jsonl");
    sandbox.write(&file, PAIRS);
    harmless(&sandbox.run(&["data", "check", &file]).ended_with(0));
    harmless(
        &sandbox
            .run(&["data", "check", "pairs.jsonl", &shown])
            .ended_with(2),
    );
    harmless(&sandbox.run(&["model", "inspect", &shown]).ended_with(4));
    sandbox.write(
        "raise.jinja",
        format!("{{{{ raise_exception({}) }}}}", json(&shown)),
    );
    sandbox.write(
        "chat.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n",
    );
    let raised = ["data", "check", "chat.jsonl", "--template", "raise.jinja"];
    harmless(&sandbox.run(&raised).ended_with(3));
    let mut header = format!(
        "{{{}:{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}}}",
        json(&shown)
    )
    .into_bytes();
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.append(&mut header);
    weights.extend([0; 4]);
    sandbox.run(&["train", "jobs.toml"]).ended_with(3);
    sandbox.write("jobs.toml", one_job(JOB));
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    sandbox.write("adapters/one/adapter/adapter_model.safetensors", weights);
    fs::remove_file(sandbox.path("adapters/one/adapter/spotmux.json")).unwrap();
    harmless(
        &sandbox
            .run(&["adapter", "inspect", "adapters/one"])
            .ended_with(0),
    );
}

#[test]
fn a_long_complaint_is_cut_and_says_so() {
    let sandbox = Sandbox::new();
    let name = "n".repeat(3_000_000);
    sandbox.write("jobs.toml", format!("{name} = 1\n"));
    let ran = sandbox.run(&["train", "jobs.toml"]).ended_with(3);
    assert!(ran.err.len() < 100_000, "{} bytes", ran.err.len());
    let ran = sandbox.run(&["train", "jobs.toml", "--json"]).ended_with(3);
    assert!(ran.out.len() < 100_000, "{} bytes", ran.out.len());
    let ran = sandbox.run(&["train", &name[..100_000]]).ended_with(3);
    assert!(ran.err.len() < 10_000, "{} bytes", ran.err.len());
    assert!(ran.err.contains("characters left out"), "{}", ran.err);
}

/// The same as a shell has it.
#[test]
fn the_first_lines_are_enough_for_a_reader() {
    let sandbox = prepared();
    let binary = env!("CARGO_BIN_EXE_spotmux");
    let script = format!("{binary} train jobs.toml --json 2>&1 | head -n 1");
    let ran = Command::new("sh")
        .args(["-c", &script])
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&ran.stdout).contains("\"event\":\"plan\""));
    assert!(sandbox.path("adapters/one/adapter").exists());
}
