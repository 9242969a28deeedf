//! Training, and everything that can be done with what it leaves.

use serde_json::Value;

use crate::sandbox::{PAIRS, Sandbox, one_job};

const JOBS: &str = "model = 'tiny'
[[job]]
name = 'plain'
adapter = { method = 'lora', rank = 4 }
data = { train = 'pairs.jsonl', eval = 'pairs.jsonl' }
train = { steps = 60, batch_size = 2 }
optimizer = { learning_rate = 2e-2 }
eval = { every_steps = 30 }
[[job]]
name = 'scaled'
adapter = { method = 'ia3' }
data = { train = 'pairs.jsonl' }
train = { steps = 5, batch_size = 1 }
optimizer = { learning_rate = 1e-2 }
";

fn trained() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    sandbox.write("pairs.jsonl", PAIRS);
    sandbox.write("jobs.toml", JOBS);
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    sandbox
}

fn answer(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let mut all = vec!["generate", "--raw", "--max-tokens", "8", "--json", "a"];
    all.extend(arguments);
    sandbox.run(&all).ended_with(0).last()["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_trained_job_answers_as_trained_also_merged_and_imported() {
    let sandbox = trained();
    assert_ne!(answer(&sandbox, &["--model", "tiny"]), "xyz");
    assert_eq!(
        answer(
            &sandbox,
            &["--model", "tiny", "--adapter", "adapters/plain"]
        ),
        "xyz"
    );
    sandbox
        .run(&[
            "adapter",
            "merge",
            "adapters/plain",
            "--model",
            "tiny",
            "--output",
            "merged",
        ])
        .ended_with(0);
    assert_eq!(answer(&sandbox, &["--model", "merged"]), "xyz");
    sandbox
        .run(&[
            "adapter",
            "import",
            "adapters/plain",
            "--model",
            "tiny",
            "--output",
            "taken",
        ])
        .ended_with(0);
    assert_eq!(
        answer(&sandbox, &["--model", "tiny", "--adapter", "taken"]),
        "xyz"
    );
    let again = [
        "adapter",
        "merge",
        "adapters/plain",
        "--model",
        "tiny",
        "--output",
        "merged",
    ];
    sandbox
        .run(&again)
        .ended_with(3)
        .said(&["merged is there already"]);
    let told = sandbox
        .run(&[
            "adapter",
            "inspect",
            "adapters/plain",
            "--model",
            "tiny",
            "--json",
        ])
        .ended_with(0)
        .last();
    assert_eq!(told["method"], "LoRA r=4");
    assert_eq!(told["tensors"].as_array().unwrap().len(), 2 * 7 * 2);
}

#[test]
fn a_job_leaves_metrics_checkpoints_and_an_adapter() {
    let sandbox = trained();
    assert_eq!(
        sandbox.names("adapters/plain"),
        ["adapter", "checkpoints", "metrics.jsonl"]
    );
    let files = [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "spotmux.json",
    ];
    assert_eq!(sandbox.names("adapters/plain/adapter"), files);
    let metrics = sandbox.read("adapters/plain/metrics.jsonl");
    let lines: Vec<Value> = metrics
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let count = |kind: &str| lines.iter().filter(|line| line["event"] == kind).count();
    assert_eq!(
        (count("step"), count("evaluation"), count("finished")),
        (60, 3, 1)
    );
    let loss = |line: &Value| line["loss"].as_f64().unwrap();
    let steps: Vec<&Value> = lines
        .iter()
        .filter(|line| line["event"] == "step")
        .collect();
    assert!(loss(steps[59]) < 0.2 * loss(steps[0]));
    let config: Value =
        serde_json::from_str(&sandbox.read("adapters/plain/adapter/adapter_config.json")).unwrap();
    assert!(
        config["base_model_name_or_path"]
            .as_str()
            .unwrap()
            .starts_with("sha256:"),
        "{config}"
    );
}

#[test]
fn given_again_it_is_done_and_changed_it_is_refused() {
    let sandbox = trained();
    let before = sandbox.read("adapters/plain/metrics.jsonl");
    let told = sandbox
        .run(&["train", "jobs.toml", "--json"])
        .ended_with(0)
        .last();
    assert_eq!(told["jobs"][0]["state"], "finished");
    assert_eq!(told["jobs"][0]["step"], 60);
    assert_eq!(sandbox.read("adapters/plain/metrics.jsonl"), before);
    sandbox.write("jobs.toml", JOBS.replace("2e-2", "3e-2"));
    sandbox.run(&["train", "jobs.toml"]).ended_with(3).said(&[
        "job plain",
        "optimizer.learning_rate",
        "another output folder",
    ]);
    sandbox.write("jobs.toml", JOBS);
    sandbox.write("pairs.jsonl", PAIRS.replace("xyz", "xyy"));
    sandbox
        .run(&["train", "jobs.toml"])
        .ended_with(3)
        .said(&["the data"]);
}

#[test]
fn a_look_trains_nothing() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    sandbox.write("pairs.jsonl", PAIRS);
    sandbox.write("jobs.toml", JOBS);
    let told = sandbox
        .run(&["train", "jobs.toml", "--check", "--json"])
        .ended_with(0)
        .last();
    assert_eq!(told["event"], "plan");
    assert_eq!(told["jobs"][0]["total"], 60);
    // What is compared with what there is: all parts, the samples, and the program.
    let parts = told["memory"].as_object().unwrap().values();
    let parts: u64 = parts.map(|bytes| bytes.as_u64().unwrap()).sum();
    let rows = told["token_rows"].as_u64().unwrap();
    assert!(rows > 0);
    assert_eq!(told["memory_total"], parts + rows + (64 << 20));
    assert!(sandbox.names("adapters").is_empty());
}

#[test]
fn a_job_goes_on_from_an_adapter() {
    let sandbox = trained();
    let rest = "adapter = { method = 'lora', rank = 4 }\ninit_from = 'adapters/plain/adapter'\ntrain = { steps = 1 }";
    sandbox.write("more.toml", one_job(rest));
    let lines = sandbox
        .run(&["train", "more.toml", "--output", "more", "--json"])
        .ended_with(0)
        .lines();
    let step = lines.iter().find(|line| line["event"] == "step").unwrap();
    assert!(step["loss"].as_f64().unwrap() < 1.0, "{step}");
    sandbox.write("more.toml", one_job(&rest.replace("rank = 4", "rank = 3")));
    sandbox
        .run(&["train", "more.toml", "--output", "other"])
        .ended_with(3)
        .said(&["init_from"]);
}

/// Its folder has the layout of another library: every command that takes an adapter reads it.
#[test]
fn a_bottleneck_is_inspected_imported_sampled_and_gone_on_from() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    sandbox.write("pairs.jsonl", PAIRS);
    let method = "adapter = { method = 'bottleneck', size = 5, placement = 'houlsby' }\n";
    let rest = "train = { steps = 80, batch_size = 2 }\noptimizer = { learning_rate = 2e-2 }";
    sandbox.write("jobs.toml", one_job(&format!("{method}{rest}")));
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    let files = [
        "README.md",
        "adapter.safetensors",
        "adapter_config.json",
        "spotmux.json",
    ];
    assert_eq!(sandbox.names("adapters/one/adapter"), files);
    let model = ["--model", "tiny"];
    let inspect = ["adapter", "inspect", "adapters/one", "--json"];
    let told = sandbox.run(&[&inspect[..], &model].concat()).ended_with(0);
    let told = told.last();
    assert_eq!(told["method"], "Houlsby 5");
    let first = told["tensors"][0]["name"].as_str().unwrap();
    let wanted = "model.layers.0.attention_adapters.adapters.spotmux-one.adapter_down.0.bias";
    assert_eq!(first, wanted);
    let import = ["adapter", "import", "adapters/one", "--output", "taken"];
    sandbox.run(&[&import[..], &model].concat()).ended_with(0);
    let trained = answer(&sandbox, &["--model", "tiny", "--adapter", "adapters/one"]);
    assert_eq!(trained, "xyz");
    let taken = answer(&sandbox, &["--model", "tiny", "--adapter", "taken"]);
    assert_eq!(taken, trained);
    let merge = ["adapter", "merge", "taken", "--output", "merged"];
    sandbox
        .run(&[&merge[..], &model].concat())
        .ended_with(3)
        .said(&["a bottleneck adapter adds layers"]);
    let rest = "init_from = 'taken'\ntrain = { steps = 1 }";
    sandbox.write("more.toml", one_job(&format!("{method}{rest}")));
    let more = ["train", "more.toml", "--output", "more", "--json"];
    let lines = sandbox.run(&more).ended_with(0).lines();
    let step = lines.iter().find(|line| line["event"] == "step").unwrap();
    assert!(step["loss"].as_f64().unwrap() < 1.0, "{step}");
}

#[test]
fn a_job_whose_numbers_explode_is_set_aside_and_the_other_goes_on() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    sandbox.write("pairs.jsonl", PAIRS);
    let jobs = JOBS
        .replace("learning_rate = 1e-2", "learning_rate = 1e37")
        .replace("steps = 5", "steps = 50");
    sandbox.write("jobs.toml", jobs);
    let ran = sandbox.run(&["train", "jobs.toml", "--json"]).ended_with(6);
    let told = ran.last();
    assert_eq!(told["jobs"][0]["state"], "finished");
    assert_eq!(told["jobs"][1]["state"], "quarantined");
    assert!(
        told["jobs"][1]["reason"]
            .as_str()
            .unwrap()
            .contains("not finite")
    );
    assert!(!sandbox.path("adapters/scaled/adapter").exists());
}

#[test]
fn a_bench_of_a_tiny_model_reports_every_figure() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    let lines = sandbox
        .run(&[
            "bench", "train", "--model", "tiny", "--jobs", "1,2", "--json",
        ])
        .ended_with(0)
        .lines();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1]["tokens"], 761);
    assert_eq!(lines[2]["tokens"], 2 * 761);
    for name in [
        "tokens_per_second",
        "cpu_ms_per_token",
        "peak_pss_bytes",
        "admission_of_one_more_job_seconds",
        "start_of_one_more_job_seconds",
        "step_over_own_products",
        "step_over_gemm",
        "step_over_best_products",
    ] {
        assert!(
            lines[2][name].as_f64().is_some(),
            "{name} is missing: {}",
            lines[2]
        );
    }
    let operators = lines[2]["operators"].as_array().unwrap();
    let shares = operators.iter().map(|one| one["share"].as_f64().unwrap());
    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-6, "{operators:?}");
    assert_eq!(operators[0]["operator"], "frozen_products");
    assert!(operators[0]["share"].as_f64().unwrap() > 0.0);
}

#[test]
fn layers_that_recompute_are_layers_of_the_model_and_change_no_byte() {
    let sandbox = Sandbox::with_jobs(&one_job(
        "adapter = { method = 'lora', rank = 2, dropout = 0.1 }",
    ));
    for (output, layers) in [("kept", "none"), ("first", "1"), ("again", "all")] {
        let words = ["train", "jobs.toml", "--recompute", layers, "-o", output];
        sandbox.run(&words).ended_with(0);
    }
    let bytes = |output: &str| {
        let file = format!("{output}/one/adapter/adapter_model.safetensors");
        std::fs::read(sandbox.path(&file)).unwrap()
    };
    assert!(bytes("kept") == bytes("first") && bytes("kept") == bytes("again"));
    let wrong = ["train", "jobs.toml", "-o", "wrong", "--recompute", "4000"];
    sandbox.run(&wrong).ended_with(3).said(&[
        "--recompute: 4000 layers recompute, and the model has",
        "use at most",
    ]);
    assert!(!sandbox.path("wrong").exists());
    sandbox
        .run(&["train", "jobs.toml", "--recompute", "some"])
        .ended_with(2);
}
