//! GGUF metadata read into a [`ModelShape`].
//!
//! Keys start with the architecture, `llama.block_count`. The architecture `llama` covers Llama and Mistral
//! models; a model is tied when it has no `output.weight`, and has biases when it has tensors for them.

use std::collections::BTreeSet;

use shared::model::config::{self, limits};
use shared::model::{Family, ModelShape, Rope, RopeScaling};

use super::gguf_error::GgufError;
use super::gguf_metadata::{Metadata, inconsistent, missing, out_of_range, unsupported};
use super::names;

/// The tensors that tell what metadata does not.
pub(super) struct TensorHints<'a> {
    /// Canonical names of all tensors.
    pub(super) names: BTreeSet<&'a str>,
    /// Rows of the embedding.
    pub(super) vocab: Option<usize>,
    /// Divisors of the rotary frequencies, when the file carries them.
    pub(super) rope_factors: Option<Vec<f32>>,
}

/// Reads the shape.
///
/// # Errors
/// [`GgufError`] that names the metadata key.
pub(super) fn read(
    metadata: &Metadata<'_>,
    hints: &TensorHints<'_>,
) -> Result<ModelShape, GgufError> {
    let family = family(metadata)?;
    refuse_unsupported(metadata)?;
    let hidden = metadata.required("embedding_length", limits::HIDDEN)?;
    let heads = metadata.required("attention.head_count", limits::HEADS)?;
    let vocab = vocab(metadata, hints)?;
    let head_dim = head_dim(metadata, hidden, heads)?;
    let bias = |leaf| {
        hints
            .names
            .contains(format!("model.layers.0.{leaf}.bias").as_str())
    };
    let eps = metadata.number("attention.layer_norm_rms_epsilon")?;
    let shape = ModelShape {
        family,
        vocab,
        hidden,
        intermediate: metadata.required("feed_forward_length", limits::INTERMEDIATE)?,
        layers: metadata.required("block_count", limits::LAYERS)?,
        heads,
        kv_heads: metadata
            .size("attention.head_count_kv", limits::HEADS)?
            .unwrap_or(heads),
        head_dim,
        max_positions: metadata.required("context_length", limits::POSITIONS)?,
        norm_eps: eps.ok_or_else(|| missing(&metadata.own("attention.layer_norm_rms_epsilon")))?,
        rope: rope(metadata, hints, head_dim)?,
        tied_embeddings: !hints.names.contains(names::HEAD),
        qkv_bias: bias("self_attn.q_proj"),
        o_bias: bias("self_attn.o_proj"),
        mlp_bias: bias("mlp.gate_proj"),
        qk_norm: family == Family::Qwen3,
        sliding_window: metadata.size("attention.sliding_window", limits::POSITIONS)?,
        eos: end_tokens(metadata, vocab)?,
        bos: metadata.token("tokenizer.ggml.bos_token_id", vocab)?,
    };
    config::check(&shape)?;
    Ok(shape)
}

fn family(metadata: &Metadata<'_>) -> Result<Family, GgufError> {
    match metadata.architecture {
        "llama" => Ok(Family::Llama),
        "qwen2" => Ok(Family::Qwen2),
        "qwen3" => Ok(Family::Qwen3),
        other => Err(unsupported(
            "general.architecture",
            other,
            "llama (Llama and Mistral models), qwen2, qwen3",
        )),
    }
}

fn refuse_unsupported(metadata: &Metadata<'_>) -> Result<(), GgufError> {
    let experts = metadata.own("expert_count");
    if let Some(count) = metadata.integer(&experts)?
        && count > 0
    {
        return Err(unsupported(&experts, &count.to_string(), "0"));
    }
    if let Some(count) = metadata.integer("split.count")?
        && count > 1
    {
        return Err(unsupported(
            "split.count",
            &count.to_string(),
            "1: merge the parts with llama-gguf-split --merge",
        ));
    }
    Ok(())
}

fn vocab(metadata: &Metadata<'_>, hints: &TensorHints<'_>) -> Result<usize, GgufError> {
    let Some(rows) = hints.vocab else {
        return Err(missing("the tensor token_embd.weight"));
    };
    if rows == 0 || rows as u64 > limits::VOCAB {
        return Err(out_of_range(
            "the vocabulary of token_embd.weight",
            rows as u64,
            1,
            limits::VOCAB,
        ));
    }
    let stated = metadata.size("vocab_size", limits::VOCAB)?;
    if let Some(stated) = stated
        && stated != rows
    {
        return Err(inconsistent(
            &metadata.own("vocab_size"),
            format!("is {stated}, token_embd.weight has {rows} rows"),
        ));
    }
    Ok(rows)
}

fn head_dim(metadata: &Metadata<'_>, hidden: usize, heads: usize) -> Result<usize, GgufError> {
    let key = metadata.size("attention.key_length", limits::HEAD_DIM)?;
    let head_dim = match key {
        Some(width) => width,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            return Err(inconsistent(
                &metadata.own("attention.head_count"),
                format!("{heads} heads do not divide the width {hidden}, and key_length is absent"),
            ));
        }
    };
    for leaf in ["attention.value_length", "rope.dimension_count"] {
        if let Some(other) = metadata.size(leaf, limits::HEAD_DIM)?
            && other != head_dim
        {
            return Err(unsupported(
                &metadata.own(leaf),
                &other.to_string(),
                &format!("{head_dim}, the width of a head"),
            ));
        }
    }
    Ok(head_dim)
}

fn rope(
    metadata: &Metadata<'_>,
    hints: &TensorHints<'_>,
    head_dim: usize,
) -> Result<Rope, GgufError> {
    let theta = metadata
        .number_from("rope.freq_base", 1.0)?
        .unwrap_or(10_000.0);
    let key = metadata.own("rope.scaling.type");
    let factor = metadata.number("rope.scaling.factor")?;
    let scaling = match (metadata.text(&key)?, factor) {
        (None | Some("none"), _) => RopeScaling::Default,
        (Some("linear"), Some(factor)) if factor >= 1.0 => RopeScaling::Linear { factor },
        (Some("linear"), _) => {
            let key = metadata.own("rope.scaling.factor");
            return Err(inconsistent(
                &key,
                "must be at least 1 for linear scaling".into(),
            ));
        }
        (Some(other), _) => return Err(unsupported(&key, other, "none or linear")),
    };
    match &hints.rope_factors {
        None => Ok(Rope { theta, scaling }),
        Some(_) if scaling != RopeScaling::Default => Err(inconsistent(
            &key,
            format!("is linear and {} is given too", names::GGUF_ROPE_FACTORS),
        )),
        Some(factors) => llama3(theta, head_dim, factors),
    }
}

/// Llama 3.1 and later: the file has the divisors instead of the numbers they follow from.
///
/// All published models of that kind share the context and the two bounds; the largest divisor is the factor.
fn llama3(theta: f64, head_dim: usize, factors: &[f32]) -> Result<Rope, GgufError> {
    let largest = factors.iter().copied().fold(1.0f32, f32::max);
    let scaling = RopeScaling::Llama3 {
        factor: f64::from(largest),
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    let plain = Rope {
        theta,
        scaling: RopeScaling::Default,
    };
    let frequencies = plain.inverse_frequencies(head_dim);
    let agrees = factors.len() == frequencies.len()
        && factors
            .iter()
            .zip(&frequencies)
            .all(|(&found, &frequency)| {
                let want = scaling.divisor(frequency);
                (f64::from(found) - want).abs() <= 1e-4 * want
            });
    if agrees {
        Ok(Rope { theta, scaling })
    } else {
        Err(unsupported(
            names::GGUF_ROPE_FACTORS,
            "other factors",
            "those of Llama 3.1: factor to taste, bounds 1 and 4, context 8192",
        ))
    }
}

fn end_tokens(metadata: &Metadata<'_>, vocab: usize) -> Result<Vec<u32>, GgufError> {
    let mut ids = Vec::new();
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        let id = metadata.token(&format!("tokenizer.ggml.{key}"), vocab)?;
        if let Some(id) = id
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    Ok(ids)
}
