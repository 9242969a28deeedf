//! A merged model computes what the adapter computes, says how far rounding moved it, and is not rounded so far, unasked, that
//! what was learned is lost.
//!
//! Public bugs: huggingface/peft #1043, #2321 and #2586, ARahim3/mlx-tune #15 (merging into 4-bit weights changes or
//! erases what was learned).

use std::path::Path;
use std::sync::Arc;

use gpu_actor::batch::Batch;
use gpu_actor::model::tiny::{TinySpec, write_tiny_gguf};
use gpu_actor::model::{Model, OpenOptions};
use gpu_actor::peft::files;
use gpu_actor::sample::generator::BARE;
use gpu_actor::stage::adapter::Adapter;
use gpu_actor::stage::step::Stage;
use kernels::cpu::Cpu;
use kernels::weight::Format;
use shared::model::Family;

use crate::sandbox::{PAIRS, Sandbox, one_job};

/// Methods that are a change of weights.
const MERGEABLE: [(&str, &str); 6] = [
    (
        "lora",
        "{ method = 'lora', rank = 3, targets = ['q_proj', 'v_proj', 'up_proj', 'down_proj', 'lm_head'] }",
    ),
    (
        "rslora",
        "{ method = 'lora', rank = 9, alpha = 9, rslora = true }",
    ),
    ("dora", "{ method = 'lora', rank = 3, dora = true }"),
    ("ia3", "{ method = 'ia3' }"),
    ("bitfit", "{ method = 'bitfit' }"),
    ("diff", "{ method = 'diff', density = 0.1 }"),
];
/// Methods that are not.
const APART: [(&str, &str); 3] = [
    ("prefix", "{ method = 'prefix', tokens = 2 }"),
    ("prompt", "{ method = 'prompt', tokens = 2 }"),
    (
        "bottleneck",
        "{ method = 'bottleneck', size = 2, placement = 'pfeiffer' }",
    ),
];

/// Every method trained on a model.
fn trained(sandbox: &Sandbox, model: &str) {
    sandbox.write("pairs.jsonl", PAIRS);
    let job = |(name, adapter): &(&str, &str)| {
        format!(
            "[[job]]\nname = '{name}'\nadapter = {adapter}\ndata = {{ train = 'pairs.jsonl' }}\n\
             train = {{ steps = 12, batch_size = 2 }}\noptimizer = {{ learning_rate = 2e-2 }}\n"
        )
    };
    let jobs: String = MERGEABLE.iter().chain(&APART).map(job).collect();
    sandbox.write("jobs.toml", format!("model = '{model}'\n{jobs}"));
    sandbox.run(&["train", "jobs.toml"]).ended_with(0);
}

/// Logits of every token of a text, with an adapter or without.
fn logits(model: &Path, adapter: Option<&Path>) -> Vec<f32> {
    let cpu = Cpu::new(1).unwrap();
    let model = Arc::new(Model::open(model, &OpenOptions::new(cpu.clone())).unwrap());
    let mut stage = Stage::new(Arc::clone(&model), cpu);
    let slot = match adapter {
        Some(folder) => {
            let read = files::read(folder, &model.shape).unwrap();
            stage.attach(Adapter::new(Arc::new(read.layout), read.values, 0))
        }
        None => BARE,
    };
    let text: Vec<u32> = b"a: xyz, b".iter().map(|&byte| u32::from(byte)).collect();
    let mut batch = Batch::default();
    batch.push_continuation(slot, &text, 0, 0);
    let rows: Vec<usize> = (0..text.len()).collect();
    stage.logits(&batch, &rows, None)
}

/// Root of the mean square of the differences.
fn apart(left: &[f32], right: &[f32]) -> f64 {
    assert_eq!(left.len(), right.len());
    let squares = left
        .iter()
        .zip(right)
        .map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / left.len() as f64).sqrt()
}

/// Merges each method into a model and holds it against the adapter beside it.
fn merged_is_near(sandbox: &Sandbox, model: &str, quantised: bool) {
    let base = sandbox.path(model);
    let bare = logits(&base, None);
    for (name, _) in MERGEABLE {
        let adapter = format!("adapters/{name}");
        for (format, tolerance) in [("bf16", 0.05), ("f16", 0.01), ("f32", 1e-4)] {
            let to = format!("merged-{name}-{format}");
            let arguments = [
                "adapter", "merge", &adapter, "--model", model, "--output", &to, "--format",
                format, "--json",
            ];
            let told = sandbox.run(&arguments).ended_with(0).last();
            assert_eq!(told["quantised_backbone"], quantised);
            assert_eq!(told["format"], format);
            let rounded = format != "f32";
            for ratio in ["worst_ratio", "typical_ratio"] {
                let ratio = told["rounding"][ratio].as_f64();
                assert!(
                    ratio.is_some_and(|ratio| (ratio > 0.0) == rounded),
                    "{name}: {told}"
                );
            }
            assert!(
                told["rounding"]["merged"].as_u64() > Some(0),
                "{name}: {told}"
            );
            let wanted = logits(&base, Some(&sandbox.path(&format!("{adapter}/adapter"))));
            let found = logits(&sandbox.path(&to), None);
            let (error, learned) = (apart(&found, &wanted), apart(&bare, &wanted));
            println!("{model} {name} {format}: {error:.1e} of {learned:.1e}");
            assert!(error < tolerance, "{name} in {format}: {error}");
            assert!(
                error < 0.1 * learned,
                "{name} in {format}: {error} of {learned}"
            );
        }
    }
}

#[test]
fn a_merged_model_has_the_logits_of_its_adapter() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    trained(&sandbox, "tiny");
    merged_is_near(&sandbox, "tiny", false);
}

/// The blocks are expanded and never rounded back: the report says so and measures what 16 bits cost.
#[test]
fn merging_into_a_quantised_model_is_done_in_16_bits_measured_and_told() {
    let sandbox = Sandbox::new();
    write_tiny_gguf(
        &sandbox.path("q4.gguf"),
        &TinySpec::smallest(Family::Llama),
        Format::Q4_0,
    )
    .unwrap();
    trained(&sandbox, "q4.gguf");
    merged_is_near(&sandbox, "q4.gguf", true);
    let arguments = [
        "adapter",
        "merge",
        "adapters/lora",
        "--model",
        "q4.gguf",
        "--output",
        "again",
    ];
    let said = sandbox.run(&arguments).ended_with(0).out;
    assert!(
        said.contains("never rounded back") && said.contains("% of the largest change"),
        "{said}"
    );
    assert!(said.contains("f16: it holds every value"), "{said}");
}

/// A training of one step with a small rate moves weights by less than 16 bits can show: the default is f32, and says why; bf16
/// is written where it is asked for, with a warning.
#[test]
fn a_short_training_is_not_rounded_away_unasked() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    sandbox.write("pairs.jsonl", PAIRS);
    let job = "adapter = { method = 'lora', rank = 2 }\ntrain = { steps = 1, batch_size = 1 }\n\
               optimizer = { learning_rate = 1e-5 }";
    sandbox.write("short.toml", one_job(job));
    sandbox.run(&["train", "short.toml"]).ended_with(0);
    let merge = |to: &str, more: &[&str]| {
        let words = ["adapter", "merge", "adapters/one", "-m", "tiny", "-o", to];
        sandbox.run(&[&words[..], more].concat()).ended_with(0)
    };
    let said = merge("kept", &[]).out;
    assert!(
        said.contains("f32, in twice the bytes of f16: rounding to f16 moves"),
        "{said}"
    );
    assert!(!said.contains("warning"), "{said}");
    let base = sandbox.path("tiny");
    let wanted = logits(&base, Some(&sandbox.path("adapters/one/adapter")));
    let learned = apart(&logits(&base, None), &wanted);
    assert!(learned > 0.0);
    let kept = apart(&logits(&sandbox.path("kept"), None), &wanted);
    assert!(kept < 0.1 * learned, "{kept} of {learned}");
    let said = merge("asked", &["--format", "bf16"]).out;
    assert!(
        said.contains("bf16, as asked for") && said.contains("took much of what was learned"),
        "{said}"
    );
    let lost = apart(&logits(&sandbox.path("asked"), None), &wanted);
    assert!(lost > 10.0 * kept, "{lost} against {kept}");
}

#[test]
fn what_is_no_change_of_weights_is_not_merged() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    trained(&sandbox, "tiny");
    for (name, _) in APART {
        let adapter = format!("adapters/{name}");
        let arguments = [
            "adapter", "merge", &adapter, "--model", "tiny", "--output", "merged",
        ];
        sandbox
            .run(&arguments)
            .ended_with(3)
            .said(&["serve it as an adapter"]);
        assert!(!sandbox.path("merged").exists());
    }
}

/// Shapes that fit say nothing of weights: an adapter of another backbone is told, and not merged unasked.
#[test]
fn an_adapter_of_another_model_is_told_and_merged_only_when_asked() {
    let sandbox = Sandbox::new();
    sandbox.tiny_model();
    let other = ["--layers", "2", "--hidden", "64", "--seed", "7"];
    sandbox
        .run(&[&["model", "tiny", "other"], &other[..]].concat())
        .ended_with(0);
    trained(&sandbox, "tiny");
    let words = ["the adapter was made for sha256:", "this model is sha256:"];
    for model in ["tiny", "other"] {
        let generate = ["generate", "-m", model, "-a", "adapters/lora", "q"];
        let few = ["--max-tokens", "1"];
        let inspect = ["adapter", "inspect", "adapters/lora", "--model", model];
        for command in [[&generate[..], &few].concat(), inspect.to_vec()] {
            let ended = sandbox.run(&command).ended_with(0);
            assert_eq!(ended.err.contains(words[0]), model == "other", "{model}");
            let told = sandbox.run(&[&command[..], &["--json"]].concat());
            let note = &told.ended_with(0).last()["other_base"];
            assert_eq!(note.is_string(), model == "other", "{model}: {note}");
        }
    }
    for model in ["tiny", "other"] {
        let job = "adapter = { method = 'lora', rank = 3, targets = ['q_proj', 'v_proj', 'up_proj', \
                   'down_proj', 'lm_head'] }\ntrain = { steps = 1, batch_size = 1 }";
        let job = format!("{job}\ninit_from = 'adapters/lora/adapter'");
        let jobs = one_job(&job).replace("'tiny'", &format!("'{model}'"));
        sandbox.write("next.toml", jobs);
        let check = ["train", "next.toml", "--output", "next", "--check"];
        let ended = sandbox.run(&check).ended_with(0);
        assert_eq!(ended.err.contains(words[0]), model == "other", "{model}");
        assert_eq!(ended.err.contains("job one: init_from: "), model == "other");
    }
    let merge = |model: &'static str| {
        let to = if model == "tiny" { "same" } else { "far" };
        [
            "adapter",
            "merge",
            "adapters/lora",
            "--model",
            model,
            "--output",
            to,
        ]
    };
    sandbox.run(&merge("tiny")).ended_with(0);
    sandbox.run(&merge("other")).ended_with(3).said(&words);
    assert!(!sandbox.path("far").exists());
    let asked = [&merge("other")[..], &["--other-base"]].concat();
    sandbox.run(&asked).ended_with(0).said(&words);
}
