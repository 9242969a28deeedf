//! A bottleneck adapter: what it adds is U f(D x + d) + u, from the sub-layer's output (serial) or input (parallel).

use shared::job::NonLinearity;

use super::activation;
use super::matrix::Matrix;
use super::tensor::{self, Tensors};

/// One bottleneck.
#[derive(Clone, Debug)]
pub struct Bottleneck {
    /// D, `(size, hidden)`.
    pub down: Matrix,
    /// d, `(size)`.
    pub down_bias: Vec<f64>,
    /// U, `(hidden, size)`.
    pub up: Matrix,
    /// u, `(hidden)`.
    pub up_bias: Vec<f64>,
    /// f.
    pub non_linearity: NonLinearity,
    /// Fed by the sub-layer's normed input instead of its output.
    pub parallel: bool,
    /// Its name in adapter files.
    pub key: String,
}

/// What backward needs of [`Bottleneck::forward`].
#[derive(Clone, Debug)]
pub struct BottleneckTape {
    input: Matrix,
    /// D x + d.
    inner: Matrix,
}

impl Bottleneck {
    /// What is added, for the input `(rows, hidden)`.
    #[must_use]
    pub fn forward(&self, x: &Matrix) -> (Matrix, BottleneckTape) {
        let mut inner = x.times_transposed(&self.down);
        inner.add_to_rows(&self.down_bias);
        let active = inner.map(|value| activation::apply(self.non_linearity, value));
        let mut y = active.times_transposed(&self.up);
        y.add_to_rows(&self.up_bias);
        let input = x.clone();
        (y, BottleneckTape { input, inner })
    }

    /// Reverses [`Self::forward`].
    #[must_use]
    pub fn backward(&self, tape: &BottleneckTape, dy: &Matrix, gradient: &mut Tensors) -> Matrix {
        let kind = self.non_linearity;
        let active = tape.inner.map(|value| activation::apply(kind, value));
        let slopes = tape.inner.map(|value| activation::slope(kind, value));
        let d_inner = dy.times(&self.up).products(&slopes);
        let mut add = |leaf: &str, values: &[f64]| {
            tensor::add(gradient, &format!("{}.{leaf}", self.key), values);
        };
        add("up_proj.weight", &dy.transposed_times(&active).values);
        add("up_proj.bias", &dy.row_sum());
        add(
            "down_proj.weight",
            &d_inner.transposed_times(&tape.input).values,
        );
        add("down_proj.bias", &d_inner.row_sum());
        d_inner.times(&self.down)
    }
}
