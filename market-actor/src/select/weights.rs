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
mod tests {
    use super::*;
    use shared::random::{Domain, Stream};

    /// Plays a sequence that may look at the chances before it answers, and returns the regret, discounted as the weights
    /// are, and its bound. What the weights say of it themselves is checked in every round.
    fn regret(
        members: usize,
        keep: f64,
        rounds: u32,
        mut adversary: impl FnMut(u32, &Weights) -> Vec<f64>,
    ) -> (f64, f64) {
        let mut weights = Weights::new(members, keep);
        let mut earned = 0.0;
        for round in 0..rounds {
            let utilities = adversary(round, &weights);
            let chances = weights.chances();
            let mean: f64 = chances.iter().zip(&utilities).map(|(c, u)| c * u).sum();
            earned = keep * earned + mean;
            weights.learn(&utilities);
            let best = weights.sums().iter().copied().fold(0.0, f64::max);
            assert!(best - earned <= weights.regret() + 1e-9, "round {round}");
            assert!(weights.regret() <= weights.bound(round + 1) + 1e-9);
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
        for keep in [1.0, 0.97, 0.8] {
            for members in [2, 11, 23] {
                for rounds in [10, 66, 1000] {
                    let check = |name: &str, (regret, bound): (f64, f64)| {
                        assert!(
                            regret <= bound + 1e-9,
                            "{name} keep {keep} M {members} n {rounds}: {regret} above {bound}"
                        );
                        regret
                    };
                    // Ruins whoever follows the leader: the leader of now earns nothing.
                    let ruin = regret(members, keep, rounds, |_, weights| {
                        let leader = leader(weights);
                        (0..members)
                            .map(|at| f64::from(u8::from(at != leader)))
                            .collect()
                    });
                    check("against the leader", ruin);
                    // Whoever is likeliest earns nothing: the adversary sees the chances.
                    let likeliest = regret(members, keep, rounds, |_, weights| {
                        let chances = weights.chances();
                        let top = chances.iter().copied().fold(0.0, f64::max);
                        chances
                            .iter()
                            .map(|c| f64::from(u8::from(*c < top)))
                            .collect()
                    });
                    check("against the likeliest", likeliest);
                    // Coins: the best of M random walks.
                    let coins = regret(members, keep, rounds, |round, _| {
                        let stream = Stream::new(9, Domain::Policy, [round, 0, 0]);
                        (0..members as u32)
                            .map(|at| (stream.uniform(at) > 0.5).into())
                            .collect()
                    });
                    check("coins", coins);
                    // The best one changes: first half one, then another.
                    let switch = regret(members, keep, rounds, |round, _| {
                        let best = usize::from(round >= rounds / 2);
                        (0..members)
                            .map(|at| f64::from(u8::from(at == best)))
                            .collect()
                    });
                    check("switching", switch);
                    // One step apart, ever alternating.
                    let alternating = regret(members, keep, rounds, |round, _| {
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
    fn one_that_is_best_is_found_in_a_few_rounds_whatever_the_range() {
        for range in [1.0, 1e-3] {
            let mut weights = Weights::new(17, 1.0);
            for round in 0..30u32 {
                let stream = Stream::new(5, Domain::Policy, [round, 0, 0]);
                let utilities: Vec<f64> = (0..17u32)
                    .map(|at| {
                        let luck = f64::from(stream.uniform(at));
                        0.5 + range * (0.3 * luck - if at == 4 { 0.0 } else { 0.2 })
                    })
                    .collect();
                weights.learn(&utilities);
            }
            let chance = weights.chances()[4];
            assert!(chance > 0.95, "{range}: {chance}");
        }
    }

    #[test]
    fn what_is_forgotten_lets_another_lead() {
        let lead = |keep: f64| {
            let mut weights = Weights::new(2, keep);
            for round in 0..80 {
                weights.learn(if round < 50 { &[0.6, 0.5] } else { &[0.5, 0.6] });
            }
            weights.chances()[1]
        };
        assert!(
            lead(1.0) < 0.2 && lead(0.9) > 0.8,
            "{} {}",
            lead(1.0),
            lead(0.9)
        );
    }

    #[test]
    fn bounds_by_hand() {
        let weights = Weights::new(10, 1.0);
        assert!((weights.bound(100) - (1.0 + (1.0 + 100.0 * 10f64.ln()).sqrt())).abs() < 1e-12);
        // No more than that of exponentiated gradient with its rate set by the round, 2 sqrt(n ln M / 2), from 16 rounds on.
        for rounds in [16, 100, 10_000] {
            assert!(weights.bound(rounds) < 2.0 * (f64::from(rounds) * 10f64.ln() / 2.0).sqrt());
        }
        let forgetful = Weights::new(10, 0.97);
        let most = 1.0 + (1.0 + 10f64.ln() / (1.0 - 0.97 * 0.97)).sqrt();
        assert!(forgetful.bound(10) < forgetful.bound(100) && forgetful.bound(9999) <= most + 1e-9);
        assert_eq!(Weights::new(1, 1.0).bound(50), 0.0);
        let mut alone = Weights::new(1, 1.0);
        alone.learn(&[0.4]);
        assert_eq!((alone.chances(), alone.regret()), (vec![1.0], 0.0));
    }

    #[test]
    fn the_first_rounds_by_hand() {
        let mut weights = Weights::new(2, 1.0);
        assert_eq!(weights.chances(), [0.5, 0.5]);
        // Without a rate the mixture gains what the greatest sum gains: D = 1 - 1/2.
        weights.learn(&[1.0, 0.0]);
        assert_eq!(weights.regret(), 1.0);
        // exp(eta) to 1 with eta = 2 ln 2.
        assert!((weights.chances()[0] - 0.8).abs() < 1e-12);
        // The chances lose .8, the mixture -(1 / eta) ln(.8 exp(-eta) + .2).
        weights.learn(&[0.0, 1.0]);
        let rate = 2.0 * 2f64.ln();
        let gap = 0.5 + 0.8 + (0.8 / 4.0 + 0.2f64).ln() / rate;
        assert!((weights.regret() - 2.0 * gap).abs() < 1e-12);
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
        assert!(!weights.resumed(vec![5.0]).fits(1));
    }
}
