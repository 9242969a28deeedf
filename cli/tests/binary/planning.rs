//! Asking the planner: profiles, plans, quotes, fleets.

use crate::sandbox::Sandbox;

const JOBS: &str = "model = 'tiny'\n\
    [[job]]\nname = 'short'\nadapter = { method = 'lora', rank = 4 }\ndata = { train = 'pairs.jsonl' }\n\
    [[job]]\nname = 'long'\nadapter = { method = 'ia3' }\ndata = { train = 'pairs.jsonl' }\ntrain = { steps = 50 }\n";

/// Llama 3 70B, as its `config.json` says.
const LLAMA_70B: &str = r#"{"model_type":"llama","num_hidden_layers":80,"hidden_size":8192,
    "num_attention_heads":64,"num_key_value_heads":8,"vocab_size":128256,"intermediate_size":28672,
    "max_position_embeddings":8192,"rms_norm_eps":1e-5,"rope_theta":500000.0}"#;

#[test]
fn a_plan_and_a_quote_of_a_file_on_this_machine() {
    let sandbox = Sandbox::with_jobs(JOBS);
    let plan = sandbox
        .run(&["plan", "jobs.toml", "--explain"])
        .ended_with(0);
    for part in [
        "short",
        "long",
        "replica 0: here[0..",
        "without fuse",
        "not measured",
    ] {
        assert!(plan.out.contains(part), "{part:?} is not in:\n{}", plan.out);
    }
    let told = sandbox
        .run(&["plan", "jobs.toml", "--json"])
        .ended_with(0)
        .last();
    assert_eq!(told["jobs"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        told["replicas"][0]["jobs"].as_array().map(Vec::len),
        Some(2)
    );
    let quote = sandbox
        .run(&["quote", "jobs.toml", "--deadline", "1000", "--json"])
        .ended_with(0)
        .last();
    let first = &quote["jobs"][0];
    assert_eq!(first["name"], "short");
    assert_eq!(first["quote"]["chance_permille"], 1000);
}

#[test]
fn a_backbone_too_large_for_this_machine_is_planned_from_its_sizes_alone() {
    let sandbox = Sandbox::new();
    sandbox.write("llama/config.json", LLAMA_70B);
    let ask = |more: &[&str]| {
        let mut words = vec!["plan", "--model", "llama", "--explain"];
        words.extend(more);
        sandbox.run(&words)
    };
    let cards = ask(&["--weights", "q4", "--nodes", "8xrtx4090"]).ended_with(0);
    assert!(
        cards.out.contains("80 blocks as q4") && cards.out.contains("note: no file of jobs"),
        "{}",
        cards.out
    );
    let large = ask(&["--weights", "bf16", "--nodes", "8xh100"]).ended_with(0);
    assert!(large.out.contains("computes longest"), "{}", large.out);
    ask(&["--weights", "bf16", "--nodes", "2xrtx4090"])
        .ended_with(5)
        .said(&["add nodes or memory"]);
}

#[test]
fn a_job_that_never_fits_is_refused_and_one_without_nodes_queues() {
    let sandbox = Sandbox::with_jobs(JOBS);
    sandbox.write("none.toml", "");
    let queued = sandbox
        .run(&["plan", "jobs.toml", "--nodes", "none.toml"])
        .ended_with(0);
    assert!(
        queued.out.contains("short queues: no node"),
        "{}",
        queued.out
    );
    sandbox.write("llama/config.json", LLAMA_70B);
    let huge = JOBS
        .replace("rank = 4", "rank = 8000")
        .replace("'tiny'", "'llama'");
    sandbox.write("huge.toml", huge);
    let refused = sandbox
        .run(&[
            "plan",
            "huge.toml",
            "--nodes",
            "2xh100",
            "--weights",
            "q4",
            "--stages",
            "2",
        ])
        .ended_with(5);
    assert!(
        refused.out.contains("can never train here") && refused.out.contains("rank up to"),
        "{}",
        refused.out
    );
}

#[test]
fn foreign_profiles_and_unknown_devices_are_refused() {
    let sandbox = Sandbox::with_jobs(JOBS);
    sandbox.write("p.json", r#"{"format":"other","version":1}"#);
    sandbox
        .run(&["plan", "jobs.toml", "--profile", "p.json"])
        .ended_with(3)
        .said(&["another file", "spotmux profile"]);
    sandbox
        .run(&["plan", "jobs.toml", "--nodes", "2xvoodoo"])
        .ended_with(3)
        .said(&["no known device"]);
    sandbox.run(&["plan"]).ended_with(2);
}

#[test]
fn a_profile_is_measured_written_and_planned_with() {
    let sandbox = Sandbox::with_jobs(&JOBS.replace("'tiny'", "'deep'"));
    sandbox
        .run(&["profile", "--model", "tiny", "--quick"])
        .ended_with(3)
        .said(&["3 are needed"]);
    sandbox
        .run(&["model", "tiny", "deep", "--layers", "3", "--hidden", "64"])
        .ended_with(0);
    sandbox
        .run(&[
            "profile",
            "--model",
            "deep",
            "--quick",
            "--threads",
            "1",
            "-o",
            "p.json",
        ])
        .ended_with(0);
    assert!(sandbox.read("p.json").contains("\"origin\": \"measured\""));
    let told = sandbox
        .run(&["plan", "jobs.toml", "--profile", "p.json", "--json"])
        .ended_with(0)
        .last();
    let grounds = told["why"]["grounds"].to_string();
    assert!(grounds.contains("was measured"), "{grounds}");
}

#[test]
fn a_fleet_is_simulated_and_drawn() {
    let sandbox = Sandbox::new();
    let words = [
        "simulate",
        "--gpus",
        "4",
        "--hours",
        "12",
        "--jobs-per-hour",
        "6",
        "--svg",
        "week.svg",
    ];
    let ran = sandbox.run(&words).ended_with(0);
    assert!(
        ran.out.contains("one instance a job") && ran.out.contains("1.61"),
        "{}",
        ran.out
    );
    assert!(sandbox.read("week.svg").starts_with("<svg"));
    sandbox
        .run(&["simulate", "--gpus", "4", "--trace", "."])
        .ended_with(3)
        .said(&["is no trace"]);
}

#[test]
fn absurd_numbers_are_refused_with_their_key_and_bound() {
    let sandbox = Sandbox::with_jobs(JOBS);
    for (line, key) in [
        ("threads = 99999999999", "threads = 99999999999"),
        ("memory_gib = 1e300", "memory_gib"),
        ("memory_gib = -1", "memory_gib = -1"),
        ("count = 9223372036854775807", "count"),
        ("price_usd_hour = 1e300", "price_usd_hour"),
        (
            "losses_per_1000_hours = 9223372036854775807",
            "losses_per_1000_hours",
        ),
    ] {
        let node = format!("[[node]]\nname = 'a'\ndevice = 'cpu'\n{line}\n");
        sandbox.write("nodes.toml", node);
        sandbox
            .run(&["plan", "jobs.toml", "--nodes", "nodes.toml"])
            .ended_with(3)
            .said(&["node a", key]);
    }
    for words in [
        ["--stages", "0"],
        ["--replicas", "100000"],
        ["--max-added-latency", "4294967295"],
    ] {
        let mut ask = vec!["plan", "jobs.toml"];
        ask.extend(words);
        sandbox.run(&ask).ended_with(2).said(&[words[1]]);
    }
    sandbox
        .run(&["plan", "jobs.toml", "--replicas", "7"])
        .ended_with(3)
        .said(&["ask for 1 to 1"]);
    sandbox
        .run(&["quote", "jobs.toml", "--deadline", "1e300"])
        .ended_with(2)
        .said(&["876000"]);
    let large = LLAMA_70B.replace(
        "\"num_hidden_layers\":80",
        "\"num_hidden_layers\":1000000000",
    );
    sandbox.write("large/config.json", large);
    sandbox
        .run(&["plan", "--model", "large", "--nodes", "8xh100"])
        .ended_with(3)
        .said(&["num_hidden_layers"]);
}

#[test]
fn fleets_that_are_too_much_are_refused_at_once() {
    let sandbox = Sandbox::new();
    for (words, said) in [
        (
            &["--gpus", "4", "--jobs-per-hour", "1e300"][..],
            "--jobs-per-hour",
        ),
        (
            &["--gpus", "4", "--losses", "18446744073709551615"],
            "--losses",
        ),
        (&["--gpus", "65536", "--hours", "8760"], "--gpus"),
        (&["--gpus", "2", "--width", "3"], "lower --width"),
        (&["--gpus", "4", "--price", "1e300"], "1000000"),
        (&["--gpus", "4", "--device", "cpu"], "simulate --profile"),
    ] {
        let mut ask = vec!["simulate"];
        ask.extend(words);
        let ran = sandbox.run(&ask).ended_with(2);
        assert!(!ran.err.contains("did you mean cpu"), "{}", ran.err);
        ran.said(&[said]);
    }
}

#[test]
fn answers_say_what_they_rest_on() {
    let sandbox = Sandbox::with_jobs(JOBS);
    let plan = sandbox.run(&["plan", "jobs.toml"]).ended_with(0);
    assert!(
        plan.out.contains("note: the profile of cpu") && plan.out.contains("not measured"),
        "{}",
        plan.out
    );
    let quote = sandbox.run(&["quote", "jobs.toml"]).ended_with(0);
    assert!(
        quote.out.contains("no price") && !quote.out.contains("$0"),
        "{}",
        quote.out
    );
    let known = sandbox
        .run(&[
            "plan",
            "--model",
            "llama-3-70b",
            "--weights",
            "q4",
            "--nodes",
            "8xrtx4090",
        ])
        .ended_with(0);
    assert!(known.out.contains("80 blocks as q4"), "{}", known.out);
    sandbox
        .run(&["plan", "--model", "llama-3-70", "--nodes", "8xh100"])
        .ended_with(4)
        .said(&["llama-3-70b"]);
}

#[test]
fn each_level_is_predicted_and_measured() {
    let sandbox = Sandbox::new();
    let words = [
        "bench", "plan", "--model", "tiny", "--steps", "1", "--quick", "--json",
    ];
    let told = sandbox.run(&words).ended_with(0).last();
    let found = told["found"].as_array().expect("one for each level");
    let off: Vec<&str> = found.iter().filter_map(|one| one["off"].as_str()).collect();
    assert_eq!(off, ["nothing", "fuse", "order", "align", "all"]);
    for one in found {
        assert!(one["measured_ms"].as_f64() > Some(0.0), "{one}");
        assert!(one["predicted_ms"].as_f64() > Some(0.0), "{one}");
        let padded = one["off"] == "align" || one["off"] == "all";
        assert!(padded || one["pads"] == 0, "{one}");
    }
    // Nothing shares a pass without fuse; with it no step is predicted to be longer.
    assert_eq!(found[1]["hybrid_tasks"], 8);
    assert!(
        found
            .iter()
            .all(|one| one["predicted_ms"].as_f64() >= found[0]["predicted_ms"].as_f64())
    );
}
