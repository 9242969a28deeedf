//! Serial bottlenecks in the layout of AdapterHub's `adapters` library: `adapter_config.json` and its tensor names.
//!
//! With y the output of attention or of the feed-forward layer and r the residual stream beside it, the library
//! computes for a block whose norm comes first, and `original_ln_before` false, `original_ln_after` true:
//!
//! ```text
//! r' = r + y + up(f(down(y)))
//! ```
//!
//! which is what is computed here for `houlsby` and `pfeiffer`, and all that is read. With `original_ln_before`, the
//! library's `seq_bn`, its adapter reads y + r; its parallel adapter reads r, ours the normed r. So a parallel
//! bottleneck of ours is written in our own layout, and theirs is refused.

use serde_json::{Map, Value, json};
use shared::job::{AdapterSpec, BottleneckPlacement, BottleneckSpec, NonLinearity};
use shared::model::{Family, ModelShape};

use super::config_error::ConfigError;
use super::layout::Layout;

/// The library whose layout this is: readers tell its newer names from older ones by that.
const VERSION: &str = "adapters.1.3.0";

/// Says whether an adapter is written in the library's layout.
#[must_use]
pub fn holds(spec: &AdapterSpec) -> bool {
    matches!(spec, AdapterSpec::Bottleneck(bottleneck)
        if bottleneck.placement != BottleneckPlacement::Parallel)
}

/// Makes a name that the library takes: without points, and unlike any attribute of its modules.
#[must_use]
pub fn safe_name(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = name
        .chars()
        .map(|c| if safe(c) { c } else { '_' })
        .collect();
    format!("spotmux-{name}")
}

/// The configuration of a serial bottleneck.
#[must_use]
pub fn write(spec: &BottleneckSpec, shape: &ModelShape, base: &str, name: &str) -> Value {
    let config = json!({
        "mh_adapter": spec.placement == BottleneckPlacement::Houlsby,
        "output_adapter": true,
        "reduction_factor": reduction(shape.hidden, spec.size),
        "non_linearity": spec.non_linearity,
        "original_ln_before": false,
        "original_ln_after": true,
        "residual_before_ln": true,
        "adapter_residual_before_ln": false,
        "ln_before": false,
        "ln_after": false,
        "is_parallel": false,
        "scaling": 1.0,
        "dropout": 0.0,
        "use_gating": false,
        "cross_adapter": false,
        "phm_layer": false,
        "inv_adapter": null,
        "inv_adapter_reduction_factor": null,
        "init_weights": "bert",
        "leave_out": [],
    });
    let class = match shape.family {
        Family::Llama => "LlamaForCausalLM",
        Family::Mistral => "MistralForCausalLM",
        Family::Qwen2 => "Qwen2ForCausalLM",
        Family::Qwen3 => "Qwen3ForCausalLM",
    };
    json!({
        "config": config,
        "name": name,
        "version": VERSION,
        "model_type": shape.family.name(),
        "model_class": class,
        "model_name": base,
        "hidden_size": shape.hidden,
    })
}

/// The factor by which the library divides the hidden size, rounding down, to get `size`.
fn reduction(hidden: usize, size: usize) -> Value {
    if hidden.is_multiple_of(size) {
        return json!(hidden / size);
    }
    // Half a place from either neighbour, whatever the rounding.
    json!(hidden as f64 / (size as f64 + 0.5))
}

/// Python's `int(hidden // factor)`, at least 1 as in the library.
fn size(hidden: usize, factor: f64) -> usize {
    let hidden = hidden as f64;
    let quotient = (hidden - hidden % factor) / factor;
    (quotient.round() as usize).max(1)
}

/// Whether a configuration is the library's.
pub(super) fn is_library(map: &Map<String, Value>) -> bool {
    map.get("config").is_some() && !map.contains_key("peft_type")
}

/// The name under which the library's file holds its tensors.
pub(super) fn name_of(map: &Map<String, Value>) -> Result<String, ConfigError> {
    let name = map.get("name").and_then(Value::as_str);
    name.map(str::to_owned).ok_or(ConfigError::Key {
        key: "name",
        wanted: "a text",
    })
}

/// Reads the library's configuration.
///
/// # Errors
/// [`ConfigError`] naming the key that is missing, wrong, or asks for what is not computed here.
pub(super) fn read(map: &Map<String, Value>) -> Result<AdapterSpec, ConfigError> {
    let wrong = |key, wanted| ConfigError::Key { key, wanted };
    let config = map.get("config").and_then(Value::as_object);
    let config = config.ok_or_else(|| wrong("config", "an object"))?;
    refuse(config)?;
    name_of(map)?;
    let flag = |key| config.get(key).and_then(Value::as_bool);
    let placement = match (flag("mh_adapter"), flag("output_adapter")) {
        (Some(true), Some(true)) => BottleneckPlacement::Houlsby,
        (Some(false), Some(true)) => BottleneckPlacement::Pfeiffer,
        _ => {
            return Err(wrong(
                "output_adapter",
                "true (beside mh_adapter true or false)",
            ));
        }
    };
    let hidden = map.get("hidden_size").and_then(Value::as_u64);
    let hidden = hidden.filter(|&n| n > 0 && n < 1 << 24);
    let hidden = hidden.ok_or_else(|| wrong("hidden_size", "a positive integer"))?;
    let factor = config.get("reduction_factor").and_then(Value::as_f64);
    let factor = factor.filter(|&factor| factor >= 1.0);
    let factor = factor.ok_or_else(|| wrong("reduction_factor", "one number from 1"))?;
    Ok(AdapterSpec::Bottleneck(BottleneckSpec {
        size: size(hidden as usize, factor),
        placement,
        non_linearity: non_linearity(config, map.contains_key("version"))?,
    }))
}

/// Refuses what would change the numbers. Dropout and depth of training, and how values start, do not.
fn refuse(config: &Map<String, Value>) -> Result<(), ConfigError> {
    // Each key with the one value computed here, which is also what its absence means.
    let only = [
        ("architecture", Value::Null, "bottlenecks are read"),
        (
            "is_parallel",
            json!(false),
            "the library's parallel adapter reads the residual stream, ours its norm",
        ),
        (
            "original_ln_before",
            json!(false),
            "there the adapter reads the sub-layer's output plus the residual",
        ),
        (
            "original_ln_after",
            json!(true),
            "there the residual is left out",
        ),
        (
            "ln_before",
            json!(false),
            "norms within the adapter are not computed",
        ),
        (
            "ln_after",
            json!(false),
            "norms within the adapter are not computed",
        ),
        (
            "scaling",
            json!(1.0),
            "multiply adapter_up by it and write 1.0",
        ),
        ("use_gating", json!(false), "gates are not computed"),
        ("cross_adapter", json!(false), "there is no cross-attention"),
        (
            "phm_layer",
            json!(false),
            "hypercomplex products are not computed",
        ),
        (
            "inv_adapter",
            Value::Null,
            "invertible adapters are not computed",
        ),
        ("leave_out", json!([]), "every block has an adapter"),
    ];
    for (key, computed, reason) in only {
        let same = match config.get(key) {
            None => true,
            Some(found) if computed.is_number() => found.as_f64() == computed.as_f64(),
            Some(found) => *found == computed,
        };
        if !same {
            let value = config[key].to_string();
            return Err(ConfigError::AdapterHub { key, value, reason });
        }
    }
    match config.get("residual_before_ln") {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(other) => Err(ConfigError::AdapterHub {
            key: "residual_before_ln",
            value: other.to_string(),
            reason: "it is of use with original_ln_before only",
        }),
    }
}

/// The function's name. Files without a version are old ones, whose `gelu` was the approximation by tanh.
fn non_linearity(config: &Map<String, Value>, new: bool) -> Result<NonLinearity, ConfigError> {
    let name = config.get("non_linearity").and_then(Value::as_str);
    let name = name.unwrap_or_default().to_lowercase();
    match (name.as_str(), new) {
        ("relu", _) => Ok(NonLinearity::Relu),
        ("silu" | "swish", _) => Ok(NonLinearity::Silu),
        ("gelu", true) | ("gelu_orig", false) => Ok(NonLinearity::Gelu),
        _ => Err(ConfigError::AdapterHub {
            key: "non_linearity",
            value: name,
            reason: "relu, gelu (exact), silu and swish are computed",
        }),
    }
}

/// The layout with the names that the library's files have.
#[must_use]
pub(super) fn renamed(layout: &Layout, name: &str) -> Layout {
    let mut layout = layout.clone();
    for parameter in &mut layout.parameters {
        parameter.key = file_key(&parameter.key, name);
    }
    layout
}

/// `base_model.model.model.layers.0.mlp.adapter.down_proj.weight` as
/// `model.layers.0.output_adapters.adapters.NAME.adapter_down.0.weight`.
fn file_key(key: &str, name: &str) -> String {
    let key = key.strip_prefix("base_model.model.").unwrap_or(key);
    let renamed = [
        (
            "self_attn.adapter.down_proj",
            "attention_adapters",
            "adapter_down.0",
        ),
        (
            "self_attn.adapter.up_proj",
            "attention_adapters",
            "adapter_up",
        ),
        ("mlp.adapter.down_proj", "output_adapters", "adapter_down.0"),
        ("mlp.adapter.up_proj", "output_adapters", "adapter_up"),
    ];
    for (ours, place, matrix) in renamed {
        if let Some((block, leaf)) = key.split_once(ours) {
            return format!("{block}{place}.adapters.{name}.{matrix}{leaf}");
        }
    }
    key.to_owned()
}

/// The name of a tensor saved from a model without its head, as it is with one.
pub(super) fn with_head(key: String) -> String {
    if key.starts_with("layers.") {
        format!("model.{key}")
    } else {
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(size: usize, placement: BottleneckPlacement) -> BottleneckSpec {
        BottleneckSpec {
            size,
            placement,
            non_linearity: NonLinearity::Gelu,
        }
    }

    fn shape(hidden: usize) -> ModelShape {
        let mut shape = crate::model::tiny::TinySpec::smallest(Family::Llama).shape();
        shape.hidden = hidden;
        shape
    }

    fn reads(value: &Value) -> Result<AdapterSpec, ConfigError> {
        read(value.as_object().expect("an object"))
    }

    #[test]
    fn every_size_comes_back_by_their_division() {
        for hidden in [1, 7, 64, 576, 2048, 4096] {
            for size in (1..=hidden).filter(|size| size % 37 < 5 || hidden - size < 9) {
                let written = spec(size, BottleneckPlacement::Houlsby);
                let value = write(&written, &shape(hidden), "base", "name");
                assert_eq!(reads(&value), Ok(AdapterSpec::Bottleneck(written)));
            }
        }
    }

    #[test]
    fn settings_that_change_the_numbers_are_refused_by_name() {
        let written = spec(4, BottleneckPlacement::Pfeiffer);
        let value = write(&written, &shape(64), "base", "name");
        for (key, other) in [
            ("architecture", json!("lora")),
            ("is_parallel", json!(true)),
            ("original_ln_before", json!(true)),
            ("original_ln_after", json!(false)),
            ("residual_before_ln", json!("post_add")),
            ("ln_before", json!(true)),
            ("scaling", json!(4.0)),
            ("scaling", json!("learned")),
            ("leave_out", json!([1])),
            ("non_linearity", json!("gelu_new")),
        ] {
            let mut value = value.clone();
            value["config"][key] = other;
            let error = reads(&value).expect_err(key).to_string();
            assert!(error.contains(key), "{error}");
        }
        let mut old = value.clone();
        old.as_object_mut().expect("an object").remove("version");
        assert!(reads(&old).is_err(), "an old gelu is another function");
        old["config"]["non_linearity"] = json!("gelu_orig");
        assert_eq!(reads(&old), reads(&value));
    }

    #[test]
    fn names_are_those_of_the_library() {
        assert_eq!(safe_name("v1.2 tone"), "spotmux-v1_2_tone");
        let key = "base_model.model.model.layers.3.self_attn.adapter.up_proj.bias";
        let wanted = "model.layers.3.attention_adapters.adapters.n.adapter_up.bias";
        assert_eq!(file_key(key, "n"), wanted);
        let key = "base_model.model.model.layers.3.mlp.adapter.down_proj.weight";
        let wanted = "model.layers.3.output_adapters.adapters.n.adapter_down.0.weight";
        assert_eq!(file_key(key, "n"), wanted);
        assert_eq!(with_head(wanted["model.".len()..].into()), wanted);
    }
}
