//! What one number may be: values with weights.

/// A discrete distribution. BL-1: values grow, weights are positive and add up to 1; there is at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Belief {
    /// Value and chance.
    atoms: Vec<(f64, f64)>,
}

impl Belief {
    /// One value for sure.
    #[must_use]
    pub fn certain(value: f64) -> Self {
        Self {
            atoms: vec![(value, 1.0)],
        }
    }

    /// From values and weights in any order; what has no positive weight or is not finite does not count. Nothing
    /// without a value.
    #[must_use]
    pub fn new(mut atoms: Vec<(f64, f64)>) -> Option<Self> {
        atoms.retain(|(value, weight)| value.is_finite() && weight.is_finite() && *weight > 0.0);
        atoms.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = atoms.iter().map(|atom| atom.1).sum();
        if atoms.is_empty() || !total.is_finite() {
            return None;
        }
        let mut merged: Vec<(f64, f64)> = Vec::with_capacity(atoms.len());
        for (value, weight) in atoms {
            let chance = weight / total;
            match merged.last_mut() {
                Some(last) if last.0 == value => last.1 += chance,
                _ => merged.push((value, chance)),
            }
        }
        Some(Self { atoms: merged })
    }

    /// Beliefs in one number, each with the weight it is given (linear pool). Nothing without a positive weight.
    #[must_use]
    pub fn pool<'a>(beliefs: impl IntoIterator<Item = (f64, &'a Self)>) -> Option<Self> {
        let mut atoms = Vec::new();
        for (weight, belief) in beliefs {
            let scaled = belief.atoms.iter().map(|(v, chance)| (*v, chance * weight));
            atoms.extend(scaled);
        }
        Self::new(atoms)
    }

    /// Values with their chances, in order.
    #[must_use]
    pub fn atoms(&self) -> &[(f64, f64)] {
        &self.atoms
    }

    /// The least value that is not exceeded with a chance of `share` or more.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut so_far = 0.0;
        for (value, chance) in &self.atoms {
            so_far += chance;
            // A sum of chances may miss the share it stands for by rounding.
            if so_far >= share - 1e-12 {
                return *value;
            }
        }
        self.atoms[self.atoms.len() - 1].0
    }

    /// The chance of less than a value.
    #[must_use]
    pub fn below(&self, value: f64) -> f64 {
        let less = self.atoms.iter().take_while(|atom| atom.0 < value);
        less.map(|atom| atom.1).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_and_chances() {
        let belief =
            Belief::new(vec![(3.0, 1.0), (1.0, 2.0), (3.0, 1.0), (f64::NAN, 1.0)]).unwrap();
        assert_eq!(belief.atoms(), [(1.0, 0.5), (3.0, 0.5)]);
        assert_eq!(belief.quantile(0.5), 1.0);
        assert_eq!(belief.quantile(0.6), 3.0);
        assert_eq!(belief.quantile(1.0), 3.0);
        assert_eq!(belief.below(3.0), 0.5);
        assert_eq!(belief.below(1.0), 0.0);
        assert_eq!(Belief::new(vec![(1.0, 0.0)]), None);
    }

    #[test]
    fn a_pool_weighs_its_members() {
        let (low, high) = (Belief::certain(1.0), Belief::certain(2.0));
        let pool = Belief::pool([(3.0, &low), (1.0, &high)]).unwrap();
        assert_eq!(pool.atoms(), [(1.0, 0.75), (2.0, 0.25)]);
        assert_eq!(Belief::pool([(0.0, &low)]), None);
    }

    proptest! {
        #[test]
        fn bl_1(atoms in prop::collection::vec((-9.0..9.0f64, -0.5..2.0f64), 0..40), share in 0.0..1.0f64) {
            let Some(belief) = Belief::new(atoms) else { return Ok(()) };
            let total: f64 = belief.atoms.iter().map(|atom| atom.1).sum();
            prop_assert!((total - 1.0).abs() < 1e-9);
            prop_assert!(belief.atoms.windows(2).all(|two| two[0].0 < two[1].0));
            prop_assert!(belief.atoms.iter().all(|atom| atom.1 > 0.0));
            prop_assert!(belief.below(belief.quantile(share)) <= share);
        }
    }
}
