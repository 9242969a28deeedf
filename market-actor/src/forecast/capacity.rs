//! A number of machines that is not known yet.

use serde::{Deserialize, Serialize};

/// A distribution over 0, 1, 2, ... machines.
///
/// CP-1: the chances of "at most so many" grow with the number and end at 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// At index k the chance of at most k machines; from the end on it is 1.
    at_most: Vec<f64>,
}

impl Capacity {
    /// That many for sure.
    #[must_use]
    pub fn certain(machines: u32) -> Self {
        let mut at_most = vec![0.0; machines as usize];
        at_most.push(1.0);
        Self { at_most }
    }

    /// From values and their weights, in any order; weights need not add up to 1. Values are rounded to the nearest
    /// number of machines from 0 to `most`. Without a positive weight: 0 machines for sure.
    #[must_use]
    pub fn of_weighted(values: impl IntoIterator<Item = (f64, f64)>, most: u32) -> Self {
        let mut mass = vec![0.0; most as usize + 1];
        for (value, weight) in values {
            let machines = value.round().clamp(0.0, f64::from(most)) as usize;
            mass[machines] += weight.max(0.0);
        }
        let total: f64 = mass.iter().sum();
        if total <= 0.0 {
            return Self::certain(0);
        }
        let mut so_far = 0.0;
        let mut at_most: Vec<f64> = mass
            .iter()
            .map(|chance| {
                so_far += chance / total;
                so_far.min(1.0)
            })
            .collect();
        let top = mass.iter().rposition(|chance| *chance > 0.0).unwrap_or(0);
        at_most.truncate(top + 1);
        at_most[top] = 1.0;
        let made = Self { at_most };
        debug_assert!(made.is_sound(), "CP-1");
        made
    }

    /// The chance of at most `machines`.
    #[must_use]
    pub fn at_most(&self, machines: u32) -> f64 {
        self.at_most.get(machines as usize).copied().unwrap_or(1.0)
    }

    /// The chance of fewer than `machines`.
    #[must_use]
    pub fn below(&self, machines: u32) -> f64 {
        machines
            .checked_sub(1)
            .map_or(0.0, |fewer| self.at_most(fewer))
    }

    /// The chance of at least `machines`.
    #[must_use]
    pub fn at_least(&self, machines: u32) -> f64 {
        1.0 - self.below(machines)
    }

    /// The least number of which at most so many are there with a chance of `share` (0 to 1) or more.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u32 {
        // A sum of weights may miss the share it stands for by rounding.
        let found = self.at_most.iter().position(|c| *c >= share - 1e-12);
        found.map_or_else(|| self.most(), |machines| machines as u32)
    }

    /// The expected number.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let above = self.at_most.iter().map(|chance| 1.0 - chance);
        above.sum()
    }

    /// The greatest number that has a chance.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.at_most.len().saturating_sub(1) as u32
    }

    fn is_sound(&self) -> bool {
        self.at_most.windows(2).all(|pair| pair[0] <= pair[1]) && self.at_most.last() == Some(&1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chances_are_those_of_the_weights() {
        let capacity = Capacity::of_weighted([(4.2, 1.0), (0.0, 1.0), (9.0, 2.0)], 6);
        assert_eq!(capacity.at_most(0), 0.25);
        assert_eq!(capacity.below(4), 0.25);
        assert_eq!(capacity.at_least(4), 0.75);
        assert_eq!(capacity.at_most(4), 0.5);
        assert_eq!(capacity.quantile(0.5), 4);
        assert_eq!(capacity.quantile(0.51), 6);
        assert_eq!(capacity.most(), 6);
        assert_eq!(capacity.mean(), 4.0);
    }

    #[test]
    fn nothing_known_is_nothing_there() {
        assert_eq!(Capacity::of_weighted([], 6), Capacity::certain(0));
        assert_eq!(Capacity::certain(3).quantile(0.1), 3);
        assert_eq!(Capacity::certain(3).below(0), 0.0);
    }

    proptest! {
        #[test]
        fn cp_1_chances_grow_to_one(values in prop::collection::vec((-3.0..40.0f64, 0.0..2.0f64), 0..50), most in 0u32..30) {
            let capacity = Capacity::of_weighted(values, most);
            prop_assert!(capacity.is_sound());
            prop_assert!(capacity.most() <= most);
            for share in [0.0, 0.1, 0.5, 0.9, 1.0] {
                let machines = capacity.quantile(share);
                prop_assert!(capacity.at_most(machines) >= share - 1e-12);
                prop_assert!(machines == 0 || capacity.below(machines) < share);
            }
        }
    }
}
