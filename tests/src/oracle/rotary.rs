//! Rotary positions of the half-split kind.
//!
//! Pair i of a head is (x_i, x_{i + d/2}); at position p it turns by p * f_i, f_i = theta^(-2i/d), with f_i changed
//! as the model says. Turning back by the same angle is the reverse.

use std::f64::consts::PI;

use shared::model::{Rope, RopeScaling};

use super::matrix::Matrix;

/// The turn per position of each pair of a head, in radians.
#[must_use]
pub fn frequencies(rope: &Rope, head_dim: usize) -> Vec<f64> {
    let plain = |pair: usize| rope.theta.powf(-((2 * pair) as f64) / head_dim as f64);
    (0..head_dim / 2)
        .map(|pair| scaled(plain(pair), &rope.scaling))
        .collect()
}

fn scaled(frequency: f64, scaling: &RopeScaling) -> f64 {
    match scaling {
        RopeScaling::Default => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            let original = *original_max_position_embeddings as f64;
            let wavelength = 2.0 * PI / frequency;
            if wavelength > original / low_freq_factor {
                return frequency / factor;
            }
            if wavelength < original / high_freq_factor {
                return frequency;
            }
            let smooth =
                (original / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
            (1.0 - smooth) * frequency / factor + smooth * frequency
        }
    }
}

/// Which way to turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Forward.
    Forth,
    /// The reverse, for gradients.
    Back,
}

/// Turns every head of every row; row t is at position `first + t`.
#[must_use]
pub fn turn(x: &Matrix, frequencies: &[f64], first: usize, direction: Direction) -> Matrix {
    let half = frequencies.len();
    let mut y = x.clone();
    for t in 0..x.rows {
        for head in y.row_mut(t).chunks_mut(2 * half) {
            for (pair, frequency) in frequencies.iter().enumerate() {
                let angle = (first + t) as f64 * frequency;
                let (sine, cosine) = match direction {
                    Direction::Forth => angle.sin_cos(),
                    Direction::Back => (-angle).sin_cos(),
                };
                let (a, b) = (head[pair], head[pair + half]);
                head[pair] = a * cosine - b * sine;
                head[pair + half] = b * cosine + a * sine;
            }
        }
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::differences::{assert_gradient, random};

    #[test]
    fn the_gradient_is_the_slope() {
        let rope = Rope {
            theta: 100.0,
            scaling: RopeScaling::Linear { factor: 2.0 },
        };
        let frequencies = frequencies(&rope, 4);
        let (x, dy) = (random(5, 8, 1), random(5, 8, 2));
        let dx = turn(&dy, &frequencies, 3, Direction::Back);
        assert_gradient(&x, &dx, &dy, |x| turn(x, &frequencies, 3, Direction::Forth));
    }

    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 64,
        };
        assert!((scaled(1.0, &scaling) - 1.0).abs() < 1e-15);
        assert!((scaled(1e-4, &scaling) - 1e-4 / 8.0).abs() < 1e-18);
        // A wavelength of 32: original / wavelength = 2, a third of the way from 1 to 4.
        let between = scaled(2.0 * PI / 32.0, &scaling) / (2.0 * PI / 32.0);
        assert!((between - (2.0 / 3.0 / 8.0 + 1.0 / 3.0)).abs() < 1e-12);
    }
}
