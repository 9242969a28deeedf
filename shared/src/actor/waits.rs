//! How long to wait before what failed is tried again.
//!
//! - `WT-1` A wait is twice the one before, and never longer than the longest.

use crate::units::Micros;

/// Waits that double from the first to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// After the first failure.
    pub first: Micros,
    /// Never longer.
    pub most: Micros,
}

impl Waits {
    /// The wait after so many failures in a row, the last included.
    ///
    /// ```
    /// use shared::actor::waits::Waits;
    /// use shared::units::Micros;
    ///
    /// let waits = Waits {
    ///     first: Micros(100),
    ///     most: Micros(350),
    /// };
    /// let told: Vec<u64> = (1..=4).map(|failures| waits.after(failures).0).collect();
    /// assert_eq!(told, [100, 200, 350, 350]);
    /// ```
    #[must_use]
    pub fn after(self, failures: u32) -> Micros {
        let doublings = failures.saturating_sub(1).min(32);
        Micros(self.first.0.saturating_mul(1 << doublings)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wt_1_however_often_it_failed_the_longest_wait_holds() {
        let waits = Waits {
            first: Micros(u64::MAX / 2),
            most: Micros(u64::MAX - 1),
        };
        assert_eq!(waits.after(0), Micros(u64::MAX / 2));
        assert_eq!(waits.after(2), Micros(u64::MAX - 1));
        assert_eq!(waits.after(u32::MAX), Micros(u64::MAX - 1));
    }
}
