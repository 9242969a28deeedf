//! Exponentiated gradient with full information, at any time.
//!
//! With M members, utilities `u_i` in [0, 1], and `U_i` their sums over the rounds so far,
//!
//! ```text
//! p_i = exp(eta_k U_i) / sum_j exp(eta_k U_j),      eta_k = c sqrt(8 ln M / k)      in round k
//! ```
//!
//! For any decreasing rates (Cesa-Bianchi, Lugosi, "Prediction, Learning, and Games", theorem 2.3 and its proof)
//!
//! ```text
//! max_i U_i - sum_k sum_i p_i u_i  <=  (2 / eta_{n+1} - 1 / eta_1) ln M + sum_{k <= n} eta_k / 8
//! ```
//!
//! which for c = 1 is at most `2 sqrt(n ln M / 2) + sqrt(ln M / 8)`. [`Weights::bound`] is the right-hand side as it stands.

use serde::{Deserialize, Serialize};

/// What was learned of the members of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weights {
    /// Sums of utilities in [0, 1], by member.
    sums: Vec<f64>,
    /// Rounds so far.
    rounds: u32,
    /// Multiple of the standard learning rate.
    boost: f64,
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
    pub fn new(members: usize, boost: f64) -> Self {
        Self::resumed(vec![0.0; members], 0, boost)
    }

    /// Sums of `rounds` rounds.
    #[must_use]
    pub const fn resumed(sums: Vec<f64>, rounds: u32, boost: f64) -> Self {
        Self {
            sums,
            rounds,
            boost,
        }
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
            && self.boost > 0.0
            && self.sums.iter().all(|sum| (0.0..=most).contains(sum))
    }

    /// The chance of each member in the next round. They add up to 1.
    #[must_use]
    pub fn chances(&self) -> Vec<f64> {
        let eta = self.rate(self.rounds + 1);
        let top = self.sums.iter().copied().fold(0.0, f64::max);
        let mut chances: Vec<f64> = self
            .sums
            .iter()
            .map(|sum| (eta * (sum - top)).exp())
            .collect();
        let all: f64 = chances.iter().sum();
        for chance in &mut chances {
            *chance /= all;
        }
        chances
    }

    /// One more round: the utility of each member, cut to [0, 1].
    pub fn learn(&mut self, utilities: &[f64]) {
        for (sum, utility) in self.sums.iter_mut().zip(utilities) {
            *sum += utility.clamp(0.0, 1.0);
        }
        self.rounds += 1;
    }

    /// What the best fixed member can be ahead by after `rounds` rounds, whatever the utilities were.
    #[must_use]
    pub fn bound(&self, rounds: u32) -> f64 {
        if self.sums.len() < 2 || rounds == 0 {
            return 0.0;
        }
        let log = (self.sums.len() as f64).ln();
        let rates: f64 = (1..=rounds).map(|round| self.rate(round) / 8.0).sum();
        (2.0 / self.rate(rounds + 1) - 1.0 / self.rate(1)) * log + rates
    }

    /// The rate of a round, counted from 1.
    fn rate(&self, round: u32) -> f64 {
        let log = (self.sums.len() as f64).ln();
        self.boost * (8.0 * log / f64::from(round)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::random::{Domain, Stream};

    /// Plays a sequence that may look at the chances before it answers, and returns the regret.
    fn regret(
        members: usize,
        boost: f64,
        rounds: u32,
        mut adversary: impl FnMut(u32, &Weights) -> Vec<f64>,
    ) -> (f64, f64) {
        let mut weights = Weights::new(members, boost);
        let mut earned = 0.0;
        for round in 0..rounds {
            let utilities = adversary(round, &weights);
            let chances = weights.chances();
            earned += chances
                .iter()
                .zip(&utilities)
                .map(|(c, u)| c * u)
                .sum::<f64>();
            weights.learn(&utilities);
        }
        let best = weights.sums().iter().copied().fold(0.0, f64::max);
        (best - earned, weights.bound(rounds))
    }

    fn leader(weights: &Weights) -> usize {
        let sums = weights.sums();
        (0..sums.len()).fold(0, |best, at| if sums[at] > sums[best] { at } else { best })
    }

    #[test]
    fn regret_stays_below_its_bound_on_adversarial_sequences() {
        for boost in [1.0, 4.0] {
            for members in [2, 11, 23] {
                for rounds in [10, 66, 1000] {
                    let check = |name: &str, (regret, bound): (f64, f64)| {
                        assert!(
                            regret <= bound + 1e-9,
                            "{name} x{boost} M {members} n {rounds}: {regret} above {bound}"
                        );
                        regret
                    };
                    // Ruins whoever follows the leader: the leader of now earns nothing.
                    let ruin = regret(members, boost, rounds, |_, weights| {
                        let leader = leader(weights);
                        (0..members)
                            .map(|at| f64::from(u8::from(at != leader)))
                            .collect()
                    });
                    check("against the leader", ruin);
                    // Whoever is likeliest earns nothing: the adversary sees the chances.
                    let likeliest = regret(members, boost, rounds, |_, weights| {
                        let chances = weights.chances();
                        let top = chances.iter().copied().fold(0.0, f64::max);
                        chances
                            .iter()
                            .map(|c| f64::from(u8::from(*c < top)))
                            .collect()
                    });
                    check("against the likeliest", likeliest);
                    // Coins: the best of M random walks.
                    let coins = regret(members, boost, rounds, |round, _| {
                        let stream = Stream::new(9, Domain::Policy, [round, 0, 0]);
                        (0..members as u32)
                            .map(|at| (stream.uniform(at) > 0.5).into())
                            .collect()
                    });
                    check("coins", coins);
                    // The best one changes: first half one, then another.
                    let switch = regret(members, boost, rounds, |round, _| {
                        let best = usize::from(round >= rounds / 2);
                        (0..members)
                            .map(|at| f64::from(u8::from(at == best)))
                            .collect()
                    });
                    check("switching", switch);
                    // One step apart, ever alternating.
                    let alternating = regret(members, boost, rounds, |round, _| {
                        (0..members)
                            .map(|at| f64::from(u8::from(at as u32 % 2 == round % 2)))
                            .collect()
                    });
                    check("alternating", alternating);
                }
            }
        }
    }

    #[test]
    fn following_the_leader_would_fail_where_this_does_not() {
        let rounds = 1000;
        let mut sums = [0.0, 0.5];
        let mut followed = 0.0;
        let mut weights = Weights::new(2, 1.0);
        let mut earned = 0.0;
        for round in 0..rounds {
            let utilities = if round % 2 == 0 {
                [1.0, 0.0]
            } else {
                [0.0, 1.0]
            };
            let leader = usize::from(sums[1] > sums[0]);
            followed += utilities[leader];
            let chances = weights.chances();
            earned += chances[0] * utilities[0] + chances[1] * utilities[1];
            weights.learn(&utilities);
            sums[0] += utilities[0];
            sums[1] += utilities[1];
        }
        assert!(followed < 2.0, "the sequence is no trap: {followed}");
        assert!(earned > 470.0, "{earned}");
    }

    #[test]
    fn the_bound_is_that_of_the_book() {
        let weights = Weights::new(10, 1.0);
        for rounds in [1, 10, 100, 10_000] {
            let n = f64::from(rounds);
            let log = 10f64.ln();
            let book = 2.0 * (n * log / 2.0).sqrt() + (log / 8.0).sqrt();
            // The book bounds the sums once more: ours is lower, by no more than a constant.
            let behind = book - weights.bound(rounds);
            assert!(
                (0.0..4.0 * (log / 8.0).sqrt()).contains(&behind),
                "{rounds}: {behind}"
            );
        }
        assert_eq!(Weights::new(1, 1.0).bound(50), 0.0);
        assert_eq!(Weights::new(1, 1.0).chances(), [1.0]);
    }

    #[test]
    fn utilities_are_cut_to_their_range() {
        assert_eq!(scale(-5.0, 0.0, 10.0), 0.0);
        assert_eq!(scale(15.0, 0.0, 10.0), 1.0);
        assert_eq!(scale(2.5, 0.0, 10.0), 0.25);
        assert_eq!(scale(1.0, 3.0, 3.0), 0.0);
        let mut weights = Weights::new(2, 1.0);
        weights.learn(&[9.0, -9.0]);
        assert_eq!(weights.sums(), [1.0, 0.0]);
        assert!(weights.fits(2) && !weights.fits(3));
        assert!(!Weights::resumed(vec![5.0], 2, 1.0).fits(1));
    }
}
