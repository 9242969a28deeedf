//! Prefix tuning: keys and values in front of every sequence, given or computed by a small network.
//!
//! The prefix is P `(tokens, 2 * layers * kv_width)`: the key of layer i at run 2 i of kv_width columns, the value at
//! run 2 i + 1; keys are not rotated. With the reparameterising network P = tanh(E F^T + f) S^T + s, from an
//! embedding E `(tokens, kv_width)`.

use shared::job::AdapterSpec;

use super::adapter::Adapter;
use super::matrix::Matrix;
use super::tensor::{self, Tensors};

const DIRECT: &str = "prompt_embeddings";
const EMBEDDING: &str = "prompt_encoder.embedding.weight";
const FIRST: &str = "prompt_encoder.transform.0.weight";
const FIRST_BIAS: &str = "prompt_encoder.transform.0.bias";
const SECOND: &str = "prompt_encoder.transform.2.weight";
const SECOND_BIAS: &str = "prompt_encoder.transform.2.bias";

/// A prefix, as attention sees it and as backward needs it.
#[derive(Clone, Debug)]
pub struct Prefix {
    /// P.
    rows: Matrix,
    /// tanh(E F^T + f), with the network.
    inner: Option<Matrix>,
}

impl Prefix {
    /// The prefix of an adapter, if its method has one.
    #[must_use]
    pub fn of(adapter: &Adapter) -> Option<Self> {
        let AdapterSpec::Prefix(_) = adapter.spec else {
            return None;
        };
        let all = &adapter.parameters;
        if let Some(direct) = all.get(DIRECT) {
            return Some(Self {
                rows: direct.matrix(),
                inner: None,
            });
        }
        let mut inner = all
            .get(EMBEDDING)?
            .matrix()
            .times_transposed(&all.get(FIRST)?.matrix());
        inner.add_to_rows(&all.get(FIRST_BIAS)?.values);
        let inner = inner.map(f64::tanh);
        let mut rows = inner.times_transposed(&all.get(SECOND)?.matrix());
        rows.add_to_rows(&all.get(SECOND_BIAS)?.values);
        Some(Self {
            rows,
            inner: Some(inner),
        })
    }

    /// Number of virtual tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.rows.rows
    }

    /// P.
    #[must_use]
    pub fn rows(&self) -> &Matrix {
        &self.rows
    }

    /// A gradient of P, zero as yet.
    #[must_use]
    pub fn no_gradient(&self) -> Matrix {
        Matrix::zeros(self.rows.rows, self.rows.columns)
    }

    /// Keys and values of a layer, `(tokens, kv_width)` each.
    #[must_use]
    pub fn keys_and_values(&self, layer: usize, kv_width: usize) -> (Matrix, Matrix) {
        let run = |run: usize| {
            let columns = run * kv_width..(run + 1) * kv_width;
            let values = self.rows.each_row().flat_map(|row| &row[columns.clone()]);
            Matrix::new(self.rows.rows, kv_width, values.copied().collect())
        };
        (run(2 * layer), run(2 * layer + 1))
    }

    /// Turns the gradient of P into that of the parameters.
    ///
    /// # Panics
    /// When the adapter is not the one this prefix is of.
    pub fn backward(&self, adapter: &Adapter, d_rows: &Matrix, gradient: &mut Tensors) {
        let Some(inner) = &self.inner else {
            tensor::add(gradient, DIRECT, &d_rows.values);
            return;
        };
        let matrix = |key: &str| adapter.parameters[key].matrix();
        tensor::add(gradient, SECOND_BIAS, &d_rows.row_sum());
        tensor::add(gradient, SECOND, &d_rows.transposed_times(inner).values);
        let slopes = inner.map(|value| 1.0 - value * value);
        let d_inner = d_rows.times(&matrix(SECOND)).products(&slopes);
        tensor::add(gradient, FIRST_BIAS, &d_inner.row_sum());
        let d_first = d_inner.transposed_times(&matrix(EMBEDDING));
        tensor::add(gradient, FIRST, &d_first.values);
        tensor::add(gradient, EMBEDDING, &d_inner.times(&matrix(FIRST)).values);
    }
}

/// Adds the gradients of a layer's keys and values to that of P.
pub fn add_layer(d_rows: &mut Matrix, layer: usize, d_keys: &Matrix, d_values: &Matrix) {
    for (run, part) in [(2 * layer, d_keys), (2 * layer + 1, d_values)] {
        for token in 0..part.rows {
            let columns = run * part.columns..(run + 1) * part.columns;
            let row = &mut d_rows.row_mut(token)[columns];
            for (sum, value) in row.iter_mut().zip(part.row(token)) {
                *sum += value;
            }
        }
    }
}
