//! A summary of a model, for people and programs.

use std::collections::BTreeMap;

use serde::Serialize;
use shared::model::{Family, ModelShape};

use super::Model;
use super::locate::LocateError;

/// What there is to know of a model without computing with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Name that means the same elsewhere, if the files have one.
    pub name: Option<String>,
    /// SHA-256 over the tensors as held, in hexadecimal.
    pub content_hash: String,
    /// Family.
    pub family: Family,
    /// Sizes and switches.
    pub shape: ModelShape,
    /// Values, a tied head counted once.
    pub parameters: u64,
    /// Tensors held.
    pub tensors: usize,
    /// Bytes held by format.
    pub bytes_by_format: BTreeMap<String, u64>,
    /// `tokenizer.json`, `gguf MODEL/PRE` or `none`.
    pub tokenizer: String,
    /// Whether a chat template comes along.
    pub chat_template: bool,
    /// What is wrong with them, as far as who asks has tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer_problem: Option<String>,
    /// Memory that the weights need.
    pub memory: Memory,
}

/// Bytes of all weights of the whole model, by the format they are held in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// As opened; mapped bytes are shared with other processes and with the page cache.
    pub as_held: u64,
    /// Matrices expanded to f32.
    pub f32: u64,
    /// Matrices rounded to bf16.
    pub bf16: u64,
}

impl Memory {
    /// What a shape needs when its matrices are expanded; vectors stay f32.
    fn expanded(shape: &ModelShape, vector_values: u64, bytes: u64) -> u64 {
        (shape.parameters() - vector_values) * bytes + vector_values * 4
    }
}

/// Summarises a model; reads all its weights for the hash.
///
/// # Errors
/// When the tokenizer's configuration cannot be read.
pub fn summarise(model: &Model) -> Result<Summary, LocateError> {
    let mut bytes_by_format: BTreeMap<String, u64> = BTreeMap::new();
    let mut tensors = 0;
    for weight in model.matrices() {
        let format = weight.format().to_string();
        *bytes_by_format.entry(format).or_default() += weight.byte_len() as u64;
        tensors += 1;
    }
    let mut vector_values = 0;
    for vector in vectors(model) {
        vector_values += vector.len() as u64;
        tensors += 1;
    }
    *bytes_by_format.entry("F32".into()).or_default() += 4 * vector_values;
    Ok(Summary {
        name: model.name.clone(),
        content_hash: model.content_hash(),
        family: model.shape.family,
        shape: model.shape.clone(),
        parameters: model.shape.parameters(),
        tensors,
        memory: Memory {
            as_held: bytes_by_format.values().sum(),
            f32: Memory::expanded(&model.shape, vector_values, 4),
            bf16: Memory::expanded(&model.shape, vector_values, 2),
        },
        bytes_by_format,
        tokenizer: model.tokenizer.kind(),
        tokenizer_problem: None,
        chat_template: model.tokenizer.has_chat_template()?,
    })
}

fn vectors(model: &Model) -> impl Iterator<Item = &Vec<f32>> {
    let layers = model.layers.iter().flat_map(|layer| {
        [&layer.attention_norm, &layer.feed_forward_norm]
            .into_iter()
            .chain(layer.biases.iter().flatten())
            .chain(&layer.q_norm)
            .chain(&layer.k_norm)
    });
    std::iter::once(&model.final_norm).chain(layers)
}
