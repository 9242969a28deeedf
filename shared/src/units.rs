//! Integers with names: no bare number for bytes or time.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of memory, disk or wire.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Microseconds: a duration, or an instant since 1970-01-01 UTC where the name says so.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

/// Millionths of a US dollar: what is paid, or a price per unit that the name of the field states.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// Dollars, for people.
    #[must_use]
    pub const fn dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// What is left of it after paying another; below 0 where that is more.
    #[must_use]
    pub const fn less(self, other: Self) -> i64 {
        let exact = self.0 as i128 - other.0 as i128;
        if exact > i64::MAX as i128 {
            i64::MAX
        } else if exact < i64::MIN as i128 {
            i64::MIN
        } else {
            exact as i64
        }
    }
}

impl Micros {
    /// So many milliseconds.
    #[must_use]
    pub const fn of_millis(millis: u64) -> Self {
        Self(millis * 1000)
    }

    /// Seconds, for people.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// From another instant to this one; nothing when it is not before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This much later.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        for unit in ["bytes", "KiB", "MiB", "GiB"] {
            if value < 1024.0 {
                let digits = usize::from(unit != "bytes");
                return write!(f, "{value:.digits$} {unit}");
            }
            value /= 1024.0;
        }
        write!(f, "{value:.1} TiB")
    }
}

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prices of minutes and tokens need the digits that sums of a job do not.
        let digits = if self.0 < 1_000_000 { 4 } else { 2 };
        write!(f, "${:.digits$}", self.dollars())
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1000 => write!(f, "{} us", self.0),
            1000..1_000_000 => write!(f, "{:.1} ms", self.0 as f64 / 1e3),
            _ => write!(f, "{:.1} s", self.seconds()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_printed_for_people() {
        assert_eq!(Bytes(512).to_string(), "512 bytes");
        assert_eq!(Bytes(3 << 20).to_string(), "3.0 MiB");
        assert_eq!(Micros(1500).to_string(), "1.5 ms");
        assert_eq!(Micros(61_500_000).to_string(), "61.5 s");
        assert_eq!(MicroUsd(918_000).to_string(), "$0.9180");
        assert_eq!(MicroUsd(12_345_678).to_string(), "$12.35");
        assert_eq!(Micros(1).since(Micros(5)), Micros(0));
        assert_eq!(MicroUsd(2).less(MicroUsd(5)), -3);
        assert_eq!(MicroUsd(0).less(MicroUsd(u64::MAX)), i64::MIN);
    }
}
