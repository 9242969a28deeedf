//! What the `config.json` of a merged model says.

use anyhow::bail;
use gpu_actor::peft::layout::{Layout, LinearSite};
use gpu_actor::peft::merge::MergeError;
use shared::model::{Family, ModelShape, Projection};

/// The shape after merging: biases where an adapter brings them, an LM head of its own where it is changed.
pub(super) fn merged_shape(shape: &ModelShape, layout: &Layout) -> anyhow::Result<ModelShape> {
    let mut merged = shape.clone();
    if layout.head.is_some() {
        merged.tied_embeddings = false;
    }
    let biased = Projection::ALL.iter().any(|&p| shape.has_bias(p));
    if shape.family == Family::Llama && shape.sliding_window.is_some() {
        // A GGUF file calls a Mistral model llama; config.json has a window under the other name only.
        if biased {
            bail!("no config.json says both a sliding window and biases, and this model has both");
        }
        merged.family = Family::Mistral;
    }
    if matches!(merged.family, Family::Llama | Family::Qwen3) && (merged.qkv_bias || merged.o_bias)
    {
        // One key stands for all four: those the model lacks are written as zeros.
        (merged.qkv_bias, merged.o_bias) = (true, true);
    }
    for projection in Projection::ALL {
        let biased = layout
            .layers
            .iter()
            .any(|sites| matches!(sites.linear[projection as usize], Some(LinearSite::Bias(_))));
        if !biased || merged.has_bias(projection) {
            continue;
        }
        let attention = projection.module() == "self_attn";
        match merged.family {
            Family::Llama if attention => (merged.qkv_bias, merged.o_bias) = (true, true),
            Family::Llama => merged.mlp_bias = true,
            Family::Qwen3 if attention => (merged.qkv_bias, merged.o_bias) = (true, true),
            _ => {
                return Err(MergeError::NoBias {
                    site: projection.name().into(),
                }
                .into());
            }
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use gpu_actor::model::tiny::TinySpec;
    use shared::model::config;

    use super::*;

    /// As a GGUF file of the architecture `llama` is read.
    fn llama(change: impl Fn(&mut ModelShape)) -> ModelShape {
        let mut shape = TinySpec::smallest(Family::Llama).shape();
        change(&mut shape);
        shape
    }

    fn layout(shape: &ModelShape) -> Layout {
        let spec = serde_json::from_str(r#"{"method": "ia3"}"#).unwrap();
        Layout::new(&spec, shape, 1)
    }

    fn written(shape: &ModelShape) -> ModelShape {
        let merged = merged_shape(shape, &layout(shape)).unwrap();
        let read = config::parse(&config::write(&merged, "bfloat16")).unwrap();
        assert_eq!(read, merged);
        read
    }

    #[test]
    fn a_window_is_not_lost() {
        let shape = llama(|shape| shape.sliding_window = Some(16));
        let read = written(&shape);
        assert_eq!(
            (read.family, read.sliding_window),
            (Family::Mistral, Some(16))
        );
        assert_eq!(written(&llama(|_| {})).family, Family::Llama);
        let both = llama(|shape| {
            shape.sliding_window = Some(16);
            shape.qkv_bias = true;
        });
        let refused = merged_shape(&both, &layout(&both)).unwrap_err();
        assert!(refused.to_string().contains("sliding window and biases"));
    }

    #[test]
    fn biases_that_one_key_stands_for_are_all_there() {
        let read = written(&llama(|shape| shape.qkv_bias = true));
        assert!(read.qkv_bias && read.o_bias && !read.mlp_bias);
    }
}
