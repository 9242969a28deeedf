//! `config.json` of the Hugging Face layout, read into a [`ModelShape`].
//!
//! The rules per family, as the transformers library applies them when a key is absent:
//!
//! | `model_type` | biases | q/k norm | head width | window |
//! | --- | --- | --- | --- | --- |
//! | `llama` | `attention_bias` on q, k, v, o; `mlp_bias` | no | `head_dim`, else hidden / heads | none |
//! | `mistral` | none | no | `head_dim`, else hidden / heads | `sliding_window`, absent: 4096, null: none |
//! | `qwen2` | q, k, v always | no | `head_dim`, else hidden / heads | only with `use_sliding_window` |
//! | `qwen3` | `attention_bias` on q, k, v, o | yes | `head_dim`, never derived | only with `use_sliding_window` |
//!
//! A key that would change the arithmetic in a way the engine does not compute is refused by name: nothing is
//! guessed, and nothing is ignored that matters.

mod error;
mod features;
mod fields;
mod rope;
#[cfg(test)]
mod tests;
mod write;

use serde_json::{Map, Value};

pub use error::ConfigError;
pub use write::write;

use self::fields::Fields;
use super::{Family, ModelShape};

/// Largest sizes accepted; far above any model, far below what would overflow a product of three.
pub mod limits {
    /// Rows of the embedding.
    pub const VOCAB: u64 = 1 << 22;
    /// Width of the residual stream.
    pub const HIDDEN: u64 = 1 << 17;
    /// Width of the feed-forward layer.
    pub const INTERMEDIATE: u64 = 1 << 20;
    /// Number of blocks.
    pub const LAYERS: u64 = 1024;
    /// Query heads.
    pub const HEADS: u64 = 1024;
    /// Width of one head.
    pub const HEAD_DIM: u64 = 1024;
    /// Longest context in tokens.
    pub const POSITIONS: u64 = 1 << 27;
}

/// Window of a Mistral configuration that does not mention `sliding_window`.
const MISTRAL_WINDOW: usize = 4096;
/// First windowed layer of a Qwen configuration that does not mention `max_window_layers`.
const QWEN_MAX_WINDOW_LAYERS: usize = 28;

/// Reads the text of a `config.json`.
///
/// # Errors
/// [`ConfigError`], which names the key, what it holds and what would be accepted.
pub fn parse(text: &str) -> Result<ModelShape, ConfigError> {
    let map = object(text)?;
    let fields = Fields::new(&map, "");
    let family = family(&fields)?;
    features::refuse_unsupported(&fields)?;
    let layers = fields.required_size("num_hidden_layers", limits::LAYERS)?;
    let hidden = fields.required_size("hidden_size", limits::HIDDEN)?;
    let heads = fields.required_size("num_attention_heads", limits::HEADS)?;
    let vocab = fields.required_size("vocab_size", limits::VOCAB)?;
    let bias = biases(family, &fields)?;
    let shape = ModelShape {
        family,
        vocab,
        hidden,
        intermediate: fields.required_size("intermediate_size", limits::INTERMEDIATE)?,
        layers,
        heads,
        kv_heads: kv_heads(family, &fields, heads)?,
        head_dim: head_dim(family, &fields, hidden, heads)?,
        max_positions: fields.required_size("max_position_embeddings", limits::POSITIONS)?,
        norm_eps: fields
            .number_between("rms_norm_eps", 0.0, 0.1)?
            .unwrap_or(1e-6),
        rope: rope::read(&fields)?,
        tied_embeddings: fields.flag("tie_word_embeddings")?.unwrap_or(false),
        qkv_bias: bias.qkv,
        o_bias: bias.o,
        mlp_bias: bias.mlp,
        qk_norm: family == Family::Qwen3,
        sliding_window: window(family, &fields, layers)?,
        eos: fields.token_ids("eos_token_id", vocab)?,
        bos: fields.token_ids("bos_token_id", vocab)?.first().copied(),
    };
    check(&shape)?;
    Ok(shape)
}

/// Adds the end tokens that `generation_config.json` names to those of a shape.
///
/// Chat models end a turn with a token that only this file lists.
///
/// # Errors
/// [`ConfigError`] when the text is not a JSON object or an id does not fit the vocabulary.
pub fn add_generation(shape: &mut ModelShape, text: &str) -> Result<(), ConfigError> {
    let map = object(text)?;
    let more = Fields::new(&map, "").token_ids("eos_token_id", shape.vocab)?;
    for id in more {
        if !shape.eos.contains(&id) {
            shape.eos.push(id);
        }
    }
    Ok(())
}

/// The model hub's name for the model when `_name_or_path` holds one; a local path gives none.
#[must_use]
pub fn hub_name(text: &str) -> Option<String> {
    let map = object(text).ok()?;
    let name = map.get("_name_or_path")?.as_str()?;
    is_hub_name(name).then(|| name.to_owned())
}

/// Whether a text has the form `organisation/model`, and so means the same on every machine.
#[must_use]
pub fn is_hub_name(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.len() <= 96
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    text.split_once('/')
        .is_some_and(|(organisation, model)| part(organisation) && part(model))
}

/// Checks what no single key can tell: how the sizes fit each other.
///
/// # Errors
/// [`ConfigError::Inconsistent`] with the key to correct.
pub fn check(shape: &ModelShape) -> Result<(), ConfigError> {
    let inconsistent = |key: &str, reason: String| {
        Err(ConfigError::Inconsistent {
            key: key.to_owned(),
            reason,
        })
    };
    if !shape.heads.is_multiple_of(shape.kv_heads) {
        return inconsistent(
            "num_key_value_heads",
            format!(
                "{} does not divide {} query heads",
                shape.kv_heads, shape.heads
            ),
        );
    }
    if !shape.head_dim.is_multiple_of(2) {
        return inconsistent(
            "head_dim",
            format!("{} is odd: rotary positions turn pairs", shape.head_dim),
        );
    }
    Ok(())
}

fn object(text: &str) -> Result<Map<String, Value>, ConfigError> {
    // A byte order mark is legal in no JSON, yet editors write it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let value = crate::strict_json::parse(text).map_err(|error| ConfigError::Syntax {
        reason: error.to_string(),
    })?;
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(ConfigError::Syntax {
            reason: "it is not an object".to_owned(),
        }),
    }
}

fn family(fields: &Fields<'_>) -> Result<Family, ConfigError> {
    let found = fields
        .text("model_type")?
        .ok_or_else(|| fields.missing("model_type"))?;
    Family::ALL
        .into_iter()
        .find(|family| family.name() == found)
        .ok_or_else(|| ConfigError::UnknownModel {
            found: found.to_owned(),
            known: Family::ALL.map(Family::name).join(", "),
        })
}

struct Biases {
    qkv: bool,
    o: bool,
    mlp: bool,
}

fn biases(family: Family, fields: &Fields<'_>) -> Result<Biases, ConfigError> {
    let attention = fields.flag("attention_bias")?.unwrap_or(false);
    let mlp = fields.flag("mlp_bias")?.unwrap_or(false);
    let refused = |key| fields.unsupported(key, "true", "false for this model_type");
    match family {
        Family::Llama => Ok(Biases {
            qkv: attention,
            o: attention,
            mlp,
        }),
        Family::Mistral if attention => Err(refused("attention_bias")),
        _ if mlp => Err(refused("mlp_bias")),
        Family::Mistral => Ok(Biases {
            qkv: false,
            o: false,
            mlp: false,
        }),
        // Qwen2 has q, k and v biases although its configuration does not say so.
        Family::Qwen2 => Ok(Biases {
            qkv: true,
            o: false,
            mlp: false,
        }),
        Family::Qwen3 => Ok(Biases {
            qkv: attention,
            o: attention,
            mlp: false,
        }),
    }
}

fn kv_heads(family: Family, fields: &Fields<'_>, heads: usize) -> Result<usize, ConfigError> {
    match fields.size("num_key_value_heads", limits::HEADS)? {
        Some(kv_heads) => Ok(kv_heads),
        None if family == Family::Llama => Ok(heads),
        None => Err(fields.missing("num_key_value_heads")),
    }
}

fn head_dim(
    family: Family,
    fields: &Fields<'_>,
    hidden: usize,
    heads: usize,
) -> Result<usize, ConfigError> {
    if let Some(head_dim) = fields.size("head_dim", limits::HEAD_DIM)? {
        return Ok(head_dim);
    }
    if family == Family::Qwen3 {
        return Err(fields.missing("head_dim"));
    }
    if !hidden.is_multiple_of(heads) || hidden < heads {
        return Err(fields.inconsistent(
            "num_attention_heads",
            format!(
                "hidden_size {hidden} is not a multiple of {heads} heads and head_dim is absent"
            ),
        ));
    }
    Ok(hidden / heads)
}

fn window(
    family: Family,
    fields: &Fields<'_>,
    layers: usize,
) -> Result<Option<usize>, ConfigError> {
    let width = fields.size("sliding_window", limits::POSITIONS)?;
    let everywhere = match family {
        Family::Llama => None,
        Family::Mistral if fields.mentions("sliding_window") => width,
        Family::Mistral => Some(MISTRAL_WINDOW),
        Family::Qwen2 | Family::Qwen3 => {
            return qwen_window(fields, width, layers);
        }
    };
    match features::layer_types(fields, layers)? {
        None => Ok(everywhere),
        Some(false) => Ok(None),
        Some(true) => everywhere
            .map(Some)
            .ok_or_else(|| fields.missing("sliding_window")),
    }
}

/// Qwen windows the layers from `max_window_layers` on: the engine takes all of them or none.
fn qwen_window(
    fields: &Fields<'_>,
    width: Option<usize>,
    layers: usize,
) -> Result<Option<usize>, ConfigError> {
    let used = fields.flag("use_sliding_window")?.unwrap_or(false);
    let kinds = features::layer_types(fields, layers)?;
    if !used {
        return match kinds {
            Some(true) => Err(fields.inconsistent(
                "layer_types",
                "has sliding_attention while use_sliding_window is false".into(),
            )),
            _ => Ok(None),
        };
    }
    let windowed = match kinds {
        Some(windowed) => windowed,
        None => {
            let first = fields
                .count("max_window_layers", limits::LAYERS)?
                .unwrap_or(QWEN_MAX_WINDOW_LAYERS);
            if first > 0 && first < layers {
                return Err(fields.unsupported(
                    "max_window_layers",
                    &first.to_string(),
                    "0 or at least num_hidden_layers: all layers have a window or none has",
                ));
            }
            first == 0
        }
    };
    match (windowed, width) {
        (true, None) => Err(fields.missing("sliding_window")),
        (true, width) => Ok(width),
        (false, _) => Ok(None),
    }
}
