//! The identity of a backbone: a hash over its tensors as they are held, and over what its formulas take beside them.

use kernels::weight::Weight;
use sha2::{Digest, Sha256};
use shared::hexadecimal;
use shared::model::{ModelShape, Projection, RopeScaling};

use super::{Model, names};

/// Hashes the formulas' numbers, then tensors in canonical order: name, format, sizes and bytes of each.
pub(super) fn content_hash(model: &Model) -> String {
    let mut hash = Sha256::new();
    hash.update(formulas(&model.shape));
    if let Some(embedding) = &model.embedding {
        matrix(&mut hash, names::EMBEDDING, embedding);
    }
    for (index, layer) in model.layers.iter().enumerate() {
        let number = model.first_layer + index;
        vector(
            &mut hash,
            &names::attention_norm(number),
            &layer.attention_norm,
        );
        for projection in Projection::ALL {
            let name = names::weight(number, projection);
            matrix(&mut hash, &name, layer.projection(projection));
            if let Some(bias) = layer.bias(projection) {
                vector(&mut hash, &names::bias(number, projection), bias);
            }
        }
        if let Some(norm) = &layer.q_norm {
            vector(&mut hash, &names::q_norm(number), norm);
        }
        if let Some(norm) = &layer.k_norm {
            vector(&mut hash, &names::k_norm(number), norm);
        }
        vector(
            &mut hash,
            &names::ffn_norm(number),
            &layer.feed_forward_norm,
        );
    }
    vector(&mut hash, names::FINAL_NORM, &model.final_norm);
    if let Some(head) = &model.head {
        matrix(&mut hash, names::HEAD, head);
    }
    hexadecimal::lower(&hash.finalize())
}

/// What a pass takes from the shape and no tensor tells, one line. The family is not among it: it says how files are
/// read, and a GGUF file calls a Mistral model llama. The longest context changes no pass, only which rows there are.
/// Numbers are written as they are computed with: the epsilon in f32, rotation in f64.
fn formulas(shape: &ModelShape) -> String {
    let scaling = match shape.rope.scaling {
        RopeScaling::Default => "default".to_owned(),
        RopeScaling::Linear { factor } => format!("linear {factor:?}"),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => format!(
            "llama3 {factor:?} {low_freq_factor:?} {high_freq_factor:?} {original_max_position_embeddings}"
        ),
    };
    format!(
        "formulas: heads {} of {} and {}, epsilon {:?}, rotation {:?} {scaling}, window {:?}, norms of heads {}, tied {}\n",
        shape.heads,
        shape.head_dim,
        shape.kv_heads,
        shape.norm_eps as f32,
        shape.rope.theta,
        shape.sliding_window,
        shape.qk_norm,
        shape.tied_embeddings
    )
}

fn matrix(hash: &mut Sha256, name: &str, weight: &Weight) {
    head(
        hash,
        name,
        &weight.format().to_string(),
        &[weight.rows(), weight.cols()],
    );
    hash.update(weight.bytes());
}

fn vector(hash: &mut Sha256, name: &str, values: &[f32]) {
    head(hash, name, "F32", &[values.len()]);
    hash.update(bytemuck::cast_slice::<f32, u8>(values));
}

/// Names have no line feed and sizes fix the number of bytes that follow, so no two models write the same stream.
fn head(hash: &mut Sha256, name: &str, format: &str, sizes: &[usize]) {
    hash.update(format!("{name}\n{format}\n{sizes:?}\n"));
}
