//! The tensors of a checkpoint: values and moments in flat order.

use super::manifest::{Manifest, Unsound};
use crate::stage::optim::OptimizerState;
use crate::train::flat;
use crate::train::job_state::JobState;
use sha2::{Digest, Sha256};
use shared::hexadecimal;

pub(super) const STATE: &str = "state.safetensors";

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
    if hexadecimal::lower(&Sha256::digest(bytes)) != manifest.sha256 {
        return Err(damaged(&"it does not have the manifest's sha256"));
    }
    let [values, first, second] = flat::read(bytes).map_err(|reason| damaged(&reason))?;
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
    let optimizer = &state.optimizer;
    flat::write([&state.values, &optimizer.first, &optimizer.second])
}
