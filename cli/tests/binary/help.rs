//! The pages of help, word for word: they are part of the interface.

use std::fs;
use std::path::Path;

use crate::sandbox::Sandbox;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["demo"],
    &["train"],
    &["generate"],
    &["data"],
    &["data", "check"],
    &["model"],
    &["model", "pull"],
    &["model", "inspect"],
    &["model", "tiny"],
    &["adapter"],
    &["adapter", "inspect"],
    &["adapter", "merge"],
    &["adapter", "import"],
    &["adapter", "export"],
    &["bench"],
    &["bench", "train"],
    &["bench", "pipeline"],
    &["bench", "plan"],
    &["profile"],
    &["plan"],
    &["quote"],
    &["simulate"],
    &["market"],
    &["market", "show"],
    &["market", "bill"],
    &["market", "forecast"],
    &["market", "backtest"],
    &["market", "explain"],
    &["market", "whatif"],
    &["market", "orphans"],
    &["up"],
    &["down"],
    &["status"],
    &["submit"],
    &["jobs"],
    &["job"],
    &["cancel"],
    &["pause"],
    &["resume"],
    &["events"],
    &["nodes"],
    &["drain"],
    &["migrate"],
    &["sample"],
    &["trace"],
    &["fetch"],
    &["ca"],
    &["ca", "init"],
    &["ca", "issue"],
    &["ca", "token"],
    &["ca", "renew"],
    &["join"],
    &["doctor"],
    &["config"],
    &["config", "show"],
    &["config", "check"],
    &["config", "init"],
    &["repl"],
];

#[test]
fn pages_are_the_golden_ones() {
    let sandbox = Sandbox::new();
    let mut pages = String::new();
    for command in COMMANDS {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let page = sandbox.run(&arguments).ended_with(0).out;
        pages.push_str(&format!("$ spotmux {}\n{page}\n", arguments.join(" ")));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/help.txt");
    let known = fs::read_to_string(&golden).unwrap_or_default();
    if pages != known {
        let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join("help.txt");
        fs::write(&found, &pages).unwrap();
        panic!(
            "the pages changed; look at the difference, and if it is meant:\n  cp {} {}",
            found.display(),
            golden.display()
        );
    }
}

#[test]
fn usage_errors_end_with_2() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["train"][..],
        &["nonsense"],
        &["demo", "--steps", "0"],
        &["bench", "train", "--rounds", "3"],
        &["bench", "train", "--jobs", "0"],
        &["generate", "--model", "m", "--temperature", "-1", "hi"],
        &["model", "tiny", "t", "--hidden", "65"],
        &["data", "check", "x.jsonl", "--max-dropped", "2"],
    ] {
        sandbox.run(arguments).ended_with(2);
    }
    sandbox.run(&["--version"]).ended_with(0);
}
