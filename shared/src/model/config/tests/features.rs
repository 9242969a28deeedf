//! Windows, rotary positions, and what is refused.

use super::*;

#[test]
fn windows_follow_the_family() {
    let window = |kind, changes| shape(kind, changes).sliding_window;
    assert_eq!(window("mistral", json!({})), Some(4096));
    assert_eq!(window("mistral", json!({"sliding_window": null})), None);
    assert_eq!(window("mistral", json!({"sliding_window": 8})), Some(8));
    assert_eq!(window("llama", json!({"sliding_window": 8})), None);
    assert_eq!(window("qwen2", json!({"sliding_window": 8})), None);
    let used = |more: Value| {
        let mut changes = json!({"sliding_window": 8, "use_sliding_window": true});
        changes
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        changes
    };
    assert_eq!(
        window("qwen2", used(json!({"max_window_layers": 0}))),
        Some(8)
    );
    assert_eq!(window("qwen2", used(json!({"max_window_layers": 4}))), None);
    assert_eq!(window("qwen2", used(json!({}))), None);
    let sliding = vec!["sliding_attention"; 4];
    assert_eq!(
        window("qwen3", used(json!({"layer_types": sliding}))),
        Some(8)
    );
    assert!(
        refusal("qwen2", used(json!({"max_window_layers": 2}))).contains("max_window_layers is 2")
    );
    let mixed = json!({"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"]});
    assert!(refusal("qwen2", used(mixed)).contains("layer_types"));
    assert!(refusal("llama", json!({"layer_types": ["full_attention"]})).contains("lists 1"));
}

#[test]
fn both_rope_styles_are_read_and_must_agree() {
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64
    });
    let want = Rope {
        theta: 500_000.0,
        scaling: RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 64,
        },
    };
    let older = shape(
        "llama",
        json!({"rope_theta": 500_000.0, "rope_scaling": llama3}),
    );
    let mut newer = llama3.clone();
    newer["rope_theta"] = json!(500_000.0);
    let both = json!({"rope_theta": null, "rope_parameters": newer});
    assert_eq!(older.rope, want);
    assert_eq!(shape("llama", both).rope, want);
    let linear = json!({"rope_scaling": {"type": "linear", "factor": 2}});
    assert_eq!(
        shape("llama", linear).rope.scaling,
        RopeScaling::Linear { factor: 2.0 }
    );
    let conflict =
        json!({"rope_theta": 5.0, "rope_parameters": {"rope_type": "default", "rope_theta": 6.0}});
    assert!(refusal("llama", conflict).contains("rope_theta: contradicts"));
    let conflict = json!({"rope_scaling": llama3, "rope_parameters": {"rope_type": "default"}});
    assert!(refusal("llama", conflict).contains("rope_scaling: contradicts"));
}

#[test]
fn what_would_change_the_arithmetic_is_refused_by_key() {
    let table = [
        ("llama", json!({"hidden_act": "gelu"}), "hidden_act"),
        (
            "llama",
            json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
            "rope_scaling.type",
        ),
        (
            "llama",
            json!({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}),
            "rope_scaling.rope_type",
        ),
        (
            "llama",
            json!({"rope_scaling": {"factor": 2.0}}),
            "rope_scaling.rope_type",
        ),
        (
            "llama",
            json!({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}),
            "rope_scaling.factor",
        ),
        (
            "llama",
            json!({"rope_scaling": {"rope_type": "linear"}}),
            "rope_scaling.factor",
        ),
        ("llama", json!({"rope_scaling": 3}), "rope_scaling"),
        (
            "llama",
            json!({"rope_parameters": {"full_attention": {}}}),
            "rope_parameters.full_attention",
        ),
        (
            "llama",
            json!({"no_rope_layers": [1, 1, 1, 0]}),
            "no_rope_layers",
        ),
        (
            "llama",
            json!({"no_rope_layer_interval": 4}),
            "no_rope_layer_interval",
        ),
        (
            "llama",
            json!({"quantization_config": {"bits": 4}}),
            "quantization_config",
        ),
        ("llama", json!({"auto_map": {"AutoModel": "x"}}), "auto_map"),
        (
            "llama",
            json!({"final_logit_softcapping": 30.0}),
            "final_logit_softcapping",
        ),
        (
            "llama",
            json!({"embedding_multiplier": 12}),
            "embedding_multiplier",
        ),
        (
            "llama",
            json!({"partial_rotary_factor": 0.5}),
            "partial_rotary_factor",
        ),
        (
            "llama",
            json!({"architectures": ["LlamaForSequenceClassification"]}),
            "architectures",
        ),
        ("mistral", json!({"attention_bias": true}), "attention_bias"),
        ("qwen2", json!({"mlp_bias": true}), "mlp_bias"),
    ];
    for (kind, changes, key) in table {
        let message = refusal(kind, changes.clone());
        assert!(message.contains(key), "{changes}: {message}");
    }
    shape(
        "llama",
        json!({"logit_scale": 1.0, "partial_rotary_factor": 1, "no_rope_layers": [1, 1, 1, 1]}),
    );
}
