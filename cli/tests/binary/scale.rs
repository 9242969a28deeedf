//! A LoRA scale as its file records it is the one that `generate` writes with.
//!
//! Public bugs: sgl-project/sglang #40835, vllm-project/vllm #10798 and #55545, NVIDIA/TensorRT-LLM #1668,
//! huggingface/peft #2733 (readers that ignore `use_rslora`).

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{PAIRS, Sandbox, one_job};

const CONFIG: &str = "adapters/one/adapter/adapter_config.json";

/// What the model answers with a configuration changed to this alpha and convention.
fn answer(sandbox: &Sandbox, alpha: f64, rslora: bool) -> String {
    let mut config: Value = serde_json::from_str(&sandbox.read(CONFIG)).unwrap();
    config["lora_alpha"] = json!(alpha);
    config["use_rslora"] = json!(rslora);
    sandbox.write(CONFIG, config.to_string());
    // It is changed on purpose: the record beside it is of the file before.
    let _ = fs::remove_file(sandbox.path("adapters/one/adapter/spotmux.json"));
    let arguments = [
        "generate",
        "--raw",
        "--max-tokens",
        "8",
        "--json",
        "--model",
        "tiny",
        "--adapter",
        "adapters/one",
        "a",
    ];
    let told = sandbox.run(&arguments).ended_with(0).last();
    told["text"].as_str().unwrap().to_owned()
}

#[test]
fn both_conventions_of_the_scale_are_recorded_and_sampled_with() {
    for rslora in [false, true] {
        let sandbox = Sandbox::new();
        sandbox.tiny_model();
        sandbox.write("pairs.jsonl", PAIRS);
        let rest = format!(
            "adapter = {{ method = 'lora', rank = 16, alpha = 32, rslora = {rslora} }}\n\
             train = {{ steps = 120, batch_size = 2 }}\noptimizer = {{ learning_rate = 5e-3 }}"
        );
        sandbox.write("jobs.toml", one_job(&rest));
        sandbox.run(&["train", "jobs.toml"]).ended_with(0);
        let config: Value = serde_json::from_str(&sandbox.read(CONFIG)).unwrap();
        let recorded = (&config["use_rslora"], &config["lora_alpha"], &config["r"]);
        assert_eq!(recorded, (&json!(rslora), &json!(32), &json!(16)));
        assert_eq!(answer(&sandbox, 32.0, rslora), "xyz");
        // alpha / sqrt(16) is four times alpha / 16.
        assert_eq!(
            answer(&sandbox, if rslora { 128.0 } else { 8.0 }, !rslora),
            "xyz"
        );
        assert_ne!(
            answer(&sandbox, 0.01, rslora),
            "xyz",
            "the scale does not matter"
        );
    }
}
