//! Rotation frequencies of rotary positions.
//!
//! Powers are those of a library in Rust: the platform's may differ in the last bit, and a stage that moves would notice.
//!
//! Pair `i` of a head turns by `position * f_i`, `f_i = theta^(-2 i / head_dim)`, then scaled:
//! - linear: `f / factor`
//! - llama3: with wavelength `w = 2 pi / f` and `o` the original context: `f / factor` where
//!   `w > o / low_freq_factor`, `f` where `w < o / high_freq_factor`, and between them
//!   `(1 - s) f / factor + s f` with `s = (o / w - low) / (high - low)`.

use super::{Rope, RopeScaling};

impl Rope {
    /// The turn per position, in radians, of each pair of a head: `(head_dim / 2)`.
    #[must_use]
    pub fn inverse_frequencies(&self, head_dim: usize) -> Vec<f64> {
        (0..head_dim / 2)
            .map(|pair| {
                let plain = libm::pow(self.theta, -2.0 * pair as f64 / head_dim as f64);
                plain / self.scaling.divisor(plain)
            })
            .collect()
    }
}

impl RopeScaling {
    /// What a frequency is divided by.
    #[must_use]
    pub fn divisor(&self, frequency: f64) -> f64 {
        match *self {
            Self::Default => 1.0,
            Self::Linear { factor } => factor,
            Self::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                let original = original as f64;
                let wavelength = std::f64::consts::TAU / frequency;
                if wavelength < original / high {
                    1.0
                } else if wavelength > original / low {
                    factor
                } else {
                    let smooth = (original / wavelength - low) / (high - low);
                    1.0 / ((1.0 - smooth) / factor + smooth)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_linear_are_geometric() {
        let mut rope = Rope {
            theta: 10_000.0,
            scaling: RopeScaling::Default,
        };
        let plain = rope.inverse_frequencies(4);
        assert_eq!(plain.len(), 2);
        assert!((plain[0] - 1.0).abs() < 1e-15 && (plain[1] - 0.01).abs() < 1e-15);
        rope.scaling = RopeScaling::Linear { factor: 4.0 };
        let linear = rope.inverse_frequencies(4);
        assert!((linear[0] - 0.25).abs() < 1e-15 && (linear[1] - 0.0025).abs() < 1e-15);
    }

    /// Llama 3.1 as published: 128-wide heads, base 500000, factor 8, context 8192.
    #[test]
    fn llama3_divides_long_wavelengths_keeps_short_ones_and_ramps_between() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        };
        let frequencies = |scaling| {
            Rope {
                theta: 500_000.0,
                scaling,
            }
            .inverse_frequencies(128)
        };
        let plain = frequencies(RopeScaling::Default);
        let divisors: Vec<f64> = frequencies(scaling)
            .iter()
            .zip(&plain)
            .map(|(scaled, plain)| plain / scaled)
            .collect();
        assert!(divisors[..28].iter().all(|d| (d - 1.0).abs() < 1e-12));
        assert!(divisors[36..].iter().all(|d| (d - 8.0).abs() < 1e-12));
        assert!(divisors.windows(2).all(|pair| pair[0] <= pair[1] + 1e-12));
        assert!(divisors[29] > 1.0 && divisors[34] < 8.0);
    }
}
