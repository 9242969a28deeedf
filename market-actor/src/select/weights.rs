//! AdaHedge with full information, at any time: exponential weights whose rate follows from what the weights themselves
//! lost, so that neither the number of rounds nor the range of what matters has to be known.
//!
//! With M members, losses `l_i = 1 - u_i` of utilities in [0, 1], `L_i` their sums over the rounds so far, and p the chances,
//!
//! ```text
//! p_i = exp(-eta L_i) / sum_j exp(-eta L_j),      eta = ln M / D       (all on the least L while D = 0)
//! D grows in each round by  sum_i p_i l_i + (1 / eta) ln sum_i p_i exp(-eta l_i),      never negative
//!                         = sum_i p_i l_i - what the least L grows by                  while D = 0
//! ```
//!
//! (de Rooij, van Erven, Grünwald, Koolen, "Follow the Leader If You Can, Hedge If You Must", JMLR 15, 2014.) Against any
//! member and any sequence the regret is at most 2 D: the losses of the mixture are within `ln M / eta <= D` of any member's,
//! and D is what the chances lose more than the mixture. Since a round's growth d is at most `eta / 8` and at most 1,
//! `D^2 <= sum (2 d D + d^2) <= n ln M / 4 + D`, so that
//!
//! ```text
//! max_i U_i - sum_k sum_i p_i u_i  <=  2 D  <=  1 + sqrt(1 + n ln M)
//! ```
//!
//! **Forgetting.** With `keep` = g below 1 all sums and D are multiplied by g before each round. That is AdaHedge on losses
//! that grow by 1 / g a round, so the same holds of regrets that are discounted so, `R_n = sum_k g^(n - k) r_k`, with
//! `n_g = (1 - g^2n) / (1 - g^2)` in place of n; and what is not discounted is `sum_k r_k = R_n + (1 - g) sum_{k<n} R_k`, which
//! may grow with n: a member that was best long ago is no longer followed.

use serde::{Deserialize, Serialize};

/// What was learned of the members of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// Sums of utilities in [0, 1], by member.
    sums: Vec<f64>,
    /// D.
    gap: f64,
    /// Rounds so far.
    rounds: u32,
    /// What a round is worth after one more; 1 forgets nothing.
    keep: f64,
}

/// A utility as a number in [0, 1]: 0 at `low` and below, 1 at `high` and above.
#[must_use]
pub fn scale(utility: f64, low: f64, high: f64) -> f64 {
    if high <= low || utility.is_nan() {
        return 0.0;
    }
    ((utility - low) / (high - low)).clamp(0.0, 1.0)
}

impl Weights {
    /// Nothing learned yet.
    #[must_use]
    pub fn new(members: usize, keep: f64) -> Self {
        Self {
            sums: vec![0.0; members],
            gap: 0.0,
            rounds: 0,
            keep,
        }
    }

    /// The same rounds with other sums: of members that came or went.
    #[must_use]
    pub const fn resumed(&self, sums: Vec<f64>) -> Self {
        Self { sums, ..*self }
    }

    /// Sums of utilities by member.
    #[must_use]
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Rounds so far.
    #[must_use]
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Whether these are weights of so many members, each a sum that so many rounds can give.
    #[must_use]
    pub fn fits(&self, members: usize) -> bool {
        let most = f64::from(self.rounds) + 1e-6;
        self.sums.len() == members
            && self.keep > 0.0
            && self.keep <= 1.0
            && (0.0..=most).contains(&self.gap)
            && self.sums.iter().all(|sum| (0.0..=most).contains(sum))
    }

    /// The chance of each member in the next round. They add up to 1.
    #[must_use]
    pub fn chances(&self) -> Vec<f64> {
        let top = self.sums.iter().copied().fold(0.0, f64::max);
        let rate = self.rate();
        let mut chances: Vec<f64> = self
            .sums
            .iter()
            .map(|sum| match rate {
                Some(rate) => (rate * (sum - top)).exp(),
                None => f64::from(u8::from(*sum >= top)),
            })
            .collect();
        let all: f64 = chances.iter().sum();
        for chance in &mut chances {
            *chance /= all;
        }
        chances
    }

    /// One more round: the utility of each member, cut to [0, 1].
    pub fn learn(&mut self, utilities: &[f64]) {
        let chances = self.chances();
        for sum in &mut self.sums {
            *sum *= self.keep;
        }
        self.gap *= self.keep;
        // The rate of the sums as they are worth now: the chances are the same by it.
        let rate = self.rate();
        let before = soft_top(&self.sums, rate);
        let mut mean = 0.0;
        for ((sum, utility), chance) in self.sums.iter_mut().zip(utilities).zip(&chances) {
            let cut = utility.clamp(0.0, 1.0);
            mean += chance * cut;
            *sum += cut;
        }
        let mixed = soft_top(&self.sums, rate) - before;
        self.gap += (mixed - mean).max(0.0);
        self.rounds += 1;
    }

    /// What the best fixed member is ahead by at most after the rounds so far, discounted where rounds are: 2 D.
    #[must_use]
    pub const fn regret(&self) -> f64 {
        2.0 * self.gap
    }

    /// What [`Self::regret`] can be at most after `rounds` rounds, whatever the utilities were.
    #[must_use]
    pub fn bound(&self, rounds: u32) -> f64 {
        if self.sums.len() < 2 || rounds == 0 {
            return 0.0;
        }
        let square = self.keep * self.keep;
        let counted = if square < 1.0 {
            (1.0 - square.powi(rounds as i32)) / (1.0 - square)
        } else {
            f64::from(rounds)
        };
        1.0 + (1.0 + counted * (self.sums.len() as f64).ln()).sqrt()
    }

    /// eta; nothing while D is 0, when it has no end.
    fn rate(&self) -> Option<f64> {
        let rate = (self.sums.len() as f64).ln() / self.gap;
        rate.is_finite().then_some(rate)
    }
}

/// `(1 / rate) ln sum exp(rate x)`, the greatest one where the rate has no end.
fn soft_top(values: &[f64], rate: Option<f64>) -> f64 {
    let top = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let Some(rate) = rate.filter(|rate| *rate > 0.0) else {
        return top;
    };
    let sum: f64 = values
        .iter()
        .map(|value| (rate * (value - top)).exp())
        .sum();
    top + sum.ln() / rate
}

#[cfg(test)]
mod tests;
