//! Which saved states of a job are proven, and which may go.
//!
//! The loss and the gradient of step `s + 1` are computed with the state after step `s`. So that state is *proven* once both
//! were finite: the next step was taken, or broke at what it would have written only. A state whose own loss or gradient is
//! not finite is as whole as any other on disk, but no job can go on from it.
//!
//! - `PV-1` The newest proven state stays while no newer one is proven, however few are to be kept.
//! - `PV-2` What is called good is proven.
//!
//! Pure functions of numbers of steps, for one process and for the stages of a cluster.

/// What is known of the states of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// States after fewer steps are proven.
    below: u64,
}

impl Proof {
    /// Of a job that took so many steps and goes on: what the newest state gives is not known.
    #[must_use]
    pub fn of_taken(steps: u64) -> Self {
        Self { below: steps }
    }

    /// Of a job that was set aside after so many steps; `proven` when loss and gradient with that state were finite.
    #[must_use]
    pub fn of_set_aside(steps: u64, proven: bool) -> Self {
        let below = if proven {
            steps.saturating_add(1)
        } else {
            steps
        };
        Self { below }
    }

    /// Whether the state after so many steps is proven.
    #[must_use]
    pub fn holds(self, step: u64) -> bool {
        step < self.below
    }

    /// The newest proven one of saved states, by their steps. PV-2
    ///
    /// ```
    /// use gpu_actor::train::proof::Proof;
    ///
    /// let saved = [50, 100, 107];
    /// assert_eq!(Proof::of_set_aside(107, false).newest(saved), Some(100));
    /// assert_eq!(Proof::of_set_aside(107, true).newest(saved), Some(107));
    /// assert_eq!(Proof::of_set_aside(50, false).newest(saved), None);
    /// ```
    #[must_use]
    pub fn newest(self, saved: impl IntoIterator<Item = u64>) -> Option<u64> {
        saved.into_iter().filter(|&step| self.holds(step)).max()
    }

    /// Which of the saved states, by their steps, may go when the newest `keep_last` are to be kept; at least one is. PV-1
    ///
    /// ```
    /// use gpu_actor::train::proof::Proof;
    ///
    /// assert_eq!(Proof::of_taken(150).surplus(&[50, 100, 150], 1), [50]);
    /// assert_eq!(Proof::of_taken(151).surplus(&[100, 150], 1), [100]);
    /// ```
    #[must_use]
    pub fn surplus(self, saved: &[u64], keep_last: usize) -> Vec<u64> {
        let mut newest = saved.to_vec();
        newest.sort_unstable_by(|one, other| other.cmp(one));
        newest.dedup();
        let keep = keep_last.max(1).min(newest.len());
        let (kept, rest) = newest.split_at(keep);
        let proven = match kept.iter().any(|&step| self.holds(step)) {
            true => None,
            false => self.newest(rest.iter().copied()),
        };
        let mut gone: Vec<u64> = rest.to_vec();
        gone.retain(|&step| Some(step) != proven);
        gone
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_proven_state_goes_for_one_that_is_not(
            saved in prop::collection::btree_set(0..60u64, 0..12),
            taken in 0..60u64,
            keep_last in 0..5usize,
        ) {
            let saved: Vec<u64> = saved.into_iter().collect();
            let proof = Proof::of_taken(taken);
            let gone = proof.surplus(&saved, keep_last);
            let left: Vec<u64> = saved.iter().copied().filter(|step| !gone.contains(step)).collect();
            // PV-1
            prop_assert_eq!(proof.newest(left.clone()), proof.newest(saved.clone()));
            // As many as are asked for, and one more at most.
            let wanted = keep_last.max(1).min(saved.len());
            prop_assert!(left.len() == wanted || left.len() == wanted + 1);
            prop_assert_eq!(&left[left.len() - wanted..], &saved[saved.len() - wanted..]);
            let newest = &left[left.len() - wanted..];
            prop_assert!(left.len() == wanted || !newest.iter().any(|&step| proof.holds(step)));
        }
    }
}
