//! A market as a chain of states: which capacity and price follow which.
//!
//! Capacity, cut at what the job can use, falls into classes: none, and up to three groups of equal weight. The price falls
//! into groups below the on-demand price and one at or above it. The two are taken as independent; each class is
//! represented by the mean of what fell into it. Transitions are counted over the past and drawn towards how often each
//! class occurs, with the weight of one observation:
//!
//! ```text
//! P(i -> j) = (n_ij + pi_j) / (n_i + 1)
//! ```

use crate::problem::decision::Situation;
use crate::problem::offer::Offer;

/// Classes of one series and how they follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Classes {
    /// Greatest member of each class but the last, rising.
    bounds: Vec<f64>,
    /// Mean of each class.
    pub means: Vec<f64>,
    /// Chance of each class after each.
    pub next: Vec<Vec<f64>>,
}

/// Capacity and price.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Spot machines that the job could use.
    pub capacity: Classes,
    /// Price of a spot machine for a slot, millionths of a dollar.
    pub price: Classes,
}

impl Chain {
    /// Fits a chain on the last `memory` slots, this one included, with at most so many classes of each series.
    #[must_use]
    pub fn fit(situation: &Situation<'_>, memory: u32, capacities: usize, prices: usize) -> Self {
        let from = situation.past.len().saturating_sub(memory as usize);
        let mut offers: Vec<Offer> = situation.past[from..]
            .iter()
            .map(|slot| Offer::of(slot, situation.length))
            .collect();
        offers.push(situation.offer);
        let most = situation.problem.most;
        let counts: Vec<f64> = offers
            .iter()
            .map(|offer| f64::from(offer.spot_available.min(most)))
            .collect();
        let spot: Vec<f64> = offers.iter().map(|offer| offer.spot_price).collect();
        let dear = situation.offer.on_demand_price;
        Self {
            capacity: Classes::fit(&counts, 0.5, capacities),
            price: Classes::fit_below(&spot, dear, prices),
        }
    }

    /// What a state offers, on-demand as in `now`.
    #[must_use]
    pub fn offer(&self, capacity: usize, price: usize, now: &Offer) -> Offer {
        Offer {
            spot_price: self.price.means[price],
            spot_available: self.capacity.means[capacity].round() as u32,
            ..*now
        }
    }
}

impl Classes {
    /// One class up to `apart`, the rest in groups of equal weight; at most `most` in all.
    fn fit(series: &[f64], apart: f64, most: usize) -> Self {
        let above = series.iter().copied().filter(|value| *value > apart);
        let mut bounds = groups(above.collect(), most.saturating_sub(1));
        if series.iter().any(|value| *value <= apart) && !bounds.is_empty() {
            bounds.insert(0, apart);
        }
        bounds.pop();
        Self::count(series, bounds)
    }

    /// Groups of equal weight below `dear`, one at or above it; at most `most` in all.
    fn fit_below(series: &[f64], dear: f64, most: usize) -> Self {
        let below = series.iter().copied().filter(|value| *value < dear);
        let mut bounds = groups(below.collect(), most.saturating_sub(1));
        if series.iter().all(|value| *value < dear) {
            bounds.pop();
        }
        Self::count(series, bounds)
    }

    /// The class of a value.
    #[must_use]
    pub fn of(&self, value: f64) -> usize {
        self.bounds.partition_point(|bound| *bound < value)
    }

    fn count(series: &[f64], bounds: Vec<f64>) -> Self {
        let size = bounds.len() + 1;
        let mut classes = Self {
            bounds,
            means: vec![0.0; size],
            next: vec![vec![0.0; size]; size],
        };
        let mut often = vec![0.0; size];
        for value in series {
            let class = classes.of(*value);
            often[class] += 1.0;
            classes.means[class] += value;
        }
        for (mean, often) in classes.means.iter_mut().zip(&often) {
            *mean /= f64::max(*often, 1.0);
        }
        for pair in series.windows(2) {
            let (from, to) = (classes.of(pair[0]), classes.of(pair[1]));
            classes.next[from][to] += 1.0;
        }
        let all: f64 = often.iter().sum();
        for row in &mut classes.next {
            let seen: f64 = row.iter().sum();
            for (chance, often) in row.iter_mut().zip(&often) {
                *chance = (*chance + often / all) / (seen + 1.0);
            }
        }
        classes
    }
}

/// Greatest members of at most `most` groups of about equal weight; equal values are not parted.
fn groups(mut values: Vec<f64>, most: usize) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let mut bounds: Vec<f64> = (1..=most.max(1))
        .filter_map(|group| {
            let last = (values.len() * group / most.max(1)).checked_sub(1)?;
            values.get(last).copied()
        })
        .collect();
    bounds.dedup();
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_part_none_from_some_and_cheap_from_dear() {
        let counts = [0.0, 0.0, 4.0, 4.0, 8.0, 12.0, 12.0, 0.0];
        let classes = Classes::fit(&counts, 0.5, 3);
        assert_eq!(classes.means.len(), 3);
        assert_eq!(classes.of(0.0), 0);
        assert_eq!(classes.of(3.0), 1);
        assert_eq!(classes.of(12.0), 2);
        assert_eq!(classes.means[1], 4.0);
        let prices = Classes::fit_below(&[0.2, 0.3, 0.4, 1.4, 0.9], 1.0, 3);
        assert_eq!(prices.means.len(), 3);
        assert_eq!(prices.of(7.0), 2);
        assert_eq!(prices.means[2], 1.4);
    }

    #[test]
    fn rows_are_chances_and_follow_the_counts() {
        let series: Vec<f64> = (0..400).map(|at| f64::from(at % 4)).collect();
        let classes = Classes::fit(&series, 0.5, 4);
        for (from, row) in classes.next.iter().enumerate() {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(row[(from + 1) % 4] > 0.99, "{row:?}");
        }
    }

    #[test]
    fn one_value_is_one_class() {
        for series in [[0.0; 5], [7.0; 5]] {
            let classes = Classes::fit(&series, 0.5, 4);
            assert_eq!(classes.means, [series[0]]);
            assert_eq!(classes.next, [[1.0]]);
            let prices = Classes::fit_below(&series, 7.0, 3);
            assert_eq!(prices.means, [series[0]]);
        }
    }
}
