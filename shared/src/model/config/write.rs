//! A [`ModelShape`] written as a `config.json` that the transformers library reads.

use serde_json::{Map, Value, json};

use crate::model::{Family, ModelShape, RopeScaling};

/// Writes the text of a `config.json`; [`super::parse`] of it gives the same shape.
///
/// `dtype` is the name of the weights' type in the model's files: `float32`, `bfloat16` or `float16`.
#[must_use]
pub fn write(shape: &ModelShape, dtype: &str) -> String {
    let (kind, class) = match shape.family {
        Family::Llama => ("llama", "LlamaForCausalLM"),
        Family::Mistral => ("mistral", "MistralForCausalLM"),
        Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
        Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
    };
    let mut map = object(json!({
        "architectures": [class],
        "model_type": kind,
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "max_position_embeddings": shape.max_positions,
        "rope_theta": shape.rope.theta,
        "tie_word_embeddings": shape.tied_embeddings,
        "bos_token_id": shape.bos,
        "eos_token_id": eos(&shape.eos),
        "torch_dtype": dtype,
    }));
    match shape.family {
        Family::Llama => {
            map.insert("attention_bias".into(), shape.qkv_bias.into());
            map.insert("mlp_bias".into(), shape.mlp_bias.into());
        }
        Family::Mistral => {
            map.insert("sliding_window".into(), json!(shape.sliding_window));
        }
        Family::Qwen2 | Family::Qwen3 => {
            map.insert(
                "use_sliding_window".into(),
                shape.sliding_window.is_some().into(),
            );
            map.insert("sliding_window".into(), json!(shape.sliding_window));
            map.insert("max_window_layers".into(), 0.into());
        }
    }
    if shape.family == Family::Qwen3 {
        map.insert("attention_bias".into(), shape.qkv_bias.into());
    }
    if let Some(scaling) = scaling(&shape.rope.scaling) {
        map.insert("rope_scaling".into(), scaling);
    }
    format!("{:#}\n", Value::from(map))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn eos(ids: &[u32]) -> Value {
    match ids {
        [] => Value::Null,
        [one] => json!(one),
        several => json!(several),
    }
}

fn scaling(scaling: &RopeScaling) -> Option<Value> {
    match scaling {
        RopeScaling::Default => None,
        RopeScaling::Linear { factor } => Some(json!({"rope_type": "linear", "factor": factor})),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => Some(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original_max_position_embeddings,
        })),
    }
}
