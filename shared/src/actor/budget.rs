//! How often and how soon something that ended is started again.
//!
//! - `RB-1` Within any window there are no more restarts than the budget says.
//! - `RB-2` The pause before a restart doubles with each end within the window.

use crate::units::Micros;

/// What is borne.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Restarts within `window`.
    pub restarts: usize,
    /// See `restarts`.
    pub window: Micros,
    /// Before the first restart.
    pub pause: Micros,
}

/// The ends of one that is started again.
#[derive(Clone, Debug)]
pub struct Restarts {
    budget: Budget,
    ends: Vec<Micros>,
}

impl Restarts {
    /// One that never ended.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        let ends = Vec::new();
        Self { budget, ends }
    }

    /// It ended now: how long to wait before it is started again; none when it ended too often.
    pub fn ended(&mut self, now: Micros) -> Option<Micros> {
        let window = self.budget.window;
        self.ends.retain(|end| now.since(*end) < window);
        self.ends.push(now);
        let doublings = self.ends.len() - 1;
        let pause = self.budget.pause.0 << doublings.min(16);
        (self.ends.len() <= self.budget.restarts).then_some(Micros(pause))
    }

    /// Ends within the window, the last included.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rb_1_and_rb_2_restarts_are_few_and_later_each_time() {
        let budget = Budget {
            restarts: 3,
            window: Micros(100),
            pause: Micros(5),
        };
        let mut restarts = Restarts::new(budget);
        let pauses: Vec<_> = [0, 10, 20, 30]
            .map(|now| restarts.ended(Micros(now)))
            .into();
        assert_eq!(
            pauses,
            [Some(Micros(5)), Some(Micros(10)), Some(Micros(20)), None]
        );
        // What is long ago does not count.
        assert_eq!(restarts.ended(Micros(125)), Some(Micros(10)));
        assert_eq!(restarts.count(), 2);
    }
}
