//! Regret on sequences made against the weights, and figures by hand.

use shared::random::{Domain, Stream};

use super::*;

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
