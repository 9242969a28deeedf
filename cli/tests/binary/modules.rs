//! What a method's targets match is told before training, and a target that matches nothing is an error.
//!
//! Public bug: NVIDIA-NeMo/Megatron-Bridge PR #5155 (layers got no adapter, in silence).

use serde_json::{Value, json};

use crate::sandbox::{PAIRS, Sandbox, one_job};

/// What `train --check` tells of a method's modules.
fn matched(sandbox: &Sandbox, adapter: &str) -> Value {
    sandbox.write("jobs.toml", one_job(&format!("adapter = {adapter}")));
    let told = sandbox.run(&["train", "jobs.toml", "--check", "--json"]);
    told.ended_with(0).last()["jobs"][0]["modules"].clone()
}

#[test]
fn the_plan_counts_the_modules_that_a_method_matches() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    sandbox.write("pairs.jsonl", PAIRS);
    let lora = "{ method = 'lora', rank = 2, targets = ['q_proj', 'lm_head'] }";
    assert_eq!(matched(&sandbox, lora), json!({"q_proj": 2, "lm_head": 1}));
    let mlp = "{ method = 'diff', density = 0.1, targets = 'mlp' }";
    assert_eq!(
        matched(&sandbox, mlp),
        json!({"gate_proj": 2, "up_proj": 2, "down_proj": 2})
    );
    let bottleneck = "{ method = 'bottleneck', size = 4, placement = 'houlsby' }";
    assert_eq!(
        matched(&sandbox, bottleneck),
        json!({"self_attn": 2, "mlp": 2})
    );
    assert_eq!(
        matched(&sandbox, "{ method = 'prompt', tokens = 4 }"),
        json!({})
    );
    let said = sandbox
        .run(&["train", "jobs.toml", "--check"])
        .ended_with(0)
        .out;
    assert!(said.contains("modules"), "{said}");
}

#[test]
fn a_target_that_matches_nothing_is_refused_with_the_valid_ones() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    sandbox.write("pairs.jsonl", PAIRS);
    let valid = [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
        "lm_head",
    ];
    for (targets, found) in [
        ("['experts']", "experts"),
        ("['q_proj', 'Q_PROJ']", "Q_PROJ"),
        ("'experts'", "experts"),
    ] {
        let adapter = format!("adapter = {{ method = 'lora', rank = 2, targets = {targets} }}");
        sandbox.write("jobs.toml", one_job(&adapter));
        sandbox
            .run(&["train", "jobs.toml"])
            .ended_with(3)
            .said(&valid)
            .said(&[found]);
    }
    sandbox.write(
        "jobs.toml",
        one_job("adapter = { method = 'lora', rank = 2, targets = [] }"),
    );
    sandbox
        .run(&["train", "jobs.toml"])
        .ended_with(3)
        .said(&["targets is empty"])
        .said(&valid);
    // An adapter made elsewhere for layers that are not here.
    sandbox.write(
        "jobs.toml",
        one_job("adapter = { method = 'lora', rank = 2 }\ntrain = { steps = 1 }"),
    );
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
    let config = "adapters/one/adapter/adapter_config.json";
    let text = sandbox.read(config).replace("\"q_proj\"", "\"experts\"");
    sandbox.write(config, text);
    let import = [
        "adapter",
        "import",
        "adapters/one",
        "--model",
        "tiny",
        "--check",
    ];
    sandbox
        .run(&import)
        .ended_with(3)
        .said(&["target_modules"])
        .said(&valid);
    assert_eq!(sandbox.names("adapters"), ["one"]);
}
