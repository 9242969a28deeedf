//! The same command again: what changes results is seen, what changes none is let pass, and what one job cannot keep
//! costs its neighbours nothing.

use std::fs;

use serde_json::Value;

use crate::sandbox::{Sandbox, one_job};

fn job(rest: &str) -> String {
    let train = "adapter = { method = 'lora', rank = 2 }\ntrain = { steps = 4, batch_size = 1 }";
    one_job(&format!("{train}\n{rest}"))
}

fn trained(rest: &str) -> Sandbox {
    let sandbox = Sandbox::with_jobs(&job(rest));
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    sandbox
}

/// Takes the adapter away, so that the checkpoints are what there is.
fn unfinished(sandbox: &Sandbox) {
    fs::remove_dir_all(sandbox.path("adapters/one/adapter")).unwrap();
}

/// Where the adapter that it started from is gone, its own results say what it started from.
#[test]
fn a_job_that_has_started_needs_no_adapter_to_start_from() {
    let sandbox = trained("");
    fs::rename(sandbox.path("adapters/one/adapter"), sandbox.path("start")).unwrap();
    fs::remove_dir_all(sandbox.path("adapters")).unwrap();
    sandbox.write(
        "jobs.toml",
        job("init_from = 'start'\ncheckpoint = { every_steps = 2, keep_last = 9 }"),
    );
    let train = ["train", "jobs.toml"];
    sandbox.run(&train).ended_with(0);
    let weights = "adapters/one/adapter/adapter_model.safetensors";
    let whole = fs::read(sandbox.path(weights)).unwrap();
    fs::remove_dir_all(sandbox.path("start")).unwrap();
    sandbox.run(&train).ended_with(0);
    let checkpoints = sandbox.path("adapters/one/checkpoints");
    unfinished(&sandbox);
    fs::remove_dir_all(checkpoints.join("step-00000004")).unwrap();
    sandbox.run(&train).ended_with(0);
    assert!(
        fs::read(sandbox.path(weights)).unwrap() == whole,
        "the same bits"
    );
    fs::remove_dir_all(&checkpoints).unwrap();
    sandbox.run(&train).ended_with(0);
    unfinished(&sandbox);
    sandbox
        .run(&train)
        .ended_with(4)
        .said(&["init_from", "start"]);
}

#[test]
fn the_same_weights_under_another_configuration_are_another_backbone() {
    let sandbox = trained("");
    let config = sandbox.read("tiny/config.json");
    let mut other: Value = serde_json::from_str(&config).unwrap();
    other["rope_theta"] = Value::from(20_000.0);
    sandbox.write("tiny/config.json", other.to_string());
    for finished in [true, false] {
        if !finished {
            unfinished(&sandbox);
        }
        sandbox
            .run(&["train", "jobs.toml"])
            .ended_with(3)
            .said(&["differs in the backbone"]);
    }
    sandbox.write("tiny/config.json", config);
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
}

#[test]
fn an_adapter_to_start_from_is_known_by_its_values() {
    let two = |seed: u32| {
        format!(
            "model = 'tiny'\n[[job]]\nname = 'one'\nseed = {seed}\ndata = {{ train = 'pairs.jsonl' }}\n\
             adapter = {{ method = 'lora', rank = 2 }}\ntrain = {{ steps = 2 }}\n"
        )
    };
    let sandbox = Sandbox::with_jobs(&two(1));
    let next = "model = 'tiny'\n[[job]]\nname = 'next'\ndata = { train = 'pairs.jsonl' }\n\
                adapter = { method = 'lora', rank = 2, dropout = 0.1 }\ntrain = { steps = 2 }\n\
                init_from = 'adapters/one/adapter'\n";
    sandbox.write("next.toml", next);
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    // Another dropout only says how it goes on.
    sandbox.run(&["train", "next.toml"]).ended_with(0);
    let told = sandbox.run(&["train", "next.toml", "--json"]).ended_with(0);
    assert_eq!(told.lines()[0]["jobs"][0]["done"], true);
    fs::remove_dir_all(sandbox.path("adapters/one")).unwrap();
    sandbox.write("jobs.toml", two(2));
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    sandbox
        .run(&["train", "next.toml"])
        .ended_with(3)
        .said(&["differs in the adapter at init_from"]);
    sandbox.write("next.toml", next.replace("rank = 2", "rank = 4"));
    sandbox
        .run(&["train", "next.toml", "--output", "elsewhere"])
        .ended_with(3)
        .said(&["the adapter at init_from differs from the job's in alpha, rank"]);
}

#[test]
fn what_changes_no_result_refuses_nothing() {
    let sandbox = trained("");
    let more = "tenant = 't'\nmarket = { deadline_hours = 3.0 }\nreplicas = 2\ncheckpoint = { every_steps = 3 }";
    sandbox.write("jobs.toml", job(more));
    let told = sandbox.run(&["train", "jobs.toml", "--json"]).ended_with(0);
    assert_eq!(told.lines()[0]["jobs"][0]["done"], true);
    unfinished(&sandbox);
    let told = sandbox.run(&["train", "jobs.toml", "--json"]).ended_with(0);
    assert_eq!(told.lines()[0]["jobs"][0]["step"], 4);
}

#[test]
fn a_finished_job_needs_no_checkpoints_of_this_format() {
    let sandbox = trained("");
    let checkpoints = "adapters/one/checkpoints";
    let newest = sandbox.names(checkpoints).pop().unwrap();
    let manifest = format!("{checkpoints}/{newest}/manifest.json");
    let text = sandbox.read(&manifest);
    let other = text.replace("\"version\": 3", "\"version\": 999");
    assert_ne!(other, text);
    sandbox.write(&manifest, other);
    let told = sandbox.run(&["train", "jobs.toml", "--json"]).ended_with(0);
    assert_eq!(told.lines()[0]["jobs"][0]["done"], true);
    unfinished(&sandbox);
    sandbox
        .run(&["train", "jobs.toml"])
        .ended_with(3)
        .said(&["format version 999"]);
}

/// A file in the place where a checkpoint is made is refused by the system, whoever runs the test.
#[test]
fn what_one_job_cannot_keep_costs_the_others_nothing() {
    let two = |rest: &str| {
        ["one", "two"].map(|name| {
            let rest = if name == "one" { rest } else { "checkpoint = { every_steps = 0 }" };
            format!(
                "[[job]]\nname = '{name}'\ndata = {{ train = 'pairs.jsonl' }}\nadapter = {{ method = 'ia3' }}\n\
                 train = {{ steps = 6, batch_size = 1 }}\n{rest}\n"
            )
        })
    };
    let jobs = format!(
        "model = 'tiny'\n{}",
        two("checkpoint = { every_steps = 3 }").concat()
    );
    let whole = Sandbox::with_jobs(&jobs);
    whole.run(&["train", "jobs.toml"]).ended_with(0);
    let sandbox = Sandbox::with_jobs(&jobs);
    let blocker = "adapters/one/checkpoints/.step-00000003.partial";
    sandbox.write(blocker, "in the way");
    let ran = sandbox.run(&["train", "jobs.toml", "--json"]).ended_with(1);
    let lines = ran.lines();
    let summary = lines
        .iter()
        .find(|line| line["event"] == "summary")
        .unwrap();
    assert_eq!(summary["exit_code"], 1);
    assert!(
        summary["tokens_per_second"].as_f64() > Some(0.0),
        "{summary}"
    );
    let failure = lines.last().unwrap();
    assert_eq!(failure["event"], "error", "{failure}");
    assert!(
        failure["message"].as_str().unwrap().contains("job one"),
        "{failure}"
    );
    assert!(
        failure["hints"]
            .to_string()
            .contains("another job is saved"),
        "{failure}"
    );
    assert_eq!(sandbox.names("adapters/two/checkpoints"), ["step-00000003"]);
    fs::remove_file(sandbox.path(blocker)).unwrap();
    let told = sandbox.run(&["train", "jobs.toml", "--json"]).ended_with(0);
    let jobs = &told.lines()[0]["jobs"];
    assert_eq!((&jobs[0]["step"], &jobs[1]["step"]), (&0.into(), &3.into()));
    for name in ["one", "two"] {
        for file in ["metrics.jsonl", "adapter/adapter_model.safetensors"] {
            let file = format!("adapters/{name}/{file}");
            let found = fs::read(sandbox.path(&file)).unwrap();
            assert!(found == fs::read(whole.path(&file)).unwrap(), "{file}");
        }
    }
}

#[test]
fn commands_that_are_told_can_be_given() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    fs::create_dir(sandbox.path("a b")).unwrap();
    fs::rename(sandbox.path("tiny"), sandbox.path("a b/tiny")).unwrap();
    sandbox.write("a b/pairs.jsonl", crate::sandbox::PAIRS);
    sandbox.write("a b/jobs.toml", job(""));
    sandbox
        .run(&["train", "a b/jobs.toml"])
        .ended_with(0)
        .said(&["spotmux generate --model 'a b/tiny' --adapter 'a b/adapters/one/adapter'"]);
    let bad = "{\"prompt\": \"abcdefgh\", \"completion\": \"x\"}\n".repeat(20);
    sandbox.write("a b/bad.jsonl", bad);
    let data = "data = { train = 'bad.jsonl', max_length = 4, overlong = 'error', train_on_inputs = true }";
    let jobs = job("").replace("data = { train = 'pairs.jsonl' }", data);
    sandbox.write("a b/jobs.toml", jobs.replace("'one'", "'bad'"));
    let command = "spotmux data check 'a b/bad.jsonl' --model 'a b/tiny' --max-length 4 --overlong error --train-on-inputs";
    sandbox
        .run(&["train", "a b/jobs.toml"])
        .ended_with(3)
        .said(&["and 10 more; all of them: ", command]);
    sandbox.write(
        "a b/single.jsonl",
        "{\"prompt\": \"a\", \"completion\": \"xyz\"}\n",
    );
    let jobs = job("data = { train = 'single.jsonl', eval_split = 0.2 }\neval = { patience = 1 }");
    let jobs = jobs.replace("data = { train = 'pairs.jsonl' }\n", "");
    sandbox.write("a b/jobs.toml", jobs.replace("'one'", "'few'"));
    sandbox
        .run(&["train", "a b/jobs.toml"])
        .ended_with(3)
        .said(&["data.eval_split holds out none where 1 is all there is"]);
}
