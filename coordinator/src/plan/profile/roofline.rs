//! The time of an operation from peaks: `launch + max(operations / flops, bytes / rate)`, each at what is reached of it.

use serde::{Deserialize, Serialize};

use super::super::curve::{Curve, LARGEST};

const BILLION: u128 = 1_000_000_000;

/// Peaks of a device, and how much of them kernels reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roofline {
    /// Peak of the units that products run on, dense.
    pub flops_per_second: u64,
    /// Peak of the memory.
    pub bytes_per_second: u64,
    /// Permille of the first that a large product reaches.
    pub compute_permille: u64,
    /// Permille of the second that a large copy reaches.
    pub memory_permille: u64,
    /// Of one kernel, with nothing to do.
    pub launch_nanos: u64,
}

/// An operation whose work grows linearly with tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Kernels.
    pub(crate) launches: u64,
    /// Floating-point operations per token.
    pub(crate) operations: u64,
    /// Bytes moved, however many tokens.
    pub(crate) fixed_bytes: u64,
    /// Bytes moved per token.
    pub(crate) bytes: u64,
}

impl Roofline {
    fn compute_nanos(&self, operations: u64) -> u64 {
        let reached = u128::from(self.flops_per_second) * u128::from(self.compute_permille) / 1000;
        let nanos = (u128::from(operations) * BILLION).div_ceil(reached.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    fn memory_nanos(&self, bytes: u64) -> u64 {
        let reached = u128::from(self.bytes_per_second) * u128::from(self.memory_permille) / 1000;
        let nanos = (u128::from(bytes) * BILLION).div_ceil(reached.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Nanoseconds of work on so many tokens, the launches left out.
    pub(crate) fn busy(&self, work: &Work, tokens: u64) -> u64 {
        let bytes = work
            .fixed_bytes
            .saturating_add(work.bytes.saturating_mul(tokens));
        self.compute_nanos(work.operations.saturating_mul(tokens))
            .max(self.memory_nanos(bytes))
    }

    /// Nanoseconds of work on so many tokens.
    pub(crate) fn nanos(&self, work: &Work, tokens: u64) -> u64 {
        self.busy(work, tokens)
            .saturating_add(self.launch_nanos.saturating_mul(work.launches))
    }

    /// The same as a curve: exact, as the maximum of two lines has one bend.
    pub(crate) fn curve(&self, work: &Work) -> Curve {
        let (mut low, mut high) = (1u64, 1u64 << 30);
        // The first size at which computing takes longer than moving.
        let computes = |tokens: u64| {
            let bytes = work
                .fixed_bytes
                .saturating_add(work.bytes.saturating_mul(tokens));
            self.compute_nanos(work.operations.saturating_mul(tokens)) >= self.memory_nanos(bytes)
        };
        while low < high {
            let middle = low.midpoint(high);
            if computes(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        // The slope beyond the bend is read off where nothing is cut off yet.
        let mut far = 1u64 << 31;
        while far / 2 > low && self.nanos(work, far) > LARGEST {
            far /= 2;
        }
        let mut sizes = vec![1, low.saturating_sub(1).max(1), low, far];
        sizes.sort_unstable();
        sizes.dedup();
        let point = |size| (size, self.nanos(work, size).min(LARGEST));
        let points: Vec<(u64, u64)> = sizes.into_iter().map(point).collect();
        Curve::new(&points).unwrap_or_else(|_| Curve::flat(self.launch_nanos))
    }

    /// Of a memory-bound kernel, by bytes.
    pub(crate) fn stream(&self) -> Curve {
        self.curve(&Work {
            launches: 1,
            bytes: 1,
            ..Work::default()
        })
    }

    /// Permille of the device that such work keeps busy: of the time that a kernel takes, what is not its launch.
    pub(crate) fn utilisation(&self, work: &Work, tokens: u64) -> u64 {
        let busy = u128::from(self.busy(work, tokens));
        let all = u128::from(self.nanos(work, tokens)).max(1);
        (busy * 1000 / all).max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_device_takes_as_long_as_it_is_slow() {
        let slow = Roofline {
            flops_per_second: 16_000_000_000,
            bytes_per_second: 10_000_000_000,
            compute_permille: 1000,
            memory_permille: 1000,
            launch_nanos: 0,
        };
        // The products of a model of 6.6e9 weights.
        let work = Work {
            launches: 1,
            operations: 13_200_000_000,
            ..Work::default()
        };
        let curve = slow.curve(&work);
        for tokens in [1, 64, 2_048, 1 << 16] {
            assert_eq!(curve.at(tokens), slow.nanos(&work, tokens), "{tokens}");
        }
    }
}
