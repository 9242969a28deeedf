//! An adapter's parameters as named tensors, in the layout of the PEFT library's files, and back.

use std::collections::BTreeMap;

use thiserror::Error;

use super::layout::{Layout, LinearSite, Parameter};

/// One named tensor of f32 values.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Shape.
    pub shape: Vec<usize>,
    /// Values, row-major.
    pub values: Vec<f32>,
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, NamedTensor>;

/// Says why tensors do not make an adapter.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TensorsError {
    /// Names that the method needs are absent.
    #[error("{count} tensors are missing, such as {}: random values are never put in their place", first.join(", "))]
    Missing {
        /// How many.
        count: usize,
        /// The first few.
        first: Vec<String>,
    },
    /// Names that the method does not have.
    #[error("{count} tensors are unexpected, such as {}: the configuration says another method, rank or targets", first.join(", "))]
    Unexpected {
        /// How many.
        count: usize,
        /// The first few.
        first: Vec<String>,
    },
    /// A tensor of the wrong shape.
    #[error("tensor {key} has shape {found:?}, wanted {wanted:?}")]
    Shape {
        /// Its name.
        key: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the method and the backbone give.
        wanted: Vec<usize>,
    },
    /// A value that is not finite.
    #[error("tensor {key} has a value that is not finite at flat index {index}")]
    NotFinite {
        /// Its name.
        key: String,
        /// Row-major index.
        index: usize,
    },
    /// Diff pruning: the file's places are not those of its seed.
    #[error(
        "tensor {key} has other places than seed {seed} and this density give: import it with the seed it was made with"
    )]
    Places {
        /// Its name.
        key: String,
        /// The seed tried.
        seed: u64,
    },
}

/// All parameters as the file has them.
#[must_use]
pub fn to_tensors(layout: &Layout, values: &[f32]) -> Tensors {
    let mut tensors: Tensors = layout
        .parameters
        .iter()
        .map(|parameter| (parameter.key.clone(), to_tensor(parameter, values)))
        .collect();
    for (key, places) in sparse_places(layout) {
        tensors.insert(
            key,
            NamedTensor {
                shape: vec![places.len()],
                values: places,
            },
        );
    }
    tensors
}

/// One parameter (or its gradient or moment) as the file has it.
#[must_use]
pub fn to_tensor(parameter: &Parameter, flat: &[f32]) -> NamedTensor {
    let stored = &flat[parameter.range.clone()];
    let values = match (parameter.transposed, parameter.shape.as_slice()) {
        (true, [rows, columns]) => transpose(stored, *columns, *rows),
        _ => stored.to_vec(),
    };
    NamedTensor {
        shape: parameter.shape.clone(),
        values,
    }
}

/// Transposes `(rows, columns)`.
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; values.len()];
    for row in 0..rows {
        for column in 0..columns {
            out[column * rows + row] = values[row * columns + column];
        }
    }
    out
}

/// The places of every sparse delta as `row * in + column`, exact in f32 up to 2^24, else as two halves.
fn sparse_places(layout: &Layout) -> Vec<(String, Vec<f32>)> {
    let mut list = Vec::new();
    for (layer, sites) in layout.layers.iter().enumerate() {
        for (index, site) in sites.linear.iter().enumerate() {
            if let Some(LinearSite::Sparse { pattern, .. }) = site {
                let projection = shared::model::Projection::ALL[index];
                let key = format!(
                    "{}.diff_columns",
                    super::layout::module_key(layer, projection)
                );
                let columns = pattern
                    .columns()
                    .iter()
                    .map(|&column| column as f32)
                    .collect();
                list.push((key, columns));
            }
        }
    }
    list
}

/// Flat storage from named tensors: every name that the layout has, and no other.
///
/// # Errors
/// [`TensorsError`] naming what is missing, unexpected, of the wrong shape or not finite.
pub fn from_tensors(
    layout: &Layout,
    mut tensors: Tensors,
    seed: u64,
) -> Result<Vec<f32>, TensorsError> {
    for (key, places) in sparse_places(layout) {
        match tensors.remove(&key) {
            Some(found) if found.values == places => {}
            Some(_) => return Err(TensorsError::Places { key, seed }),
            None => {
                return Err(TensorsError::Missing {
                    count: 1,
                    first: vec![key],
                });
            }
        }
    }
    let missing: Vec<&Parameter> = layout
        .parameters
        .iter()
        .filter(|p| !tensors.contains_key(&p.key))
        .collect();
    if !missing.is_empty() {
        let first = missing.iter().take(3).map(|p| p.key.clone()).collect();
        return Err(TensorsError::Missing {
            count: missing.len(),
            first,
        });
    }
    let mut values = vec![0.0; layout.len];
    for parameter in &layout.parameters {
        let Some(tensor) = tensors.remove(&parameter.key) else {
            continue;
        };
        place(parameter, tensor, &mut values)?;
    }
    if !tensors.is_empty() {
        let first = tensors.keys().take(3).cloned().collect();
        return Err(TensorsError::Unexpected {
            count: tensors.len(),
            first,
        });
    }
    Ok(values)
}

fn place(
    parameter: &Parameter,
    tensor: NamedTensor,
    values: &mut [f32],
) -> Result<(), TensorsError> {
    let key = || parameter.key.clone();
    // The library has written vectors as (n), (1, n) and (n, 1) over time: ones are not a difference.
    let plain = |shape: &[usize]| {
        shape
            .iter()
            .copied()
            .filter(|&n| n != 1)
            .collect::<Vec<_>>()
    };
    if plain(&tensor.shape) != plain(&parameter.shape) {
        let (found, wanted) = (tensor.shape, parameter.shape.clone());
        return Err(TensorsError::Shape {
            key: key(),
            found,
            wanted,
        });
    }
    if let Some(index) = tensor.values.iter().position(|value| !value.is_finite()) {
        return Err(TensorsError::NotFinite { key: key(), index });
    }
    let stored = match (parameter.transposed, parameter.shape.as_slice()) {
        (true, [rows, columns]) => transpose(&tensor.values, *rows, *columns),
        _ => tensor.values,
    };
    values[parameter.range.clone()].copy_from_slice(&stored);
    Ok(())
}
