#![allow(clippy::unwrap_used, reason = "tests")]

mod features;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::model::{Rope, RopeScaling};

/// A plain configuration with keys changed, added, or (with null) taken out.
fn config(model_type: &str, changes: Value) -> String {
    let mut map = json!({
        "architectures": ["XForCausalLM"],
        "model_type": model_type,
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "bos_token_id": 1,
        "eos_token_id": 2
    });
    for (key, value) in changes.as_object().unwrap() {
        map[key] = value.clone();
    }
    map.to_string()
}

fn shape(model_type: &str, changes: Value) -> ModelShape {
    parse(&config(model_type, changes)).unwrap()
}

fn refusal(model_type: &str, changes: Value) -> String {
    parse(&config(model_type, changes)).unwrap_err().to_string()
}

#[test]
fn families_differ_in_what_they_imply() {
    let llama = shape("llama", json!({"tie_word_embeddings": true}));
    assert!(llama.tied_embeddings && !llama.qkv_bias && !llama.qk_norm);
    assert_eq!((llama.eos, llama.bos), (vec![2], Some(1)));
    let biased = shape("llama", json!({"attention_bias": true, "mlp_bias": true}));
    assert!(biased.qkv_bias && biased.o_bias && biased.mlp_bias);
    let qwen2 = shape("qwen2", json!({}));
    assert!(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.mlp_bias);
    let qwen3 = shape("qwen3", json!({"head_dim": 32}));
    assert!(qwen3.qk_norm && !qwen3.qkv_bias);
    assert_eq!(
        (qwen3.head_dim, qwen3.q_width(), qwen3.hidden),
        (32, 128, 64)
    );
}

#[test]
fn absent_keys_have_the_defaults_of_the_library_or_none() {
    let plain = shape(
        "llama",
        json!({"head_dim": null, "num_key_value_heads": null, "rope_theta": null, "rms_norm_eps": null}),
    );
    assert_eq!((plain.head_dim, plain.kv_heads), (16, 4));
    assert_eq!((plain.rope.theta, plain.norm_eps), (10_000.0, 1e-6));
    assert!(!plain.tied_embeddings);
    assert!(refusal("qwen3", json!({"head_dim": null})).contains("head_dim is missing"));
    assert!(
        refusal("mistral", json!({"num_key_value_heads": null})).contains("num_key_value_heads")
    );
}

#[test]
fn an_unknown_family_is_refused_with_the_known() {
    let message = refusal("gemma3_text", json!({}));
    assert!(message.contains("gemma3_text") && message.contains("llama, mistral, qwen2, qwen3"));
    assert!(refusal("llama", json!({"model_type": null})).contains("model_type is missing"));
}

#[test]
fn sizes_are_bounded_and_divide() {
    let table = [
        (
            json!({"hidden_size": 0}),
            "hidden_size is 0, allowed is 1 to",
        ),
        (json!({"hidden_size": -64}), "hidden_size is -64"),
        (
            json!({"hidden_size": 64.5}),
            "hidden_size is 64.5, expected an integer",
        ),
        (
            json!({"hidden_size": "64"}),
            "hidden_size is \"64\", expected an integer",
        ),
        (
            json!({"num_hidden_layers": 1_000_000}),
            "num_hidden_layers is 1000000",
        ),
        (
            json!({"vocab_size": u64::MAX}),
            "vocab_size is 18446744073709551615",
        ),
        (json!({"vocab_size": 1e300}), "vocab_size"),
        (
            json!({"num_key_value_heads": 3}),
            "num_key_value_heads: 3 does not divide 4",
        ),
        (
            json!({"num_key_value_heads": 8}),
            "num_key_value_heads: 8 does not divide 4",
        ),
        (json!({"head_dim": 15}), "head_dim: 15 is odd"),
        (
            json!({"head_dim": null, "num_attention_heads": 6}),
            "num_attention_heads",
        ),
        (json!({"rms_norm_eps": 0}), "rms_norm_eps"),
        (json!({"rope_theta": -1}), "rope_theta"),
        (
            json!({"eos_token_id": 320}),
            "eos_token_id is 320, allowed is 0 to 319",
        ),
        (json!({"eos_token_id": [2, -1]}), "eos_token_id"),
        (
            json!({"max_position_embeddings": null}),
            "max_position_embeddings is missing",
        ),
        (json!({"tie_word_embeddings": "yes"}), "tie_word_embeddings"),
    ];
    for (changes, want) in table {
        let message = refusal("llama", changes.clone());
        assert!(message.contains(want), "{changes}: {message}");
    }
}

#[test]
fn end_tokens_may_be_a_list_and_are_joined_with_those_of_generation() {
    let mut shape = shape("llama", json!({"eos_token_id": [2, 7]}));
    add_generation(&mut shape, r#"{"eos_token_id": [7, 9]}"#).unwrap();
    assert_eq!(shape.eos, [2, 7, 9]);
    assert!(add_generation(&mut shape, "[]").is_err());
}

#[test]
fn only_a_hub_name_is_a_name() {
    let name = |text: &str| hub_name(&json!({"_name_or_path": text}).to_string());
    assert_eq!(
        name("HuggingFaceTB/SmolLM2-135M").as_deref(),
        Some("HuggingFaceTB/SmolLM2-135M")
    );
    for local in [
        "/home/me/model",
        "./model",
        "../a/b",
        "a/b/c",
        "model",
        "",
        "C:\\m",
        "~/x",
    ] {
        assert_eq!(name(local), None, "{local}");
    }
}

#[test]
fn text_that_is_no_object_is_refused() {
    for text in ["", "{", "[]", "null", "{\"a\": NaN}", "\u{feff}"] {
        assert!(
            matches!(parse(text), Err(ConfigError::Syntax { .. })),
            "{text:?}"
        );
    }
    assert!(parse(&format!("\u{feff}{}", config("llama", json!({})))).is_ok());
    let deep = "[".repeat(100_000);
    assert!(matches!(parse(&deep), Err(ConfigError::Syntax { .. })));
}

#[test]
fn what_is_written_is_read_back() {
    let linear = json!({"rope_scaling": {"rope_type": "linear", "factor": 2.5}});
    let llama3 = json!({"rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}});
    for (kind, changes) in [
        (
            "llama",
            json!({"attention_bias": true, "mlp_bias": true, "eos_token_id": [2, 7]}),
        ),
        ("llama", linear),
        ("llama", llama3),
        (
            "mistral",
            json!({"sliding_window": 8, "eos_token_id": null}),
        ),
        (
            "mistral",
            json!({"sliding_window": null, "tie_word_embeddings": true}),
        ),
        (
            "qwen2",
            json!({"sliding_window": 8, "use_sliding_window": true, "max_window_layers": 0}),
        ),
        ("qwen3", json!({"head_dim": 32, "attention_bias": true})),
    ] {
        let shape = shape(kind, changes);
        assert_eq!(parse(&write(&shape, "float32")).unwrap(), shape);
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u64..200).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_0-9]{0,12}".prop_map(Value::from),
        Just(Value::from("llama3")),
        Just(Value::from("linear")),
    ];
    leaf.prop_recursive(2, 16, 4, |inner| {
        let keys = prop_oneof![
            Just("rope_type".to_owned()),
            Just("factor".to_owned()),
            "[a-z_]{1,8}"
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4)
                .prop_map(|pairs| Value::from(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    /// Whatever stands at the known keys: an answer, never a panic; and what is accepted is within bounds.
    #[test]
    fn no_value_at_any_key_panics(
        kind in prop::sample::select(vec!["llama", "mistral", "qwen2", "qwen3"]),
        changes in prop::collection::vec((prop::sample::select(vec![
            "architectures", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps",
            "max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "bos_token_id",
            "eos_token_id", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types",
            "attention_bias", "mlp_bias", "tie_word_embeddings", "no_rope_layers", "logit_scale",
        ]), any_value()), 0..4),
    ) {
        let changes: Map<String, Value> = changes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        match parse(&config(kind, Value::from(changes))) {
            Ok(shape) => {
                prop_assert!(check(&shape).is_ok());
                prop_assert!(shape.parameters() > 0);
                prop_assert!(shape.eos.iter().all(|&id| (id as usize) < shape.vocab));
            }
            Err(error) => prop_assert!(error.to_string().len() < 400),
        }
    }
}
