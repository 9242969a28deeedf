//! The demo, offline in the gate, and on the real model where it was fetched.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::sandbox::Sandbox;

/// What a demo's folder holds after a cluster trained there.
const LEFT: [&str; 6] = [
    ".spotmux",
    "adapters",
    "cluster.toml",
    "data",
    "jobs.toml",
    "tiny-model",
];

/// Processes of the system that name this folder in their arguments.
fn processes_of(sandbox: &Sandbox) -> Vec<String> {
    let folder = sandbox.path("").display().to_string();
    let folder = folder.trim_end_matches('/');
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        // Others come and go meanwhile.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(folder) {
            found.push(line);
        }
    }
    found
}

#[test]
fn offline_it_trains_a_tiny_model_on_a_cluster_and_moves_a_stage() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("d").display().to_string();
    let ran = sandbox
        .run(&["demo", "--offline", "--steps", "12", "--output", &folder])
        .ended_with(0)
        .said(&[
            "a tiny random model is trained instead",
            "a coordinator and 3 nodes, each a process of its own",
            "is spare",
            "while it trains",
            "spotmux up --config",
        ]);
    for word in [
        "sentiment",
        "qa",
        "summaries",
        "style",
        "korean",
        "orders",
        "before",
        "after",
        "tokens/s",
        "cluster 4 processes",
        "moved   stage 1 moved from node",
    ] {
        assert!(ran.out.contains(word), "{word} is not in:\n{}", ran.out);
    }
    assert_eq!(processes_of(&sandbox), Vec::<String>::new());
    assert_eq!(sandbox.names("d"), LEFT);
    let jobs = sandbox.names("d/adapters");
    assert_eq!(jobs.len(), 7);
    for job in jobs {
        let files = sandbox.names(&format!("d/adapters/{job}/adapter"));
        for file in ["README.md", "adapter_config.json", "spotmux.json"] {
            assert!(files.iter().any(|name| name == file), "{job}: {files:?}");
        }
    }
    // The adapters are those of the file: training it again finds them done.
    let again = [
        "train",
        "d/jobs.toml",
        "--model",
        "d/tiny-model",
        "--output",
        "o",
        "--check",
    ];
    sandbox.run(&again).ended_with(0);
}

#[test]
fn stopped_while_it_trains_it_leaves_no_process() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("d").display().to_string();
    let mut child = sandbox
        .command(&["demo", "--offline", "--json", "--output", &folder])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut asked, mut answers) = (false, 0);
    for line in lines {
        let told: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if told["event"] == "answer" && !asked {
            // By the cluster, as those that come after.
            assert_eq!(told["when"], "before");
            answers += 1;
        }
        if (told["event"] == "answer" || told["event"] == "step") && !asked {
            assert_eq!(
                processes_of(&sandbox).len(),
                5,
                "the demo, a coordinator, 3 nodes"
            );
        }
        if told["event"] == "step" && !asked {
            let id = child.id().to_string();
            let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
            asked = sent.success();
        }
        assert_ne!(told["event"], "demo", "it went on to the end");
    }
    assert!(asked);
    assert_eq!(answers, 7, "one for each job");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(processes_of(&sandbox), Vec::<String>::new());
}

#[test]
fn alone_it_trains_in_one_process() {
    let sandbox = Sandbox::new();
    let ran = sandbox
        .run(&["demo", "--offline", "--alone", "--steps", "2"])
        .ended_with(0)
        .said(&[
            "a tiny random model is trained instead",
            "training in this process",
        ]);
    assert!(ran.out.contains("at most in this process"), "{}", ran.out);
    assert_eq!(
        sandbox.names("spotmux-demo"),
        ["adapters", "data", "jobs.toml", "tiny-model"]
    );
    assert_eq!(sandbox.names("spotmux-demo/adapters").len(), 7);
    let ran = sandbox
        .run(&["demo", "--offline", "--alone", "--steps", "1", "--json"])
        .ended_with(0);
    let told = ran.last();
    assert_eq!(
        (&told["tiny_model"], &told["cluster"]),
        (&true.into(), &Value::Null)
    );
    assert!(sandbox.path("spotmux-demo-2").exists());
}

#[test]
fn without_a_network_it_falls_back_too() {
    let sandbox = Sandbox::new();
    let demo = ["demo", "--alone", "--steps", "1", "--output", "d"];
    sandbox
        .run(&demo)
        .ended_with(0)
        .said(&["cannot start", "a tiny random model is trained instead"]);
    sandbox.run(&demo).ended_with(3).said(&["d is not empty"]);
}

/// Minutes long: `cargo test --release -p spotmux --test binary real_model -- --ignored`, with
/// `SPOTMUX_CACHE` naming a cache that has the model (as after `spotmux demo`).
#[test]
#[ignore = "minutes long, and needs the model"]
fn on_the_real_model_each_loss_falls_and_each_answer_is_as_trained() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["demo", "--json", "--output", "d"]);
    command
        .env_remove("SPOTMUX_PYTHON")
        .env_remove("SPOTMUX_CACHE");
    if let Some(cache) = cache() {
        command.env("SPOTMUX_CACHE", cache);
    }
    let told = crate::sandbox::Ran::of(&command.output().unwrap())
        .ended_with(0)
        .last();
    if told["tiny_model"] == true {
        eprintln!("SKIPPED: the model could not be fetched");
        return;
    }
    assert_ne!(told["cluster"]["moved"], Value::Null, "{told}");
    for job in told["jobs"].as_array().unwrap() {
        let name = job["job"].as_str().unwrap();
        assert!(
            job["loss_falls_by"].as_f64().unwrap() >= 0.3,
            "{name}: {job}"
        );
        let (before, after) = (text(job, "before"), text(job, "after"));
        assert_ne!(before, after, "{name}");
        assert!(as_trained(name, after), "{name} answers {after:?}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test passes the caller's cache on"
)]
fn cache() -> Option<std::ffi::OsString> {
    std::env::var_os("SPOTMUX_CACHE")
}

fn text<'a>(job: &'a Value, key: &str) -> &'a str {
    job[key].as_str().unwrap()
}

/// Whether an answer has the form, and where there is one right answer the content, of the job's samples.
fn as_trained(job: &str, answer: &str) -> bool {
    let answer = answer.trim();
    match job {
        "sentiment" => answer == "Negative",
        "qa" => answer == "People on Tollimar pay with glass beads called lumes.",
        "summaries" => answer.starts_with("In short:") && answer.ends_with('.'),
        "style" => ["arr", "matey", "scurvy", "be ", "yo ho"]
            .iter()
            .any(|word| answer.to_lowercase().contains(word)),
        "korean" => {
            answer.chars().filter(|c| ('가'..='힣').contains(c)).count()
                > answer.chars().count() / 2
        }
        "orders" => {
            let value: Result<Value, _> = serde_json::from_str(answer);
            value.is_ok_and(|value| {
                value["name"] == "Hana" && value["city"] == "Seoul" && value["count"] == 3
            })
        }
        "commands" => answer == "cellar.door = open",
        _ => false,
    }
}
