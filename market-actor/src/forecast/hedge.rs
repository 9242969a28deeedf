//! Many models, weighed by how they did: Hedge on the pinball loss.
//!
//! At each of the last `rounds` points whose path is known, every member says what it would have said then and loses
//!
//! ```text
//! l = mean over h <= H and tau in {0.1, 0.5, 0.9} of (y - q) (tau - [y < q]),  q the member's tau-quantile of y_(o+h)
//! ```
//!
//! With losses divided by the greatest of all, so that they lie in \[0, 1\], K rounds and M members, the weight of a
//! member is proportional to exp(-eta * its losses), eta = sqrt(8 ln M / K). Against the best member in hindsight Hedge
//! loses at most sqrt(K ln M / 2) more in these K rounds (Freund and Schapire, Journal of Computer and System Sciences 55,
//! 1997; Cesa-Bianchi and Lugosi, Prediction, Learning, and Games, 2006, theorem 2.2). Beliefs are pooled by weight: the
//! pinball loss is convex in the quantile, the pool of distributions is not the average of quantiles, so the bound is of
//! a forecaster that follows one member drawn by weight, and holds for the pool only as far as that goes.
//!
//! Nothing is kept between calls: weights are computed anew from what is seen, so a look stays a function of it.

use std::sync::Arc;

use super::belief::Belief;
use super::model::{Model, Prospect};

/// The shares whose quantiles are scored.
pub const SHARES: [f64; 3] = [0.1, 0.5, 0.9];

/// An ensemble.
#[derive(Clone, Debug)]
pub struct Hedge {
    /// The models; of none nothing is known.
    pub members: Vec<Arc<dyn Model>>,
    /// Most points that they are judged by.
    pub rounds: usize,
    /// Slots from one of these to the next, at least 1.
    pub stride: usize,
}

/// What is lost when a quantile was said and a value came.
#[must_use]
pub fn pinball(value: f64, quantile: f64, share: f64) -> f64 {
    let under = if value < quantile { 1.0 } else { 0.0 };
    (value - quantile) * (share - under)
}

impl Model for Hedge {
    fn name(&self) -> String {
        "hedge".to_owned()
    }

    fn look(&self, seen: &[f64], horizon: usize) -> Option<Prospect> {
        let weights = self.weights(seen, horizon);
        let prospects: Vec<(f64, Prospect)> = weights
            .iter()
            .zip(&self.members)
            .filter_map(|(weight, member)| Some((*weight, member.look(seen, horizon)?)))
            .collect();
        let pooled = |part: &dyn Fn(&Prospect) -> &Belief| {
            Belief::pool(prospects.iter().map(|(weight, p)| (*weight, part(p))))
        };
        let values: Option<Vec<Belief>> = (0..horizon)
            .map(|ahead| pooled(&|p| &p.values[ahead]))
            .collect();
        let least: Option<Vec<Belief>> = (0..horizon)
            .map(|ahead| pooled(&|p| &p.least[ahead]))
            .collect();
        Some(Prospect {
            values: values?,
            least: least?,
        })
    }
}

impl Hedge {
    /// The weight of each member after what was seen; they add up to 1.
    #[must_use]
    pub fn weights(&self, seen: &[f64], horizon: usize) -> Vec<f64> {
        let members = self.members.len();
        let points = self.points(seen.len(), horizon);
        let mut losses = vec![vec![0.0; points.len()]; members];
        for (member, lost) in self.members.iter().zip(&mut losses) {
            let prospects = member.replay(seen, &points, horizon);
            for ((point, prospect), loss) in points.iter().zip(&prospects).zip(lost) {
                *loss = mean_pinball(prospect, &seen[*point..]);
            }
        }
        let greatest = losses.iter().flatten().copied().fold(0.0, f64::max);
        let rounds = points.len().max(1) as f64;
        let rate = (8.0 * (members as f64).ln() / rounds).sqrt();
        let sum = |lost: &Vec<f64>| lost.iter().sum::<f64>() / greatest.max(f64::MIN_POSITIVE);
        let sums: Vec<f64> = losses.iter().map(sum).collect();
        // Only differences matter: from the best on, nothing underflows for all.
        let best = sums.iter().copied().fold(f64::INFINITY, f64::min);
        let raw: Vec<f64> = sums.iter().map(|s| (-rate * (s - best)).exp()).collect();
        let total: f64 = raw.iter().sum();
        raw.iter().map(|weight| weight / total).collect()
    }

    /// Points whose whole path is known, with something seen before.
    fn points(&self, seen: usize, horizon: usize) -> Vec<usize> {
        let Some(last) = seen.checked_sub(horizon.max(1)) else {
            return Vec::new();
        };
        let back = (0..self.rounds).map_while(|round| {
            let point = last.checked_sub(round * self.stride.max(1))?;
            (point > 0).then_some(point)
        });
        let mut points: Vec<usize> = back.collect();
        points.reverse();
        points
    }
}

/// The mean pinball loss of a prospect on the values that came; 0 for an empty one.
#[must_use]
pub fn mean_pinball(prospect: &Prospect, came: &[f64]) -> f64 {
    let pairs = prospect.values.iter().zip(came);
    let losses: Vec<f64> = pairs
        .flat_map(|(belief, value)| {
            SHARES.map(|share| pinball(*value, belief.quantile(share), share))
        })
        .collect();
    losses.iter().sum::<f64>() / losses.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Always says one number.
    #[derive(Debug)]
    struct Fixed(f64);

    impl Model for Fixed {
        fn name(&self) -> String {
            "fixed".into()
        }

        fn look(&self, _: &[f64], horizon: usize) -> Option<Prospect> {
            let beliefs = vec![Belief::certain(self.0); horizon];
            Some(Prospect {
                values: beliefs.clone(),
                least: beliefs,
            })
        }
    }

    fn ensemble(values: &[f64]) -> Hedge {
        Hedge {
            members: values
                .iter()
                .map(|v| Arc::new(Fixed(*v)) as Arc<dyn Model>)
                .collect(),
            rounds: 20,
            stride: 1,
        }
    }

    #[test]
    fn losses_by_hand() {
        assert!((pinball(3.0, 1.0, 0.9) - 1.8).abs() < 1e-12);
        assert!((pinball(1.0, 3.0, 0.9) - 0.2).abs() < 1e-12);
        assert_eq!(pinball(3.0, 3.0, 0.1), 0.0);
    }

    #[test]
    fn weights_follow_the_losses_by_the_formula() {
        let hedge = ensemble(&[5.0, 7.0, 6.0]);
        let weights = hedge.weights(&[5.0; 40], 2);
        // Each round member 0 loses nothing, member 1 the most, member 2 half of it.
        let rate = (8.0 * 3.0f64.ln() / 20.0).sqrt();
        let raw = [1.0, (-20.0 * rate).exp(), (-10.0 * rate).exp()];
        let total: f64 = raw.iter().sum();
        for (weight, expected) in weights.iter().zip(raw) {
            assert!((weight - expected / total).abs() < 1e-9, "{weights:?}");
        }
        let prospect = hedge.look(&[5.0; 40], 2).unwrap();
        assert_eq!(prospect.values[1].quantile(0.5), 5.0);
    }

    #[test]
    fn without_a_past_all_weigh_the_same() {
        let hedge = ensemble(&[5.0, 7.0]);
        assert_eq!(hedge.weights(&[5.0], 3), [0.5, 0.5]);
        assert_eq!(hedge.points(10, 3), [1, 2, 3, 4, 5, 6, 7]);
        assert!(ensemble(&[]).look(&[5.0], 3).is_none());
    }
}
