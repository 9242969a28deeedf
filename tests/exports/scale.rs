//! The convention of a LoRA scale, alpha / r or alpha / sqrt(r), is recorded and is the one that samples.
//!
//! Public bugs: sgl-project/sglang #40835, vllm-project/vllm #10798 and #55545, NVIDIA/TensorRT-LLM #1668,
//! huggingface/peft #2733 (readers that ignore `use_rslora`).

use std::fs;
use std::path::Path;

use gpu_actor::peft::files;
use gpu_actor::stage::step::Stage;
use serde_json::{Value, json};
use shared::job::{AdapterSpec, LoraSpec, Targets};
use system_tests::engine::steps;
use system_tests::oracle::matrix::Matrix;

use crate::{attach, cpu, ids, tiny, trained, write};

const RANK: usize = 4;

/// Logits of the adapter in a folder, as its files say.
fn logits(folder: &Path) -> Matrix {
    let model = tiny();
    let imported = files::read(folder, &model.shape).unwrap();
    let ids = ids(model.shape.vocab);
    let mut stage = Stage::new(model, cpu());
    let trainee = attach(&mut stage, &imported.spec, imported.layout, imported.values);
    steps::logits(&mut stage, Some(&trainee), &ids)
}

fn with(folder: &Path, alpha: f64, rslora: bool) -> Matrix {
    let path = folder.join(files::CONFIG);
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["lora_alpha"] = json!(alpha);
    config["use_rslora"] = json!(rslora);
    fs::write(&path, config.to_string()).unwrap();
    logits(folder)
}

#[test]
fn the_scale_is_recorded_with_its_convention_and_both_are_honoured() {
    for rslora in [false, true] {
        let model = tiny();
        let spec = AdapterSpec::Lora(LoraSpec {
            rank: RANK,
            alpha: Some(6.0),
            dropout: 0.0,
            targets: Targets::Group("all-linear".into()),
            rslora,
            dora: false,
            lr_ratio: 1.0,
        });
        let mut stage = Stage::new(model.clone(), cpu());
        let (trainee, layout) = trained(&mut stage, &spec);
        let values = trainee.values(&stage).to_vec();
        let in_training = steps::logits(&mut stage, Some(&trainee), &ids(model.shape.vocab));
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("adapter");
        write(&folder, &spec, &layout, &values, &model);
        let text = fs::read_to_string(folder.join(files::CONFIG)).unwrap();
        let config: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&config["use_rslora"], &config["lora_alpha"], &config["r"]),
            (&json!(rslora), &json!(6), &json!(RANK))
        );
        assert!(logits(&folder) == in_training, "read as written");
        // alpha / sqrt(4) is twice alpha / 4: the other convention, with alpha made to fit, is the same adapter.
        let fitting = if rslora { 12.0 } else { 3.0 };
        assert!(
            with(&folder, fitting, !rslora) == in_training,
            "the other convention"
        );
        assert!(
            with(&folder, 6.0, !rslora) != in_training,
            "the convention is ignored"
        );
    }
}
