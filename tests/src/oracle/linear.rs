//! A frozen linear layer with what an adapter changes there.
//!
//! - low rank: y = W x + s B A drop(x), for DoRA times m / n; then the bias. With g = dy (times m / n):
//!   dx = W^T g + drop(s A^T B^T g), dB = s g (A drop(x))^T, dA = s B^T g drop(x)^T, dm = sum of dy y' / n, where
//!   y' is the value before m / n;
//! - scaled input: y = W (l x) + bias; scaled output: y = l (W x + bias); bias: y = W x + bias + b;
//! - sparse: y = (W + D) x + bias, D zero but at its places.

use shared::model::Target;

use super::adapter::{Adapter, Change};
use super::dropout::{self, Draw};
use super::matrix::Matrix;
use super::tensor::{self, Tensors};

/// A linear layer of the backbone.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// Its name in the PEFT library's files.
    pub module: &'a str,
    /// What it is.
    pub target: Target,
    /// layer * 7 + projection: part of the key of dropout.
    pub site: u32,
    /// W, `(out, in)`.
    pub weight: &'a Matrix,
    /// `(out)`.
    pub bias: Option<&'a [f64]>,
}

/// What backward needs of [`Linear::forward`].
#[derive(Clone, Debug)]
pub struct LinearTape {
    /// x.
    input: Matrix,
    /// Factors of dropout.
    drop: Option<Matrix>,
    /// A drop(x), `(rows, rank)`.
    low: Option<Matrix>,
    /// The output before it was scaled.
    plain: Option<Matrix>,
}

impl Linear<'_> {
    /// The output `(rows, out)` for `x` `(rows, in)`.
    #[must_use]
    pub fn forward(
        &self,
        adapter: Option<&Adapter>,
        draw: Option<Draw>,
        x: &Matrix,
    ) -> (Matrix, LinearTape) {
        let change = adapter.map_or(Change::None, |a| a.change(self.module, self.target));
        let mut tape = LinearTape {
            input: x.clone(),
            drop: None,
            low: None,
            plain: None,
        };
        let mut y = match &change {
            Change::ScaleInput(l) => {
                let mut scaled = x.clone();
                scaled.multiply_rows(l);
                scaled.times_transposed(self.weight)
            }
            _ => x.times_transposed(self.weight),
        };
        match &change {
            Change::LowRank {
                a,
                b,
                scale,
                dropout,
                magnitude,
            } => {
                let draw = draw.filter(|_| *dropout > 0.0);
                tape.drop =
                    draw.map(|d| dropout::factors(d, self.site, *dropout, x.rows, x.columns));
                let low = dropped(x, &tape).times_transposed(a);
                y.add(&low.times_transposed(b).scaled(*scale));
                tape.low = Some(low);
                if let Some((magnitude, norm)) = magnitude {
                    tape.plain = Some(y.clone());
                    y.multiply_rows(&quotients(magnitude, norm));
                }
            }
            Change::Sparse { values, columns } => {
                y.add(&x.times_transposed(&self.delta(values, columns)));
            }
            _ => {}
        }
        if let Some(bias) = self.bias {
            y.add_to_rows(bias);
        }
        match &change {
            Change::Bias(bias) => y.add_to_rows(bias),
            Change::ScaleOutput(l) => {
                tape.plain = Some(y.clone());
                y.multiply_rows(l);
            }
            _ => {}
        }
        (y, tape)
    }

    /// Reverses [`Self::forward`]: adds the parameters' gradients and returns that of the input.
    ///
    /// # Panics
    /// When the tape is of another method.
    #[must_use]
    pub fn backward(
        &self,
        adapter: Option<&Adapter>,
        tape: &LinearTape,
        dy: &Matrix,
        gradient: &mut Tensors,
    ) -> Matrix {
        let key = |leaf: &str| format!("{}.{leaf}", self.module);
        match adapter.map_or(Change::None, |a| a.change(self.module, self.target)) {
            Change::None => dy.times(self.weight),
            Change::LowRank {
                a,
                b,
                scale,
                magnitude,
                ..
            } => {
                let mut g = dy.clone();
                if let Some((magnitude, norm)) = magnitude {
                    let plain = tape.plain.as_ref().expect("DoRA keeps its plain output");
                    let d_magnitude = quotients(&dy.products(plain).row_sum(), norm);
                    tensor::add(gradient, &key("lora_magnitude_vector"), &d_magnitude);
                    g.multiply_rows(&quotients(magnitude, norm));
                }
                let low = tape.low.as_ref().expect("a low-rank pair keeps A x");
                let d_b = g.transposed_times(low).scaled(scale);
                let d_low = g.times(&b).scaled(scale);
                let d_a = d_low.transposed_times(&dropped(&tape.input, tape));
                tensor::add(gradient, &key("lora_B.weight"), &d_b.values);
                tensor::add(gradient, &key("lora_A.weight"), &d_a.values);
                let mut dx = g.times(self.weight);
                dx.add(&dropped(&d_low.times(&a), tape));
                dx
            }
            Change::ScaleInput(l) => {
                let mut d_scaled = dy.times(self.weight);
                let d_l = d_scaled.products(&tape.input).row_sum();
                tensor::add(gradient, &key("ia3_l"), &d_l);
                d_scaled.multiply_rows(l);
                d_scaled
            }
            Change::ScaleOutput(l) => {
                let plain = tape.plain.as_ref().expect("a scaled output is kept");
                tensor::add(gradient, &key("ia3_l"), &dy.products(plain).row_sum());
                let mut d_plain = dy.clone();
                d_plain.multiply_rows(l);
                d_plain.times(self.weight)
            }
            Change::Bias(_) => {
                tensor::add(gradient, &key("bias_delta"), &dy.row_sum());
                dy.times(self.weight)
            }
            Change::Sparse { values, columns } => {
                let d_delta = dy.transposed_times(&tape.input);
                let each_row = values.len() / self.weight.rows;
                let place = |(i, &column): (usize, &usize)| d_delta.row(i / each_row)[column];
                let d_values: Vec<f64> = columns.iter().enumerate().map(place).collect();
                tensor::add(gradient, &key("diff_values"), &d_values);
                let mut dx = dy.times(self.weight);
                dx.add(&dy.times(&self.delta(values, columns)));
                dx
            }
        }
    }

    /// D, `(out, in)`.
    fn delta(&self, values: &[f64], columns: &[usize]) -> Matrix {
        let each_row = values.len() / self.weight.rows;
        let mut delta = Matrix::zeros(self.weight.rows, self.weight.columns);
        for (i, (&value, &column)) in values.iter().zip(columns).enumerate() {
            delta.row_mut(i / each_row)[column] += value;
        }
        delta
    }
}

/// Applies the factors of dropout, if there are any; linear, so it is its own reverse.
fn dropped(x: &Matrix, tape: &LinearTape) -> Matrix {
    tape.drop
        .as_ref()
        .map_or_else(|| x.clone(), |factors| x.products(factors))
}

fn quotients(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(a, b)| a / b).collect()
}
