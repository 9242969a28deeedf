//! Where the time of passes and steps goes, by kind of operator.
//!
//! The stage reads no clock: the shell hands one over, and without one nothing is measured. An operator inside
//! another takes its time from the outer one, so that the times add up and none is counted twice. Numbers are not
//! touched: a measured pass has the bits of any other.

use std::cell::Cell;
use std::time::Duration;

/// Tells the time since some fixed moment.
pub type Clock = fn() -> Duration;

/// A kind of operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Products with the frozen weights of the blocks, forward and backward.
    FrozenProducts,
    /// What the jobs' methods add at their sites: thin products, scales, biases, dropout.
    Adapters,
    /// Attention over keys and values.
    Attention,
    /// Norms, rotations, gates, residual sums and copies: the rest of a block.
    Elementwise,
    /// Final norm, head and loss.
    Head,
    /// Gradients summed over tokens.
    GradientSums,
    /// Clipping, the rule, and what is derived from new values.
    Optimizer,
}

impl Operator {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::FrozenProducts,
        Self::Adapters,
        Self::Attention,
        Self::Elementwise,
        Self::Head,
        Self::GradientSums,
        Self::Optimizer,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FrozenProducts => "frozen_products",
            Self::Adapters => "adapters",
            Self::Attention => "attention",
            Self::Elementwise => "elementwise",
            Self::Head => "head",
            Self::GradientSums => "gradient_sums",
            Self::Optimizer => "optimizer",
        }
    }
}

/// Time by kind of operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings([Duration; Operator::ALL.len()]);

impl Timings {
    /// Time of one kind.
    #[must_use]
    pub fn of(&self, operator: Operator) -> Duration {
        self.0[operator as usize]
    }

    /// Time of all kinds together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }
}

/// Adds up times while it has a clock.
#[derive(Debug, Default)]
pub(super) struct Meter {
    clock: Option<Clock>,
    timings: Cell<Timings>,
    /// The operator at work and since when its time counts.
    at_work: Cell<Option<(Operator, Duration)>>,
}

impl Meter {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock: Some(clock),
            ..Self::default()
        }
    }

    /// Does the work, and adds the time it takes to the operator.
    pub(super) fn time<R>(&self, operator: Operator, work: impl FnOnce() -> R) -> R {
        let Some(clock) = self.clock else {
            return work();
        };
        let outer = self.turn(clock(), Some(operator));
        let result = work();
        self.turn(clock(), outer);
        result
    }

    /// Ends the operator at work and begins the next; returns the one that ended.
    fn turn(&self, now: Duration, next: Option<Operator>) -> Option<Operator> {
        let ended = self.at_work.replace(next.map(|operator| (operator, now)));
        let (operator, since) = ended?;
        let mut timings = self.timings.get();
        timings.0[operator as usize] += now.saturating_sub(since);
        self.timings.set(timings);
        Some(operator)
    }

    /// The times since the last call.
    pub(super) fn take(&self) -> Timings {
        self.timings.take()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static SECONDS: Cell<u64> = const { Cell::new(0) };
    }

    fn pass(seconds: u64) {
        SECONDS.set(SECONDS.get() + seconds);
    }

    #[test]
    fn an_inner_operator_takes_its_time_from_the_outer_one() {
        let meter = Meter::new(|| Duration::from_secs(SECONDS.get()));
        pass(100);
        let answer = meter.time(Operator::Elementwise, || {
            pass(1);
            meter.time(Operator::Adapters, || {
                pass(2);
                meter.time(Operator::GradientSums, || pass(4));
                pass(8);
            });
            pass(16);
            7
        });
        pass(100);
        meter.time(Operator::Head, || pass(32));
        let found = meter.take();
        let seconds = Operator::ALL.map(|operator| found.of(operator).as_secs());
        assert_eq!((answer, seconds), (7, [0, 10, 0, 17, 32, 4, 0]));
        assert_eq!(found.total(), Duration::from_secs(63));
        assert_eq!(meter.take(), Timings::default());
    }

    #[test]
    fn without_a_clock_nothing_is_measured() {
        let meter = Meter::default();
        assert_eq!(meter.time(Operator::Head, || 7), 7);
        assert_eq!(meter.take(), Timings::default());
    }
}
