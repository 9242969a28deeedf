//! The tensors found in a model's files, by canonical name, and whether they are those of its shape.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use kernels::weight::Format;
use shared::model::ModelShape;
use thiserror::Error;

use super::locate::first_few;
use super::mapping::Mapping;
use super::names;

/// Tells how the tensors of a model differ from what its configuration promises.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TensorError {
    /// Tensors that should be there and are not.
    #[error("{count} tensors are missing: {missing}")]
    Missing {
        /// How many.
        count: usize,
        /// The first of them.
        missing: String,
    },
    /// Tensors that the configuration knows nothing of.
    #[error("{count} tensors are unexpected: {unexpected}")]
    Unexpected {
        /// How many.
        count: usize,
        /// The first of them.
        unexpected: String,
    },
    /// A tensor of another shape.
    #[error("tensor {name} has shape {found:?}, the configuration asks for {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape of the configuration.
        expected: Vec<usize>,
    },
    /// A format that cannot be used at this place.
    #[error("tensor {name}: {reason}")]
    Format {
        /// The tensor.
        name: String,
        /// What does not fit.
        reason: String,
    },
    /// A model that says its head is the embedding, and has another head.
    #[error(
        "lm_head.weight differs from the embedding although tie_word_embeddings is true: \
         set it to false, or leave the tensor out"
    )]
    TiedHeadDiffers,
    /// A value that is no number.
    #[error(
        "tensor {name} has the value {value} in row {row}, column {column}: the weights are damaged"
    )]
    NonFinite {
        /// The tensor.
        name: String,
        /// Row, from 0.
        row: usize,
        /// Column, from 0.
        column: usize,
        /// The value.
        value: f32,
    },
    /// A range of layers that the model does not have.
    #[error("layers {first} to {end} were asked for, the model has layers 0 to {layers}")]
    Layers {
        /// First layer asked for.
        first: usize,
        /// Layer after the last one asked for.
        end: usize,
        /// Number of layers.
        layers: usize,
    },
}

/// One tensor: what it is and where its bytes lie.
#[derive(Clone, Debug)]
pub(crate) struct StoredTensor {
    pub(crate) format: Format,
    /// Outer dimension first.
    pub(crate) shape: Vec<usize>,
    pub(crate) file: Arc<Mapping>,
    /// Bytes of the file.
    pub(crate) range: Range<usize>,
    /// Heads whose rows lie interleaved (GGUF of the llama architecture) and have to be put back in halves.
    pub(crate) interleaved_heads: Option<usize>,
}

impl StoredTensor {
    /// The stored bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file.as_ref().as_ref()[self.range.clone()]
    }
}

/// The tensors of a model by canonical name.
pub(crate) type Tensors = BTreeMap<String, StoredTensor>;

/// Checks that the tensors are exactly those of the shape; takes out the copy of a tied head.
///
/// # Errors
/// [`TensorError`] that lists what is missing or unexpected, or names the tensor of another shape.
pub(crate) fn fit(tensors: &mut Tensors, shape: &ModelShape) -> Result<(), TensorError> {
    tensors.retain(|name, _| !names::is_derived(name));
    if shape.tied_embeddings {
        drop_tied_head(tensors)?;
    }
    let expected = names::expected(shape);
    let missing: Vec<_> = expected
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !tensors.contains_key(*name))
        .collect();
    let known: BTreeMap<&str, &Vec<usize>> = expected
        .iter()
        .map(|(name, shape)| (name.as_str(), shape))
        .collect();
    let unexpected: Vec<_> = tensors
        .keys()
        .map(String::as_str)
        .filter(|name| !known.contains_key(name))
        .collect();
    if !missing.is_empty() {
        return Err(TensorError::Missing {
            count: missing.len(),
            missing: first_few(missing.into_iter()),
        });
    }
    if !unexpected.is_empty() {
        return Err(TensorError::Unexpected {
            count: unexpected.len(),
            unexpected: first_few(unexpected.into_iter()),
        });
    }
    for (name, tensor) in tensors.iter() {
        let expected = known[name.as_str()];
        if &tensor.shape != expected {
            return Err(TensorError::Shape {
                name: name.clone(),
                found: tensor.shape.clone(),
                expected: expected.clone(),
            });
        }
    }
    Ok(())
}

fn drop_tied_head(tensors: &mut Tensors) -> Result<(), TensorError> {
    let Some(head) = tensors.remove(names::HEAD) else {
        return Ok(());
    };
    let Some(embedding) = tensors.get(names::EMBEDDING) else {
        return Ok(());
    };
    let same = head.format == embedding.format
        && head.shape == embedding.shape
        && head.bytes() == embedding.bytes();
    if same {
        Ok(())
    } else {
        Err(TensorError::TiedHeadDiffers)
    }
}
