//! Features of a configuration that would change the arithmetic, refused by name.

use serde_json::Value;

use super::ConfigError;
use super::fields::Fields;

/// Keys of other families, or of models with code of their own, with what each of them asks for.
const FOREIGN: [(&str, &str); 14] = [
    (
        "quantization_config",
        "none: unquantised weights, or a GGUF file with Q4_0, Q4_1 or Q8_0",
    ),
    ("auto_map", "none: the model may not bring its own code"),
    ("attn_logit_softcapping", "none: scores are not capped"),
    ("final_logit_softcapping", "none: logits are not capped"),
    ("clip_qkv", "none: queries, keys and values are not clipped"),
    ("num_experts", "none: no mixture of experts"),
    ("num_local_experts", "none: no mixture of experts"),
    ("attention_chunk_size", "none: attention is not chunked"),
    (
        "query_pre_attn_scalar",
        "none: scores are scaled by head_dim",
    ),
    ("logit_scale", "1 or none"),
    ("logits_scaling", "1 or none"),
    ("embedding_multiplier", "1 or none"),
    ("residual_multiplier", "1 or none"),
    ("partial_rotary_factor", "1 or none"),
];

/// Refuses every key of the table that is not neutral, and the features that need a closer look.
pub(super) fn refuse_unsupported(fields: &Fields<'_>) -> Result<(), ConfigError> {
    for (key, supported) in FOREIGN {
        match fields.get(key) {
            None | Some(Value::Bool(false)) => {}
            Some(value) if value.as_f64() == Some(1.0) && supported.starts_with('1') => {}
            Some(value) => return Err(fields.unsupported(key, &value.to_string(), supported)),
        }
    }
    activation(fields)?;
    architecture(fields)?;
    every_layer_rotates(fields)
}

fn activation(fields: &Fields<'_>) -> Result<(), ConfigError> {
    match fields.text("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(fields.unsupported("hidden_act", &format!("{other:?}"), "\"silu\"")),
    }
}

fn architecture(fields: &Fields<'_>) -> Result<(), ConfigError> {
    let Some(list) = fields.list("architectures")? else {
        return Ok(());
    };
    let causal = |value: &Value| {
        value
            .as_str()
            .is_some_and(|name| name.ends_with("ForCausalLM"))
    };
    if list.is_empty() || list.iter().any(causal) {
        return Ok(());
    }
    let found = Value::Array(list.to_vec()).to_string();
    Err(fields.unsupported(
        "architectures",
        &found,
        "a ...ForCausalLM: a language model head",
    ))
}

/// SmolLM3 leaves positions out of some layers.
fn every_layer_rotates(fields: &Fields<'_>) -> Result<(), ConfigError> {
    if let Some(list) = fields.list("no_rope_layers")? {
        // 1 means that the layer rotates, for all the key's name.
        if list.iter().any(|value| value.as_u64() != Some(1)) {
            let found = Value::Array(list.to_vec()).to_string();
            return Err(fields.unsupported(
                "no_rope_layers",
                &found,
                "rotary positions in every layer (all 1)",
            ));
        }
        return Ok(());
    }
    match fields.get("no_rope_layer_interval") {
        None => Ok(()),
        Some(value) => Err(fields.unsupported(
            "no_rope_layer_interval",
            &value.to_string(),
            "rotary positions in every layer",
        )),
    }
}

/// Whether `layer_types` gives every layer a window (`true`) or none (`false`); absent: `None`.
pub(super) fn layer_types(fields: &Fields<'_>, layers: usize) -> Result<Option<bool>, ConfigError> {
    let Some(list) = fields.list("layer_types")? else {
        return Ok(None);
    };
    if list.len() != layers {
        return Err(fields.inconsistent(
            "layer_types",
            format!("lists {} layers, num_hidden_layers is {layers}", list.len()),
        ));
    }
    let all = |kind: &str| list.iter().all(|value| value.as_str() == Some(kind));
    if all("full_attention") {
        Ok(Some(false))
    } else if all("sliding_attention") {
        Ok(Some(true))
    } else {
        let found = Value::Array(list.to_vec()).to_string();
        Err(fields.unsupported(
            "layer_types",
            &found,
            "full_attention in every layer, or sliding_attention in every layer",
        ))
    }
}
