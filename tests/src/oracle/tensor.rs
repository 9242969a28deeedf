//! Named tensors in f64: adapter parameters, their gradients and moments, keyed by the PEFT library's names.

use std::collections::BTreeMap;

use super::matrix::Matrix;

/// A tensor of any number of dimensions, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Shape.
    pub shape: Vec<usize>,
    /// Values.
    pub values: Vec<f64>,
}

impl Tensor {
    /// A tensor with these values.
    ///
    /// # Panics
    /// When there are not as many as the shape says.
    #[must_use]
    pub fn new(shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(
            values.len(),
            shape.iter().product::<usize>(),
            "a tensor of {shape:?}"
        );
        Self {
            shape: shape.to_vec(),
            values,
        }
    }

    /// A tensor of zeros.
    #[must_use]
    pub fn zeros(shape: &[usize]) -> Self {
        Self::new(shape, vec![0.0; shape.iter().product()])
    }

    /// A tensor of two dimensions as a matrix.
    ///
    /// # Panics
    /// When it has another number of dimensions.
    #[must_use]
    pub fn matrix(&self) -> Matrix {
        let &[rows, columns] = self.shape.as_slice() else {
            panic!("a tensor of {:?} is no matrix", self.shape);
        };
        Matrix::new(rows, columns, self.values.clone())
    }

    /// The largest magnitude; 0 when there is no value.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.values.iter().fold(0.0, |most, v| v.abs().max(most))
    }
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Zeros for each tensor.
#[must_use]
pub fn zeros_like(tensors: &Tensors) -> Tensors {
    let zero = |(key, tensor): (&String, &Tensor)| (key.clone(), Tensor::zeros(&tensor.shape));
    tensors.iter().map(zero).collect()
}

/// Adds values to the tensor of that name.
///
/// # Panics
/// When there is no such tensor, or when it has another number of values.
pub fn add(tensors: &mut Tensors, key: &str, values: &[f64]) {
    let tensor = tensors.get_mut(key);
    let tensor = tensor.unwrap_or_else(|| panic!("no parameter is named {key}"));
    assert_eq!(tensor.values.len(), values.len(), "values of {key}");
    for (sum, value) in tensor.values.iter_mut().zip(values) {
        *sum += value;
    }
}

/// The square root of the sum of all squares.
#[must_use]
pub fn global_norm(tensors: &Tensors) -> f64 {
    let values = tensors.values().flat_map(|tensor| &tensor.values);
    values.map(|value| value * value).sum::<f64>().sqrt()
}
