//! Reads safetensors into f64.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::oracle::tensor::{Tensor, Tensors};

/// Every tensor of a file.
///
/// # Errors
/// When the file cannot be read, is not sound, or holds another kind of number than F64, F32 and BF16.
pub fn read(path: &Path) -> Result<Tensors> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let file = SafeTensors::deserialize(&bytes).with_context(|| path.display().to_string())?;
    let mut tensors = Tensors::new();
    for (name, view) in file.iter() {
        let values = values(&view).with_context(|| format!("{}: tensor {name}", path.display()))?;
        tensors.insert(name.to_owned(), Tensor::new(view.shape(), values));
    }
    Ok(tensors)
}

fn values(view: &TensorView<'_>) -> Result<Vec<f64>> {
    let bytes = view.data();
    Ok(match view.dtype() {
        Dtype::F64 => bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| f64::from_le_bytes(*bytes))
            .collect(),
        Dtype::F32 => bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
            .collect(),
        // A BF16 is the upper half of an F32.
        Dtype::BF16 => bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&[low, high]| f64::from(f32::from_le_bytes([0, 0, low, high])))
            .collect(),
        other => bail!("is {other:?}: F64, F32 and BF16 are read"),
    })
}
