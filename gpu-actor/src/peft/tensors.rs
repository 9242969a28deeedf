//! An adapter's parameters as named tensors, in the layout of the PEFT library's files, and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernels::ops::sparse::Pattern;
use shared::excerpt::excerpt;
use shared::job::AdapterSpec;
use shared::model::{ModelShape, Projection, Target};
use thiserror::Error;

use super::layout::{Layout, LinearSite, Parameter, module_key};
use super::mask;

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
    #[error("{count} tensors are missing, such as {}: random values are never put in their place", listed(.first))]
    Missing {
        /// How many.
        count: usize,
        /// The first few.
        first: Vec<String>,
    },
    /// Names that the method does not have.
    #[error("{count} tensors are unexpected, such as {}: the configuration says another method, rank or targets", listed(.first))]
    Unexpected {
        /// How many.
        count: usize,
        /// The first few.
        first: Vec<String>,
    },
    /// A copy of the backbone's own weights.
    #[error(
        "tensor {} is the backbone's, not the adapter's: save the adapter again with `save_pretrained(..., save_embedding_layers=False)`",
        excerpt(.key)
    )]
    OfBackbone {
        /// Its name.
        key: String,
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
    /// Diff pruning: the places are none of a matrix of that shape and density.
    #[error(
        "tensor {key} must have {wanted} places, those of output {output} ascending whole numbers below {inputs}"
    )]
    Places {
        /// Its name.
        key: String,
        /// Places of the whole matrix.
        wanted: usize,
        /// The first output that has others.
        output: usize,
        /// Width of the matrix.
        inputs: usize,
    },
}

/// Names of a file from elsewhere, in one line.
fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().map(|name| excerpt(name)).collect();
    shown.join(", ")
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

/// The input of each place of every sparse delta, output by output; exact in f32 up to 2^24.
fn sparse_places(layout: &Layout) -> Vec<(String, Vec<f32>)> {
    let mut list = Vec::new();
    for (layer, sites) in layout.layers.iter().enumerate() {
        for (index, site) in sites.linear.iter().enumerate() {
            if let Some(LinearSite::Sparse { pattern, .. }) = site {
                let key = places_key(layer, index);
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

fn places_key(layer: usize, index: usize) -> String {
    format!("{}.diff_columns", module_key(layer, Projection::ALL[index]))
}

/// Takes over the places of sparse deltas from a file: they are those it was trained with, by whatever seed.
fn take_places(layout: &mut Layout, tensors: &mut Tensors) -> Result<(), TensorsError> {
    for (layer, sites) in layout.layers.iter_mut().enumerate() {
        for (index, site) in sites.linear.iter_mut().enumerate() {
            let Some(LinearSite::Sparse { pattern, .. }) = site else {
                continue;
            };
            let key = places_key(layer, index);
            let Some(found) = tensors.remove(&key) else {
                return Err(TensorsError::Missing {
                    count: 1,
                    first: vec![key],
                });
            };
            let taken = with_places(pattern, &found.values);
            *pattern = Arc::new(taken.map_err(|output| TensorsError::Places {
                key,
                wanted: pattern.len(),
                output,
                inputs: pattern.inputs(),
            })?);
        }
    }
    Ok(())
}

/// Whether a file has as many places of sparse deltas as the method and the backbone give, before any are drawn: a
/// configuration alone may ask for more than any machine holds.
///
/// # Errors
/// [`TensorsError::Missing`] or [`TensorsError::Places`] with the first tensor that has others.
pub(super) fn prove_places(
    spec: &AdapterSpec,
    shape: &ModelShape,
    tensors: &Tensors,
) -> Result<(), TensorsError> {
    let AdapterSpec::Diff(diff) = spec else {
        return Ok(());
    };
    let targets = diff.targets.resolve().expect("the spec was checked");
    for layer in 0..shape.layers {
        for target in &targets {
            let Target::Block(projection) = *target else {
                continue;
            };
            let (outputs, inputs) = shape.projection(projection);
            let wanted = mask::places_of_output(inputs, diff.density).saturating_mul(outputs);
            let key = places_key(layer, projection as usize);
            match tensors.get(&key) {
                None => {
                    return Err(TensorsError::Missing {
                        count: 1,
                        first: vec![key],
                    });
                }
                Some(found) if found.values.len() != wanted => {
                    return Err(TensorsError::Places {
                        key,
                        wanted,
                        output: 0,
                        inputs,
                    });
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// A pattern with as many places in each output and these inputs; otherwise the first output that has others.
fn with_places(pattern: &Pattern, inputs: &[f32]) -> Result<Pattern, usize> {
    if inputs.len() != pattern.len() {
        return Err(0);
    }
    let width = pattern.inputs() as f32;
    let mut starts = vec![0];
    for output in 0..pattern.outputs() {
        let places = pattern.places(output);
        let here = &inputs[places.clone()];
        let whole = |&input: &f32| input >= 0.0 && input < width && input.fract() == 0.0;
        if !here.iter().all(whole) || !here.is_sorted_by(|a, b| a < b) {
            return Err(output);
        }
        starts.push(places.end);
    }
    let columns = inputs.iter().map(|&input| input as u32).collect();
    Ok(Pattern::new(
        pattern.outputs(),
        pattern.inputs(),
        starts,
        columns,
    ))
}

/// Flat storage from named tensors: every name that the layout has, and no other. The layout's sparse deltas get the
/// places that the tensors have.
///
/// # Errors
/// [`TensorsError`] naming what is missing, unexpected, of the wrong shape or not finite.
pub fn from_tensors(layout: &mut Layout, mut tensors: Tensors) -> Result<Vec<f32>, TensorsError> {
    take_places(layout, &mut tensors)?;
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
    // The library writes it unasked where the head is a target.
    if let Some(key) = tensors.keys().find(|key| key.contains(".base_layer.")) {
        return Err(TensorsError::OfBackbone { key: key.clone() });
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
