//! `adapter_config.json` as the PEFT library reads and writes it, to and from a method.
//!
//! Written: only keys that old versions of the library know, at values that every reader understands. Read: a
//! setting that would change the numbers and that we do not compute is refused by name, never ignored. Files of the
//! `adapters` library are read here too, and written by [`adapter_hub`].

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use shared::job::{
    AdapterSpec, BitFitSpec, BottleneckPlacement, BottleneckSpec, DiffSpec, Ia3Spec, LoraSpec,
    NonLinearity, PrefixSpec, PromptSpec, Targets,
};
use shared::model::{ModelShape, Target};
use shared::strict_json;

use super::adapter_hub;
pub use super::config_error::ConfigError;

/// What a configuration says.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The method.
    pub spec: AdapterSpec,
    /// What it calls its base model.
    pub base: Option<String>,
    /// The name that tensors bear, in a file of the `adapters` library.
    pub hub_name: Option<String>,
}

/// Makes the configuration of an adapter in the PEFT library's layout. `base` is the base model's hub id or content hash.
#[must_use]
pub fn write(spec: &AdapterSpec, shape: &ModelShape, base: &str) -> Value {
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.into(), value);
    put("base_model_name_or_path", json!(base));
    put("task_type", json!("CAUSAL_LM"));
    put("inference_mode", json!(true));
    match spec {
        AdapterSpec::Lora(lora) => write_lora(lora, &mut put),
        AdapterSpec::Ia3(ia3) => {
            put("peft_type", json!("IA3"));
            put("target_modules", names(&resolved(&ia3.targets)));
            put("feedforward_modules", names(&ia3.feedforward));
            put("fan_in_fan_out", json!(false));
            put("init_ia3_weights", json!(true));
            put("modules_to_save", Value::Null);
        }
        AdapterSpec::Bottleneck(bottleneck) => {
            put("peft_type", json!("BOTTLENECK"));
            put("placement", json!(bottleneck.placement));
            put("bottleneck_size", json!(bottleneck.size));
            put("non_linearity", json!(bottleneck.non_linearity));
            put("residual", json!(true));
            put("bias", json!(true));
        }
        AdapterSpec::Prefix(prefix) => {
            put("peft_type", json!("PREFIX_TUNING"));
            prompt_learning(
                prefix.tokens,
                shape,
                shape.kv_heads,
                shape.kv_width(),
                &mut put,
            );
            // The file holds the prefix itself: the reparameterisation has served.
            put("prefix_projection", json!(false));
            put(
                "encoder_hidden_size",
                json!(prefix.projection.unwrap_or_else(|| shape.kv_width())),
            );
        }
        AdapterSpec::Prompt(prompt) => {
            put("peft_type", json!("PROMPT_TUNING"));
            prompt_learning(prompt.tokens, shape, shape.heads, shape.hidden, &mut put);
            put("prompt_tuning_init", json!("RANDOM"));
        }
        AdapterSpec::BitFit(bitfit) => {
            put("peft_type", json!("BITFIT"));
            put("target_modules", names(&resolved(&bitfit.targets)));
        }
        AdapterSpec::Diff(diff) => {
            put("peft_type", json!("DIFF_PRUNING"));
            put("target_modules", names(&resolved(&diff.targets)));
            put("density", json!(diff.density));
        }
    }
    Value::Object(map)
}

fn write_lora(lora: &LoraSpec, put: &mut impl FnMut(&str, Value) -> Option<Value>) {
    put("peft_type", json!("LORA"));
    put("r", json!(lora.rank));
    put("lora_alpha", number(lora.alpha()));
    put("lora_dropout", json!(lora.dropout));
    put("target_modules", names(&resolved(&lora.targets)));
    put("use_rslora", json!(lora.rslora));
    put("use_dora", json!(lora.dora));
    put("bias", json!("none"));
    put("fan_in_fan_out", json!(false));
    put("modules_to_save", Value::Null);
    put("rank_pattern", json!({}));
    put("alpha_pattern", json!({}));
    put("init_lora_weights", json!(true));
}

/// An integer where the value is one: readers expect `"lora_alpha": 16`.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

fn prompt_learning(
    tokens: usize,
    shape: &ModelShape,
    heads: usize,
    width: usize,
    put: &mut impl FnMut(&str, Value) -> Option<Value>,
) {
    put("num_virtual_tokens", json!(tokens));
    put("num_layers", json!(shape.layers));
    put("num_attention_heads", json!(heads));
    put("token_dim", json!(width));
    put("num_transformer_submodules", json!(1));
    put("modules_to_save", Value::Null);
}

fn resolved(targets: &Targets) -> Vec<Target> {
    targets.resolve().expect("the spec was checked")
}

fn names(targets: &[Target]) -> Value {
    json!(
        targets
            .iter()
            .map(|target| target.name())
            .collect::<Vec<_>>()
    )
}

/// Reads a configuration into a method.
///
/// # Errors
/// [`ConfigError`] naming the key that is missing, wrong or not computed here.
pub fn read(text: &str) -> Result<Found, ConfigError> {
    let value: Value =
        strict_json::parse(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
    let Value::Object(map) = value else {
        return Err(ConfigError::Syntax("another kind of value".into()));
    };
    let name = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    if adapter_hub::is_library(&map) {
        return Ok(Found {
            spec: adapter_hub::read(&map)?,
            base: name("model_name"),
            hub_name: Some(adapter_hub::name_of(&map)?),
        });
    }
    Ok(Found {
        base: name("base_model_name_or_path"),
        hub_name: None,
        spec: read_peft(&Config(map))?,
    })
}

fn read_peft(config: &Config) -> Result<AdapterSpec, ConfigError> {
    let method = config.text("peft_type")?;
    let unknown = || ConfigError::Method {
        found: method.clone(),
    };
    // What a foreign method says is no fault of its keys.
    let keys = keys_of(&method).ok_or_else(unknown)?;
    config.only(&[COMMON, keys].concat())?;
    match config.0.get("task_type") {
        None | Some(Value::Null) => {}
        Some(task) if task == "CAUSAL_LM" => {}
        Some(task) => return Err(setting("task_type", task)),
    }
    match method.as_str() {
        "LORA" => read_lora(config),
        "IA3" => Ok(AdapterSpec::Ia3(Ia3Spec {
            targets: config.targets("target_modules")?,
            feedforward: config
                .targets("feedforward_modules")?
                .resolve()
                .unwrap_or_default(),
        })),
        "PREFIX_TUNING" => Ok(AdapterSpec::Prefix(PrefixSpec {
            tokens: config.count("num_virtual_tokens")?,
            projection: None,
        })),
        "PROMPT_TUNING" => Ok(AdapterSpec::Prompt(PromptSpec {
            tokens: config.count("num_virtual_tokens")?,
            init_text: None,
        })),
        "BOTTLENECK" => read_bottleneck(config),
        "BITFIT" => Ok(AdapterSpec::BitFit(BitFitSpec {
            targets: config.targets("target_modules")?,
        })),
        "DIFF_PRUNING" => Ok(AdapterSpec::Diff(DiffSpec {
            targets: config.targets("target_modules")?,
            density: config.number("density")?,
        })),
        _ => Err(unknown()),
    }
}

fn read_lora(config: &Config) -> Result<AdapterSpec, ConfigError> {
    match config.0.get("bias") {
        None | Some(Value::Null) => {}
        Some(Value::String(bias)) if bias == "none" => {}
        Some(other) => return Err(setting("bias", other)),
    }
    match config.0.get("init_lora_weights") {
        None | Some(Value::Null | Value::Bool(_)) => {}
        Some(Value::String(name)) if PLAIN_STARTS.contains(&name.as_str()) => {}
        // The others (pissa, olora, corda, loftq, ...) take what they put into the adapter out of the backbone.
        Some(other) => return Err(setting("init_lora_weights", other)),
    }
    Ok(AdapterSpec::Lora(LoraSpec {
        rank: config.count("r")?,
        alpha: Some(config.number("lora_alpha")?),
        dropout: match config.0.get("lora_dropout") {
            None | Some(Value::Null) => 0.0,
            Some(_) => config.number("lora_dropout")?,
        },
        targets: config.targets("target_modules")?,
        rslora: config.flag("use_rslora")?,
        dora: config.flag("use_dora")?,
        lr_ratio: 1.0,
    }))
}

fn read_bottleneck(config: &Config) -> Result<AdapterSpec, ConfigError> {
    // Always computed with both: false is no way to leave a key out here.
    for key in ["residual", "bias"] {
        match config.0.get(key) {
            None | Some(Value::Null | Value::Bool(true)) => {}
            Some(other) => return Err(setting(key, other)),
        }
    }
    Ok(AdapterSpec::Bottleneck(BottleneckSpec {
        size: config.count("bottleneck_size")?,
        placement: config
            .choice::<BottleneckPlacement>("placement", "houlsby, pfeiffer or parallel")?,
        non_linearity: config.choice::<NonLinearity>("non_linearity", "relu, gelu or silu")?,
    }))
}

/// Keys of every method that are read, or say nothing of the numbers.
const COMMON: &[&str] = &[
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "peft_type",
    "peft_version",
    "revision",
    "task_type",
];
/// Keys of virtual tokens.
const VIRTUAL: &[&str] = &[
    "num_virtual_tokens",
    "token_dim",
    "num_transformer_submodules",
    "num_attention_heads",
    "num_layers",
    "encoder_hidden_size",
    "prefix_projection",
    "init_weights",
    "prompt_tuning_init",
    "prompt_tuning_init_text",
    "tokenizer_name_or_path",
    "tokenizer_kwargs",
];
/// Ways to start that leave the backbone as it is.
const PLAIN_STARTS: &[&str] = &["gaussian", "orthogonal", "eva"];

/// Keys of a method that are read, or say nothing of the numbers.
fn keys_of(method: &str) -> Option<&'static [&'static str]> {
    let keys: &[&str] = match method {
        "LORA" => &[
            "r",
            "lora_alpha",
            "lora_dropout",
            "target_modules",
            "bias",
            "use_rslora",
            "use_dora",
            "init_lora_weights",
            "eva_config",
            "layers_pattern",
            "megatron_core",
            "qalora_group_size",
        ],
        "IA3" => &["target_modules", "feedforward_modules", "init_ia3_weights"],
        "PREFIX_TUNING" | "PROMPT_TUNING" => VIRTUAL,
        "BOTTLENECK" => &[
            "placement",
            "bottleneck_size",
            "non_linearity",
            "residual",
            "bias",
        ],
        "BITFIT" => &["target_modules"],
        "DIFF_PRUNING" => &["target_modules", "density"],
        _ => return None,
    };
    Some(keys)
}

fn setting(key: &str, value: &Value) -> ConfigError {
    ConfigError::Setting {
        key: key.to_owned(),
        value: value.to_string(),
    }
}

struct Config(Map<String, Value>);

impl Config {
    fn text(&self, key: &'static str) -> Result<String, ConfigError> {
        let text = self.0.get(key).and_then(Value::as_str);
        text.map(str::to_owned).ok_or(ConfigError::Key {
            key,
            wanted: "a text",
        })
    }

    fn count(&self, key: &'static str) -> Result<usize, ConfigError> {
        let count = self
            .0
            .get(key)
            .and_then(Value::as_u64)
            .filter(|&n| n > 0 && n < 1 << 24);
        count.map(|n| n as usize).ok_or(ConfigError::Key {
            key,
            wanted: "a positive integer",
        })
    }

    fn number(&self, key: &'static str) -> Result<f64, ConfigError> {
        let number = self.0.get(key).and_then(Value::as_f64);
        number.ok_or(ConfigError::Key {
            key,
            wanted: "a number",
        })
    }

    fn flag(&self, key: &'static str) -> Result<bool, ConfigError> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(value) => value.as_bool().ok_or(ConfigError::Key {
                key,
                wanted: "true or false",
            }),
        }
    }

    /// Refuses keys that are not known, unless their value is null, false or empty: then they ask for nothing.
    fn only(&self, known: &[&str]) -> Result<(), ConfigError> {
        for (key, value) in &self.0 {
            let set = match value {
                Value::Null | Value::Bool(false) => false,
                Value::Array(list) => !list.is_empty(),
                Value::Object(map) => !map.is_empty(),
                Value::String(text) => !text.is_empty(),
                Value::Bool(true) | Value::Number(_) => true,
            };
            if set && !known.contains(&key.as_str()) {
                return Err(setting(key, value));
            }
        }
        Ok(())
    }

    fn choice<T: serde::de::DeserializeOwned>(
        &self,
        key: &'static str,
        wanted: &'static str,
    ) -> Result<T, ConfigError> {
        let value = self.0.get(key).cloned().unwrap_or(Value::Null);
        serde_json::from_value(value).map_err(|_| ConfigError::Key { key, wanted })
    }

    /// A list of leaf names (or of paths ending in them), or `"all-linear"`.
    fn targets(&self, key: &'static str) -> Result<Targets, ConfigError> {
        const WANTED: &str = "a list of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head, or \"all-linear\"";
        let error = || ConfigError::Key {
            key,
            wanted: WANTED,
        };
        match self.0.get(key) {
            Some(Value::String(text)) if text == "all-linear" => {
                Ok(Targets::Group("all-linear".into()))
            }
            Some(Value::Array(list)) => {
                let named: Option<Vec<Target>> = list
                    .iter()
                    .map(|name| Target::try_from(name.as_str()?.to_owned()).ok())
                    .collect();
                named.map(Targets::Named).ok_or_else(error)
            }
            _ => Err(error()),
        }
    }
}
