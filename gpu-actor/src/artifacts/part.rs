//! One stage's part of a job's state, as a file, and parts joined to the whole.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use shared::ids::JobName;
use thiserror::Error;

use crate::peft::layout::Layout;
use crate::stage::optim::OptimizerState;
use crate::train::{flat, seal};

/// Where a part is, and what proves that it is that part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRef {
    /// First layer whose parameters it has; with layer 0 go those in front of it.
    pub first_layer: usize,
    /// One after the last layer; with the model's last go those behind it.
    pub end_layer: usize,
    /// Where it is stored.
    pub key: String,
    /// Of its bytes.
    pub sha256: String,
    /// How many.
    pub bytes: u64,
}

impl PartRef {
    /// The layers.
    #[must_use]
    pub fn layers(&self) -> Range<usize> {
        self.first_layer..self.end_layer
    }
}

/// Values and moments of some layers, in the order of their slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The layers.
    pub layers: Range<usize>,
    /// Values.
    pub values: Vec<f32>,
    /// Moments and steps taken.
    pub optimizer: OptimizerState,
}

/// Says why bytes are not the part they should be, or parts not a state.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PartError {
    /// Torn or changed.
    #[error("{key}: {reason}")]
    Damaged {
        /// The part.
        key: String,
        /// What shows it.
        reason: String,
    },
    /// Parts are of different optimizers.
    #[error("the part of layers {0:?} has no second moments, another has")]
    Moments(Range<usize>),
    /// Parts leave layers out or have some twice.
    #[error("parts of layers {found:?} do not make up {layers} layers")]
    Uncovered {
        /// Their layers.
        found: Vec<Range<usize>>,
        /// Of the model.
        layers: usize,
    },
}

/// The folder of a job's step in the store.
#[must_use]
pub fn folder(job: &JobName, step: u64) -> String {
    format!("{}step-{step:08}/", job_folder(job))
}

/// The folder of a job in the store.
#[must_use]
pub fn job_folder(job: &JobName) -> String {
    format!("jobs/{job}/")
}

/// Whether parts of these layers cover all of so many once.
#[must_use]
pub fn covers(parts: &[PartRef], layers: usize) -> bool {
    let mut spans: Vec<Range<usize>> = parts.iter().map(PartRef::layers).collect();
    spans.sort_by_key(|span| span.start);
    let mut at = 0;
    for span in spans {
        if span.start != at || span.end <= at {
            return false;
        }
        at = span.end;
    }
    at == layers
}

impl Part {
    /// What to store of a job, and where.
    #[must_use]
    pub fn write(&self, job: &JobName) -> (PartRef, Vec<u8>) {
        let optimizer = &self.optimizer;
        let bytes = flat::write([&self.values, &optimizer.first, &optimizer.second]);
        let Range { start, end } = self.layers;
        let folder = folder(job, optimizer.step);
        let reference = PartRef {
            first_layer: start,
            end_layer: end,
            key: format!("{folder}layers-{start}-{end}.safetensors"),
            sha256: seal::hash(&bytes),
            bytes: bytes.len() as u64,
        };
        (reference, bytes)
    }

    /// The part of these bytes, which must be the ones that were stored, after so many steps.
    ///
    /// # Errors
    /// [`PartError::Damaged`] when they are not, or not those of a slice of the layout.
    pub fn read(
        reference: &PartRef,
        bytes: &[u8],
        step: u64,
        layout: &Layout,
    ) -> Result<Self, PartError> {
        let damaged = |reason: String| PartError::Damaged {
            key: reference.key.clone(),
            reason,
        };
        if bytes.len() as u64 != reference.bytes {
            let (found, wanted) = (bytes.len(), reference.bytes);
            let reason = format!("it has {found} bytes, the manifest says {wanted}");
            return Err(damaged(reason));
        }
        if seal::hash(bytes) != reference.sha256 {
            return Err(damaged("it does not have the manifest's sha256".into()));
        }
        let [values, first, second] = flat::read(bytes).map_err(damaged)?;
        let layers = reference.layers();
        if layers.is_empty() || layers.end > layout.layers.len() {
            return Err(damaged(format!("there are no layers {layers:?}")));
        }
        let (found, wanted) = (values.len(), layout.slice(layers.clone()).len);
        if found != wanted {
            let reason = format!("it has {found} values, the method has {wanted} there");
            return Err(damaged(reason));
        }
        Ok(Self {
            layers,
            values,
            optimizer: OptimizerState {
                first,
                second,
                step,
            },
        })
    }
}

/// What a slice of these layers has of a state whose parts were cut anyhow.
///
/// # Errors
/// [`PartError::Uncovered`] when a layer is in none of the parts.
pub fn cut(layout: &Layout, span: Range<usize>, parts: &[Part]) -> Result<Part, PartError> {
    let missing = |layer: usize| !parts.iter().any(|part| part.layers.contains(&layer));
    if parts.is_empty() || span.clone().any(missing) {
        return Err(PartError::Uncovered {
            found: parts.iter().map(|part| part.layers.clone()).collect(),
            layers: span.end,
        });
    }
    // A part may have no values at all: that of a stage where the method has no site.
    let both = parts.iter().any(|part| !part.optimizer.second.is_empty());
    let mut values = vec![0.0; layout.len];
    let mut first = vec![0.0; layout.len];
    let mut second = vec![0.0; if both { layout.len } else { 0 }];
    for part in parts {
        let slice = layout.slice(part.layers.clone());
        slice.join(&part.values, &mut values);
        slice.join(&part.optimizer.first, &mut first);
        if both {
            if part.optimizer.second.len() != slice.len {
                return Err(PartError::Moments(part.layers.clone()));
            }
            slice.join(&part.optimizer.second, &mut second);
        }
    }
    let slice = layout.slice(span.clone());
    let own = |whole: &[f32]| {
        if whole.is_empty() {
            return Vec::new();
        }
        slice.cut(whole)
    };
    Ok(Part {
        layers: span,
        values: own(&values),
        optimizer: OptimizerState {
            first: own(&first),
            second: own(&second),
            step: parts[0].optimizer.step,
        },
    })
}

/// Parts of all layers joined.
///
/// # Errors
/// [`PartError::Uncovered`] when a layer is in none of the parts.
pub fn join(layout: &Layout, parts: &[Part]) -> Result<Part, PartError> {
    cut(layout, 0..layout.layers.len(), parts)
}
