//! The frozen weights in f64.

use shared::model::{ModelShape, Projection};

use super::attention::Heads;
use super::matrix::Matrix;
use super::rotary;
use super::tensor::{Tensor, Tensors};

/// A frozen model.
#[derive(Clone, Debug)]
pub struct Backbone {
    /// Sizes and switches.
    pub shape: ModelShape,
    /// Token embeddings, `(vocab, hidden)`.
    pub embedding: Matrix,
    /// LM head, `(vocab, hidden)`: a copy of the embedding in a tied model.
    pub head: Matrix,
    /// Norm before the head, `(hidden)`.
    pub final_norm: Vec<f64>,
    /// The blocks.
    pub layers: Vec<Layer>,
    /// Turn per position of each pair of a head.
    pub frequencies: Vec<f64>,
}

/// The frozen weights of one block.
#[derive(Clone, Debug)]
pub struct Layer {
    /// In the order of [`Projection::ALL`], `(out, in)`.
    pub projections: Vec<Matrix>,
    /// In the same order, `(out)`.
    pub biases: Vec<Option<Vec<f64>>>,
    /// Norm before attention, `(hidden)`.
    pub attention_norm: Vec<f64>,
    /// Norm before the feed-forward layer, `(hidden)`.
    pub feed_forward_norm: Vec<f64>,
    /// Per-head norms of q and k, `(head_dim)` each.
    pub head_norms: Option<(Vec<f64>, Vec<f64>)>,
}

impl Layer {
    /// The weight of a projection.
    #[must_use]
    pub fn projection(&self, projection: Projection) -> &Matrix {
        &self.projections[projection as usize]
    }

    /// The bias of a projection.
    #[must_use]
    pub fn bias(&self, projection: Projection) -> Option<&[f64]> {
        self.biases[projection as usize].as_deref()
    }
}

/// The PEFT library's name of a projection's module.
#[must_use]
pub fn module(layer: usize, projection: Projection) -> String {
    let (part, leaf) = (projection.module(), projection.name());
    format!("base_model.model.model.layers.{layer}.{part}.{leaf}")
}

impl Backbone {
    /// A model from tensors by their names in Hugging Face checkpoints.
    ///
    /// # Errors
    /// The name of a tensor that is missing or of the wrong shape.
    pub fn new(shape: &ModelShape, mut tensors: Tensors) -> Result<Self, String> {
        let (vocab, hidden) = (shape.vocab, shape.hidden);
        let take =
            |tensors: &mut Tensors, name: &str, wanted: &[usize]| -> Result<Tensor, String> {
                let tensor = tensors.remove(name);
                let tensor = tensor.ok_or_else(|| format!("tensor {name} is missing"))?;
                if tensor.shape == wanted {
                    Ok(tensor)
                } else {
                    Err(format!(
                        "tensor {name} has shape {:?}, wanted {wanted:?}",
                        tensor.shape
                    ))
                }
            };
        let embedding = take(&mut tensors, "model.embed_tokens.weight", &[vocab, hidden])?.matrix();
        let head = if shape.tied_embeddings {
            embedding.clone()
        } else {
            take(&mut tensors, "lm_head.weight", &[vocab, hidden])?.matrix()
        };
        let final_norm = take(&mut tensors, "model.norm.weight", &[hidden])?.values;
        let mut layers = Vec::new();
        for number in 0..shape.layers {
            let base = format!("model.layers.{number}");
            let norm = |tensors: &mut Tensors, leaf: &str, width: usize| {
                let name = format!("{base}.{leaf}.weight");
                take(tensors, &name, &[width]).map(|tensor| tensor.values)
            };
            let (mut projections, mut biases) = (Vec::new(), Vec::new());
            for projection in Projection::ALL {
                let name = format!("{base}.{}.{}", projection.module(), projection.name());
                let (out, input) = shape.projection(projection);
                projections
                    .push(take(&mut tensors, &format!("{name}.weight"), &[out, input])?.matrix());
                biases.push(if shape.has_bias(projection) {
                    Some(take(&mut tensors, &format!("{name}.bias"), &[out])?.values)
                } else {
                    None
                });
            }
            let head_norms = if shape.qk_norm {
                Some((
                    norm(&mut tensors, "self_attn.q_norm", shape.head_dim)?,
                    norm(&mut tensors, "self_attn.k_norm", shape.head_dim)?,
                ))
            } else {
                None
            };
            layers.push(Layer {
                projections,
                biases,
                attention_norm: norm(&mut tensors, "input_layernorm", hidden)?,
                feed_forward_norm: norm(&mut tensors, "post_attention_layernorm", hidden)?,
                head_norms,
            });
        }
        Ok(Self {
            shape: shape.clone(),
            embedding,
            head,
            final_norm,
            layers,
            frequencies: rotary::frequencies(&shape.rope, shape.head_dim),
        })
    }

    /// Sizes of attention.
    #[must_use]
    pub fn heads(&self) -> Heads {
        Heads {
            heads: self.shape.heads,
            kv_heads: self.shape.kv_heads,
            head_dim: self.shape.head_dim,
            window: self.shape.sliding_window,
        }
    }
}
