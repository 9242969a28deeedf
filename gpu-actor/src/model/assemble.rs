//! From tensors that fit a shape to the weights of a model.

use std::ops::Range;
use std::sync::Arc;

use kernels::cpu::Cpu;
use kernels::weight::{Format, SharedBytes, Weight, WeightError};
use shared::job::BackboneFormat;
use shared::model::{ModelShape, Projection};

use super::tensors::{StoredTensor, TensorError, Tensors};
use super::{LayerWeights, names};

/// How weights are made.
pub(super) struct Assembly<'a> {
    pub(super) shape: &'a ModelShape,
    pub(super) tensors: &'a Tensors,
    pub(super) format: BackboneFormat,
    pub(super) check_finite: bool,
    pub(super) cpu: &'a Cpu,
}

impl Assembly<'_> {
    /// Makes the layers of a range.
    pub(super) fn layers(&self, range: Range<usize>) -> Result<Vec<LayerWeights>, TensorError> {
        range.map(|layer| self.layer(layer)).collect()
    }

    fn layer(&self, layer: usize) -> Result<LayerWeights, TensorError> {
        let mut projections = Vec::with_capacity(Projection::ALL.len());
        let mut biases: [Option<Vec<f32>>; 7] = [const { None }; 7];
        for (projection, bias) in Projection::ALL.into_iter().zip(&mut biases) {
            projections.push(self.matrix(&names::weight(layer, projection))?);
            if self.shape.has_bias(projection) {
                *bias = Some(self.vector(&names::bias(layer, projection))?);
            }
        }
        let per_head = |name: String| match self.shape.qk_norm {
            true => self.vector(&name).map(Some),
            false => Ok(None),
        };
        Ok(LayerWeights {
            projections: projections.try_into().expect("seven projections"),
            biases,
            attention_norm: self.vector(&names::attention_norm(layer))?,
            feed_forward_norm: self.vector(&names::ffn_norm(layer))?,
            q_norm: per_head(names::q_norm(layer))?,
            k_norm: per_head(names::k_norm(layer))?,
        })
    }

    /// Makes a matrix: in place where the file has it as wanted, else as a copy.
    pub(super) fn matrix(&self, name: &str) -> Result<Weight, TensorError> {
        let tensor = &self.tensors[name];
        let refused = |error: WeightError| TensorError::Format {
            name: name.to_owned(),
            reason: error.to_string(),
        };
        let [rows, cols] = tensor.shape[..] else {
            unreachable!("the shape of {name} was checked to be a matrix");
        };
        let weight = match tensor.interleaved_heads {
            Some(heads) => owned(tensor, rows, cols, &in_halves(tensor.bytes(), rows, heads)),
            None => {
                let shared: SharedBytes = Arc::clone(&tensor.file) as SharedBytes;
                match Weight::new(tensor.format, rows, cols, shared, tensor.range.clone()) {
                    Err(WeightError::Misaligned { .. }) => {
                        owned(tensor, rows, cols, tensor.bytes())
                    }
                    other => other,
                }
            }
        };
        let weight = match self.format {
            BackboneFormat::AsShipped => weight,
            BackboneFormat::F32 => weight.and_then(|weight| weight.convert(Format::F32)),
            BackboneFormat::Bf16 => weight.and_then(|weight| weight.convert(Format::Bf16)),
        }
        .map_err(refused)?;
        if self.check_finite && !weight.all_finite(self.cpu) {
            return Err(non_finite(name, &weight));
        }
        Ok(weight)
    }

    /// Makes a vector of numbers; norms and biases are always held in f32.
    pub(super) fn vector(&self, name: &str) -> Result<Vec<f32>, TensorError> {
        let tensor = &self.tensors[name];
        if tensor.format.block_values() != 1 {
            return Err(TensorError::Format {
                name: name.to_owned(),
                reason: format!(
                    "a vector in {} blocks is not supported, only F32, F16 and BF16",
                    tensor.format
                ),
            });
        }
        let mut values = vec![0.0; tensor.shape[0]];
        match tensor.interleaved_heads {
            Some(heads) => {
                let bytes = in_halves(tensor.bytes(), values.len(), heads);
                tensor.format.decode(&bytes, &mut values);
            }
            None => tensor.format.decode(tensor.bytes(), &mut values),
        }
        match values.iter().position(|value| !value.is_finite()) {
            Some(column) if self.check_finite => Err(TensorError::NonFinite {
                name: name.to_owned(),
                row: 0,
                column,
                value: values[column],
            }),
            _ => Ok(values),
        }
    }
}

/// Bytes in memory that start on a multiple of eight.
struct Aligned {
    words: Vec<u64>,
    length: usize,
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }
}

fn owned(
    tensor: &StoredTensor,
    rows: usize,
    cols: usize,
    bytes: &[u8],
) -> Result<Weight, WeightError> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    let aligned = Aligned {
        words,
        length: bytes.len(),
    };
    Weight::new(tensor.format, rows, cols, Arc::new(aligned), 0..bytes.len())
}

/// Puts interleaved rows of each head back in halves: row `s * w / 2 + i` comes from row `2 i + s`, `w` the head's width.
///
/// Rows are moved as bytes, so blocks of quantised rows stay whole.
fn in_halves(bytes: &[u8], rows: usize, heads: usize) -> Vec<u8> {
    let row_bytes = bytes.len() / rows;
    let head_dim = rows / heads;
    let mut out = Vec::with_capacity(bytes.len());
    for row in 0..rows {
        let (head, at) = (row / head_dim, row % head_dim);
        let (half, pair) = (at / (head_dim / 2), at % (head_dim / 2));
        let from = head * head_dim + 2 * pair + half;
        out.extend_from_slice(&bytes[from * row_bytes..(from + 1) * row_bytes]);
    }
    out
}

/// Finds the value that made a check fail.
fn non_finite(name: &str, weight: &Weight) -> TensorError {
    let mut values = vec![0.0; weight.cols()];
    for row in 0..weight.rows() {
        weight.row(row, &mut values);
        if let Some(column) = values.iter().position(|value| !value.is_finite()) {
            return TensorError::NonFinite {
                name: name.to_owned(),
                row,
                column,
                value: values[column],
            };
        }
    }
    TensorError::Format {
        name: name.to_owned(),
        reason: "has a block scale that is no number".into(),
    }
}
