//! From logits to the next token: greedy, or temperature, top-k and top-p with a keyed draw.

use serde::{Deserialize, Serialize};
use shared::random::{Domain, Stream};
use thiserror::Error;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 takes the most likely token; higher flattens the distribution.
    pub temperature: f64,
    /// Keep only so many of the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of most likely tokens that holds this much probability.
    pub top_p: f64,
    /// Seed of the draws; draw `i` decides token `i`.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            seed: 0,
        }
    }
}

/// Says why settings make no distribution.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum SamplingError {
    /// Not a finite number from 0 up.
    #[error("temperature {0} is not a finite number from 0 up")]
    Temperature(f64),
    /// Outside 0 to 1.
    #[error("top-p {0} is outside 0 (excluded) to 1")]
    TopP(f64),
    /// The model gave a number that is not finite.
    #[error("the logit of token {0} is not finite: the model or its adapter is broken")]
    NotFinite(usize),
}

impl Sampling {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`SamplingError`] naming the setting.
    pub fn check(&self) -> Result<(), SamplingError> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(SamplingError::Temperature(self.temperature));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(SamplingError::TopP(self.top_p));
        }
        Ok(())
    }

    /// Chooses token number `index` of a text from its logits `(vocab)`; ties go to the lower token.
    ///
    /// # Errors
    /// [`SamplingError::NotFinite`] when a logit is not finite.
    pub fn choose(&self, logits: &[f32], index: u32) -> Result<u32, SamplingError> {
        if let Some(bad) = logits.iter().position(|logit| !logit.is_finite()) {
            return Err(SamplingError::NotFinite(bad));
        }
        if self.temperature == 0.0 {
            let best =
                (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
            return Ok(best.unwrap_or(0) as u32);
        }
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        order.sort_by(|&a, &b| {
            logits[b as usize]
                .total_cmp(&logits[a as usize])
                .then(a.cmp(&b))
        });
        if self.top_k > 0 {
            order.truncate(self.top_k);
        }
        let top = f64::from(logits[order[0] as usize]);
        let mut weights: Vec<f64> = order
            .iter()
            .map(|&token| libm::exp((f64::from(logits[token as usize]) - top) / self.temperature))
            .collect();
        let keep = nucleus(&weights, self.top_p);
        weights.truncate(keep);
        let total: f64 = weights.iter().sum();
        let mut left = Stream::new(self.seed, Domain::Sample, [0; 3]).uniform64(index) * total;
        for (&token, weight) in order.iter().zip(&weights) {
            if left < *weight {
                return Ok(token);
            }
            left -= weight;
        }
        Ok(order[keep - 1])
    }
}

/// How many of the sorted weights hold `share` of their sum; at least one.
fn nucleus(weights: &[f64], share: f64) -> usize {
    let wanted = share * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    for (index, weight) in weights.iter().enumerate() {
        sum += weight;
        if sum >= wanted {
            return index + 1;
        }
    }
    weights.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn greedy_takes_the_first_of_equals() {
        let greedy = Sampling::default();
        assert_eq!(greedy.choose(&[0.0, 3.0, 3.0, -1.0], 0).unwrap(), 1);
        assert!(greedy.choose(&[0.0, f32::NAN], 0).is_err());
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let logits = [1.0, 5.0, 4.0, -2.0];
        let one = Sampling {
            temperature: 1.0,
            top_k: 1,
            ..Sampling::default()
        };
        let nucleus = Sampling {
            temperature: 1.0,
            top_p: 0.7,
            ..Sampling::default()
        };
        for index in 0..200 {
            assert_eq!(one.choose(&logits, index).unwrap(), 1);
            assert_eq!(nucleus.choose(&logits, index).unwrap(), 1);
        }
    }

    #[test]
    fn draws_follow_the_distribution_and_the_seed() {
        let logits = [0.0, (3.0f32).ln()];
        let sampling = |seed| Sampling {
            temperature: 1.0,
            seed,
            ..Sampling::default()
        };
        let ones = (0..4000)
            .filter(|&i| sampling(1).choose(&logits, i).unwrap() == 1)
            .count();
        assert!(
            (2850..3150).contains(&ones),
            "{ones} of 4000 should be near 3000"
        );
        let text = |seed| {
            (0..64)
                .map(|i| sampling(seed).choose(&logits, i).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }
}
