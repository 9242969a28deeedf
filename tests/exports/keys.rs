//! The names and shapes in an adapter file are those of the library, written down here once more by hand.
//!
//! Public bugs: huggingface/peft #2772 and #2699, hiyouga/LlamaFactory #10294 (keys renamed on the way), and the DoRA
//! export of TUDB-Labs/mLoRA (A and B without the magnitude, a configuration that does not tell).

use std::collections::BTreeMap;
use std::path::Path;

use gpu_actor::peft::files;
use gpu_actor::peft::init;
use gpu_actor::peft::layout::Layout;
use serde_json::Value;
use shared::job::AdapterSpec;
use system_tests::methods;

use crate::{SEED, cpu, tiny, write};

/// `(module, name, out, in)` of the projections of the tiny model.
const PROJECTIONS: [(&str, &str, usize, usize); 7] = [
    ("self_attn", "q_proj", 64, 64),
    ("self_attn", "k_proj", 32, 64),
    ("self_attn", "v_proj", 32, 64),
    ("self_attn", "o_proj", 64, 64),
    ("mlp", "gate_proj", 96, 64),
    ("mlp", "up_proj", 96, 64),
    ("mlp", "down_proj", 64, 96),
];

type Shapes = BTreeMap<String, Vec<usize>>;

/// A fresh adapter written to a folder: its shapes by name, and its configuration.
fn written(spec: &AdapterSpec) -> (Shapes, Value) {
    let model = tiny();
    let layout = Layout::new(spec, &model.shape, SEED);
    let values = init::values(&layout, &model, &cpu(), SEED, &[]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("adapter");
    write(&folder, spec, &layout, &values, &model);
    (shapes(&folder), config(&folder))
}

fn shapes(folder: &Path) -> Shapes {
    let tensors = files::read_tensors(&folder.join(files::WEIGHTS)).unwrap();
    tensors
        .into_iter()
        .map(|(key, tensor)| (key, tensor.shape))
        .collect()
}

fn config(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join(files::CONFIG)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// What every block has, by `tensors(module, name, out, in)`.
fn in_every_block(
    tensors: impl Fn(&str, &str, usize, usize) -> Vec<(&'static str, Vec<usize>)>,
) -> Shapes {
    let mut expected = Shapes::new();
    for layer in 0..2 {
        for (module, name, out, input) in PROJECTIONS {
            for (leaf, shape) in tensors(module, name, out, input) {
                let key = format!("base_model.model.model.layers.{layer}.{module}.{name}.{leaf}");
                expected.insert(key, shape);
            }
        }
    }
    expected
}

fn pair(out: usize, input: usize) -> Vec<(&'static str, Vec<usize>)> {
    vec![
        ("lora_A.weight", vec![3, input]),
        ("lora_B.weight", vec![out, 3]),
    ]
}

#[test]
fn lora_has_a_and_b_of_every_target_and_its_scale() {
    let every = methods::every();
    let (found, config) = written(&every[0]);
    let mut expected = in_every_block(|_, _, out, input| pair(out, input));
    expected.insert("base_model.model.lm_head.lora_A.weight".into(), vec![3, 64]);
    expected.insert(
        "base_model.model.lm_head.lora_B.weight".into(),
        vec![259, 3],
    );
    assert_eq!(found, expected);
    assert_eq!(
        (&config["peft_type"], &config["r"]),
        (&"LORA".into(), &3.into())
    );
    assert_eq!(config["lora_alpha"], 5);
    assert_eq!(
        (&config["use_rslora"], &config["use_dora"]),
        (&false.into(), &false.into())
    );
}

#[test]
fn dora_has_its_magnitude_too_and_says_so() {
    let (found, config) = written(&methods::every()[2]);
    let expected = in_every_block(|_, _, out, input| {
        let mut tensors = pair(out, input);
        tensors.push(("lora_magnitude_vector", vec![out]));
        tensors
    });
    assert_eq!(found, expected);
    assert_eq!(config["use_dora"], true);
}

#[test]
fn scales_are_rows_where_the_input_is_scaled_and_columns_elsewhere() {
    let (found, config) = written(&methods::every()[3]);
    let expected = in_every_block(|_, name, out, input| {
        let fed = ["q_proj", "down_proj"].contains(&name);
        vec![("ia3_l", if fed { vec![1, input] } else { vec![out, 1] })]
    });
    assert_eq!(found, expected);
    assert_eq!(config["peft_type"], "IA3");
    assert_eq!(
        config["feedforward_modules"],
        serde_json::json!(["q_proj", "down_proj"])
    );
}

/// A computed prefix is written as the prefix itself: no reader needs the layers that made it.
#[test]
fn prompts_and_prefixes_are_one_tensor() {
    for (number, tokens, width) in [(7, 4, 2 * 2 * 32), (8, 3, 2 * 2 * 32), (9, 5, 64)] {
        let (found, config) = written(&methods::every()[number]);
        let expected = Shapes::from([("prompt_embeddings".to_owned(), vec![tokens, width])]);
        assert_eq!(found, expected);
        assert_eq!(config["num_virtual_tokens"], tokens);
        assert_ne!(config["prefix_projection"], true);
    }
}
