//! The tensors of a merged model, and the header of their file.

use serde_json::{Map, Value, json};
use shared::model::{ModelShape, Projection};

use super::numbers::Numbers;

/// A tensor to be written.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) source: Source,
}

/// Where its values come from.
pub(super) enum Source {
    Embedding,
    Head,
    FinalNorm,
    AttentionNorm(usize),
    FeedForwardNorm(usize),
    QNorm(usize),
    KNorm(usize),
    Weight(usize, Projection),
    Bias(usize, Projection),
}

/// Every tensor of a shape, in the order it is written.
pub(super) fn plan(shape: &ModelShape) -> Vec<Planned> {
    let mut list = Vec::new();
    let mut add = |name: String, shape: Vec<usize>, source| {
        list.push(Planned {
            name,
            shape,
            source,
        })
    };
    add(
        "model.embed_tokens.weight".into(),
        vec![shape.vocab, shape.hidden],
        Source::Embedding,
    );
    for layer in 0..shape.layers {
        let name = |rest: &str| format!("model.layers.{layer}.{rest}.weight");
        add(
            name("input_layernorm"),
            vec![shape.hidden],
            Source::AttentionNorm(layer),
        );
        add(
            name("post_attention_layernorm"),
            vec![shape.hidden],
            Source::FeedForwardNorm(layer),
        );
        if shape.qk_norm {
            add(
                name("self_attn.q_norm"),
                vec![shape.head_dim],
                Source::QNorm(layer),
            );
            add(
                name("self_attn.k_norm"),
                vec![shape.head_dim],
                Source::KNorm(layer),
            );
        }
        for projection in Projection::ALL {
            let (out, input) = shape.projection(projection);
            let place = format!(
                "model.layers.{layer}.{}.{}",
                projection.module(),
                projection.name()
            );
            add(
                format!("{place}.weight"),
                vec![out, input],
                Source::Weight(layer, projection),
            );
            if shape.has_bias(projection) {
                add(
                    format!("{place}.bias"),
                    vec![out],
                    Source::Bias(layer, projection),
                );
            }
        }
    }
    add(
        "model.norm.weight".into(),
        vec![shape.hidden],
        Source::FinalNorm,
    );
    if !shape.tied_embeddings {
        add(
            "lm_head.weight".into(),
            vec![shape.vocab, shape.hidden],
            Source::Head,
        );
    }
    list
}

/// The length and header of a safetensors file.
pub(super) fn header(plan: &[Planned], numbers: Numbers) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut start = 0;
    for tensor in plan {
        let end = start + numbers.width() * tensor.shape.iter().product::<usize>();
        let entry = json!({ "dtype": numbers.in_file(), "shape": tensor.shape, "data_offsets": [start, end] });
        map.insert(tensor.name.clone(), entry);
        start = end;
    }
    let mut text = Value::Object(map).to_string();
    // Numbers start at a multiple of 8, so that a mapped file can be used where it lies.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}
