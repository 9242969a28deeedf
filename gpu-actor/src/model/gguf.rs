//! A GGUF file: header proven by `gguf_check`, metadata parsed by candle, tensors left where they lie.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use candle_core::quantized::gguf_file::{Content, Value};
use data::tokenizer::GgufTokenizer;
use kernels::weight::Format;
use shared::model::{Family, ModelShape, Projection};

use super::gguf_check::{self, GgufTensor};
use super::gguf_error::GgufError;
use super::gguf_metadata::Metadata;
use super::gguf_shape::{self, TensorHints};
use super::mapping::Mapping;
use super::names;
use super::tensors::{StoredTensor, Tensors};

/// What a GGUF file holds.
#[derive(Debug)]
pub(crate) struct GgufModel {
    pub(crate) shape: ModelShape,
    pub(crate) tensors: Tensors,
    pub(crate) tokenizer: Option<GgufTokenizer>,
    /// `general.name`.
    pub(crate) name: Option<String>,
}

/// Reads a mapped file.
///
/// # Errors
/// [`GgufError`], naming the metadata key or the tensor.
pub(crate) fn read(file: &Arc<Mapping>) -> Result<GgufModel, GgufError> {
    let bytes: &[u8] = file.as_ref().as_ref();
    let mut found = gguf_check::check(bytes)?;
    let content = Content::read(&mut Cursor::new(bytes)).map_err(|error| GgufError::Library {
        reason: error.to_string(),
    })?;
    let metadata = Metadata::new(&content)?;
    let rope_factors = take_rope_factors(&mut found, bytes)?;
    for tensor in &mut found {
        // The prefix keeps an unknown name from meaning a canonical one.
        tensor.name =
            names::from_gguf(&tensor.name).unwrap_or_else(|| format!("gguf:{}", tensor.name));
    }
    let embedding = found.iter().find(|tensor| tensor.name == names::EMBEDDING);
    let hints = TensorHints {
        names: found.iter().map(|tensor| tensor.name.as_str()).collect(),
        vocab: embedding.and_then(|tensor| tensor.shape.first().copied()),
        rope_factors,
    };
    let shape = gguf_shape::read(&metadata, &hints)?;
    let tokenizer = tokenizer(&metadata, shape.vocab)?;
    let name = metadata.text("general.name")?.map(str::to_owned);
    let interleaved = interleaved(&shape);
    let tensors = found
        .into_iter()
        .map(|tensor| {
            let heads = interleaved.get(&tensor.name);
            let stored = StoredTensor {
                format: tensor.format,
                shape: tensor.shape,
                file: Arc::clone(file),
                range: tensor.range,
                interleaved_heads: heads.copied(),
            };
            (tensor.name, stored)
        })
        .collect();
    Ok(GgufModel {
        shape,
        tensors,
        tokenizer,
        name,
    })
}

/// Tensors whose rows the converter interleaved, with their heads: q and k of the `llama` architecture.
///
/// The file has row `2 i + s` of a head where rotation by halves wants row `s * head_dim / 2 + i`.
fn interleaved(shape: &ModelShape) -> BTreeMap<String, usize> {
    let mut list = BTreeMap::new();
    if shape.family != Family::Llama {
        return list;
    }
    for layer in 0..shape.layers {
        for (projection, heads) in [
            (Projection::Q, shape.heads),
            (Projection::K, shape.kv_heads),
        ] {
            list.insert(names::weight(layer, projection), heads);
            list.insert(names::bias(layer, projection), heads);
        }
    }
    list
}

fn take_rope_factors(
    found: &mut Vec<GgufTensor>,
    bytes: &[u8],
) -> Result<Option<Vec<f32>>, GgufError> {
    let place = found
        .iter()
        .position(|tensor| tensor.name == names::GGUF_ROPE_FACTORS);
    let Some(place) = place else {
        return Ok(None);
    };
    let tensor = found.remove(place);
    if tensor.format != Format::F32 {
        return Err(GgufError::Unsupported {
            key: names::GGUF_ROPE_FACTORS.into(),
            found: tensor.format.to_string(),
            supported: Format::F32.to_string(),
        });
    }
    let mut values = vec![0.0; tensor.shape.iter().product()];
    tensor.format.decode(&bytes[tensor.range], &mut values);
    Ok(Some(values))
}

/// The tokenizer's parts; none when the file has no vocabulary.
fn tokenizer(metadata: &Metadata<'_>, vocab: usize) -> Result<Option<GgufTokenizer>, GgufError> {
    let key = |leaf: &str| format!("tokenizer.ggml.{leaf}");
    let Some(model) = metadata.text(&key("model"))? else {
        return Ok(None);
    };
    let texts = |leaf: &str| -> Result<Vec<String>, GgufError> {
        let key = key(leaf);
        let list = metadata.array(&key)?.unwrap_or_default();
        list.iter()
            .map(|value| match value {
                Value::String(text) => Ok(text.clone()),
                _ => Err(wrong_element(&key, "strings", value)),
            })
            .collect()
    };
    let kinds_key = key("token_type");
    let kinds = metadata.array(&kinds_key)?.unwrap_or_default();
    let token_types = kinds
        .iter()
        .map(|value| match *value {
            Value::I32(kind) => Ok(kind),
            Value::U32(kind) => Ok(kind as i32),
            _ => Err(wrong_element(&kinds_key, "integers", value)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let tokens = texts("tokens")?;
    if tokens.len() > vocab {
        return Err(GgufError::Inconsistent {
            key: key("tokens"),
            reason: format!("has {} entries, the embedding {vocab} rows", tokens.len()),
        });
    }
    let special = |leaf: &str| metadata.token(&key(leaf), vocab);
    Ok(Some(GgufTokenizer {
        model: model.to_owned(),
        pre: metadata.text(&key("pre"))?.unwrap_or_default().to_owned(),
        tokens,
        token_types,
        merges: texts("merges")?,
        bos: special("bos_token_id")?,
        eos: special("eos_token_id")?,
        unk: special("unknown_token_id")?,
        pad: special("padding_token_id")?,
        add_bos: metadata.flag(&key("add_bos_token"))?,
        chat_template: metadata.text("tokenizer.chat_template")?.map(str::to_owned),
    }))
}

fn wrong_element(key: &str, expected: &'static str, found: &Value) -> GgufError {
    GgufError::WrongType {
        key: key.to_owned(),
        expected,
        found: format!("array with {:?}", found.value_type()),
    }
}
