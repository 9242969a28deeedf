//! The demo, offline in the gate, and on the real model where it was fetched.

use serde_json::Value;

use crate::sandbox::Sandbox;

#[test]
fn offline_it_falls_back_to_a_tiny_model_and_says_so() {
    let sandbox = Sandbox::new();
    let ran = sandbox
        .run(&["demo", "--offline", "--steps", "2"])
        .ended_with(0)
        .said(&["a tiny random model is trained instead"]);
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
    ] {
        assert!(ran.out.contains(word), "{word} is not in:\n{}", ran.out);
    }
    assert_eq!(
        sandbox.names("spotmux-demo"),
        ["adapters", "data", "jobs.toml", "tiny-model"]
    );
    assert_eq!(sandbox.names("spotmux-demo/adapters").len(), 7);
    // What it leaves can be trained again.
    let again = [
        "train",
        "spotmux-demo/jobs.toml",
        "--model",
        "spotmux-demo/tiny-model",
        "--output",
        "o",
        "--check",
    ];
    sandbox.run(&again).ended_with(0);
    let ran = sandbox
        .run(&["demo", "--offline", "--steps", "1", "--json"])
        .ended_with(0);
    assert_eq!(ran.last()["tiny_model"], true);
    assert!(sandbox.path("spotmux-demo-2").exists());
}

#[test]
fn without_a_network_it_falls_back_too() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&["demo", "--steps", "1", "--output", "d"])
        .ended_with(0)
        .said(&["cannot start", "a tiny random model is trained instead"]);
    sandbox
        .run(&["demo", "--steps", "1", "--output", "d"])
        .ended_with(3)
        .said(&["d is not empty"]);
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
