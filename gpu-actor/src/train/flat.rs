//! Values and moments as a safetensors file: three lists of F32.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

const TENSORS: [&str; 3] = ["values", "first_moment", "second_moment"];

/// The lists of these bytes: values, first and second moments.
///
/// # Errors
/// A sentence that says what is wrong with the file.
pub fn read(bytes: &[u8]) -> Result<[Vec<f32>; 3], String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut names = file.names().into_iter();
    if let Some(name) = names.find(|name| !TENSORS.contains(name)) {
        return Err(format!("it holds a tensor {name:?}"));
    }
    let list = |name: &str| -> Result<Vec<f32>, String> {
        let view = file.tensor(name).map_err(|error| error.to_string())?;
        if view.dtype() != Dtype::F32 || view.shape().len() != 1 {
            return Err(format!(
                "{name} is {:?} of shape {:?}, not a list of F32",
                view.dtype(),
                view.shape()
            ));
        }
        let quads = view.data().chunks_exact(4);
        Ok(quads
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    };
    let [values, first, second] = TENSORS.map(list);
    let (values, first, second) = (values?, first?, second?);
    if first.len() != values.len() || !(second.is_empty() || second.len() == values.len()) {
        return Err(format!(
            "it has {} values and moments of {} and {}",
            values.len(),
            first.len(),
            second.len()
        ));
    }
    Ok([values, first, second])
}

/// The bytes of values, first and second moments.
#[must_use]
pub fn write(lists: [&[f32]; 3]) -> Vec<u8> {
    let views = TENSORS.iter().zip(lists).map(|(&name, values)| {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let view = TensorView::new(Dtype::F32, vec![values.len()], bytes);
        let view = view.expect("a vector has as many values as its length");
        (name, view)
    });
    safetensors::serialize(views, None).expect("sound tensors serialize")
}
