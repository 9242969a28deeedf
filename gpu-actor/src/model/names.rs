//! What a backbone's tensors are called, and what their shapes must be.
//!
//! The canonical names are those of the Hugging Face layout. GGUF files have their own, mapped here.

use shared::model::{ModelShape, Projection};

/// The embedding, `(vocab, hidden)`.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The last norm, `(hidden)`.
pub(crate) const FINAL_NORM: &str = "model.norm.weight";
/// The LM head, `(vocab, hidden)`; absent in a tied model.
pub(crate) const HEAD: &str = "lm_head.weight";
/// Factors of rotary frequencies in a GGUF file, `(head_dim / 2)`.
pub(crate) const GGUF_ROPE_FACTORS: &str = "rope_freqs.weight";

/// The weight of a projection, `(out, in)`.
pub(crate) fn weight(layer: usize, projection: Projection) -> String {
    of_projection(layer, projection, "weight")
}

/// The bias of a projection, `(out)`.
pub(crate) fn bias(layer: usize, projection: Projection) -> String {
    of_projection(layer, projection, "bias")
}

/// The norm before attention, `(hidden)`.
pub(crate) fn attention_norm(layer: usize) -> String {
    format!("model.layers.{layer}.input_layernorm.weight")
}

/// The norm before the feed-forward layer, `(hidden)`.
pub(crate) fn ffn_norm(layer: usize) -> String {
    format!("model.layers.{layer}.post_attention_layernorm.weight")
}

/// The per-head norm of queries, `(head_dim)`.
pub(crate) fn q_norm(layer: usize) -> String {
    format!("model.layers.{layer}.self_attn.q_norm.weight")
}

/// The per-head norm of keys, `(head_dim)`.
pub(crate) fn k_norm(layer: usize) -> String {
    format!("model.layers.{layer}.self_attn.k_norm.weight")
}

/// Every tensor that a model of this shape has, with its shape, in canonical order.
pub(crate) fn expected(shape: &ModelShape) -> Vec<(String, Vec<usize>)> {
    let mut list = vec![(EMBEDDING.to_owned(), vec![shape.vocab, shape.hidden])];
    for layer in 0..shape.layers {
        list.push((attention_norm(layer), vec![shape.hidden]));
        for projection in Projection::ALL {
            let (out, input) = shape.projection(projection);
            list.push((weight(layer, projection), vec![out, input]));
            if shape.has_bias(projection) {
                list.push((bias(layer, projection), vec![out]));
            }
        }
        if shape.qk_norm {
            list.push((q_norm(layer), vec![shape.head_dim]));
            list.push((k_norm(layer), vec![shape.head_dim]));
        }
        list.push((ffn_norm(layer), vec![shape.hidden]));
    }
    list.push((FINAL_NORM.to_owned(), vec![shape.hidden]));
    if !shape.tied_embeddings {
        list.push((HEAD.to_owned(), vec![shape.vocab, shape.hidden]));
    }
    list
}

/// Tensors that old checkpoints carry and that follow from the shape.
pub(crate) fn is_derived(name: &str) -> bool {
    name.starts_with("model.layers.") && name.ends_with(".self_attn.rotary_emb.inv_freq")
}

/// The canonical name of a tensor of a GGUF file; unknown: none.
pub(crate) fn from_gguf(name: &str) -> Option<String> {
    match name {
        "token_embd.weight" => return Some(EMBEDDING.into()),
        "output_norm.weight" => return Some(FINAL_NORM.into()),
        "output.weight" => return Some(HEAD.into()),
        _ => {}
    }
    let (layer, leaf) = name.strip_prefix("blk.")?.split_once('.')?;
    let number: usize = layer.parse().ok()?;
    // `01` and `+1` would be other names for the same layer.
    if number.to_string() != layer {
        return None;
    }
    let (module, kind) = leaf.rsplit_once('.')?;
    match (module, kind) {
        ("attn_norm", "weight") => Some(attention_norm(number)),
        ("ffn_norm", "weight") => Some(ffn_norm(number)),
        ("attn_q_norm", "weight") => Some(q_norm(number)),
        ("attn_k_norm", "weight") => Some(k_norm(number)),
        (module, "weight" | "bias") => {
            let projection = Projection::ALL
                .into_iter()
                .find(|&projection| gguf_module(projection) == module)?;
            Some(of_projection(number, projection, kind))
        }
        _ => None,
    }
}

/// The name of a projection in GGUF files.
pub(crate) fn gguf_module(projection: Projection) -> &'static str {
    match projection {
        Projection::Q => "attn_q",
        Projection::K => "attn_k",
        Projection::V => "attn_v",
        Projection::O => "attn_output",
        Projection::Gate => "ffn_gate",
        Projection::Up => "ffn_up",
        Projection::Down => "ffn_down",
    }
}

fn of_projection(layer: usize, projection: Projection, kind: &str) -> String {
    format!(
        "model.layers.{layer}.{}.{}.{kind}",
        projection.module(),
        projection.name()
    )
}
