//! The tensors of a checkpoint: values and moments in flat order.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use super::hex;
use super::manifest::{Manifest, Unsound};
use crate::stage::optim::OptimizerState;
use crate::train::session::JobState;

pub(super) const STATE: &str = "state.safetensors";
const TENSORS: [&str; 3] = ["values", "first_moment", "second_moment"];

/// The state of these bytes, when they are those of the manifest.
pub(super) fn read(bytes: &[u8], manifest: &Manifest) -> Result<JobState, Unsound> {
    let damaged = |reason: &dyn std::fmt::Display| Unsound::of(STATE, reason);
    if bytes.len() as u64 != manifest.bytes {
        return Err(damaged(&format!(
            "it has {} bytes, the manifest says {}",
            bytes.len(),
            manifest.bytes
        )));
    }
    if hex(&Sha256::digest(bytes)) != manifest.sha256 {
        return Err(damaged(&"it does not have the manifest's sha256"));
    }
    let file = SafeTensors::deserialize(bytes).map_err(|error| damaged(&error))?;
    if let Some(name) = file
        .names()
        .into_iter()
        .find(|name| !TENSORS.contains(name))
    {
        return Err(damaged(&format!("it holds a tensor {name:?}")));
    }
    let tensor = |name: &str| -> Result<Vec<f32>, Unsound> {
        let view = file.tensor(name).map_err(|error| damaged(&error))?;
        if view.dtype() != Dtype::F32 || view.shape().len() != 1 {
            return Err(damaged(&format!(
                "{name} is {:?} of shape {:?}, not a list of F32",
                view.dtype(),
                view.shape()
            )));
        }
        let quads = view.data().chunks_exact(4);
        Ok(quads
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    };
    let [values, first, second] = TENSORS.map(tensor);
    let (values, first, second) = (values?, first?, second?);
    if first.len() != values.len() || !(second.is_empty() || second.len() == values.len()) {
        return Err(damaged(&format!(
            "it has {} values and moments of {} and {}",
            values.len(),
            first.len(),
            second.len()
        )));
    }
    Ok(JobState {
        values,
        optimizer: OptimizerState {
            first,
            second,
            step: manifest.optimizer_steps,
        },
        progress: manifest.progress.clone(),
    })
}

/// The bytes of a state.
pub(super) fn serialize(state: &JobState) -> Vec<u8> {
    let parts = [
        &state.values,
        &state.optimizer.first,
        &state.optimizer.second,
    ];
    let views = TENSORS.iter().zip(parts).map(|(&name, values)| {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let view = TensorView::new(Dtype::F32, vec![values.len()], bytes);
        (
            name,
            view.expect("a vector has as many values as its length"),
        )
    });
    safetensors::serialize(views, None).expect("sound tensors serialize")
}
