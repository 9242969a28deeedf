//! An instant by two clocks: one that the world agrees on and may jump, one that only grows.
//!
//! Durations are taken by the steady one, so a clock that is set does not end a boot, pay an hour or let a deadline pass. What is
//! kept for later, and what a provider says, is by the wall.

use shared::units::Micros;

/// An instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Since 1970-01-01 UTC; it may jump.
    pub wall: Micros,
    /// Since some begin of this process; it never goes back.
    pub steady: Micros,
}

impl Now {
    /// Where both clocks show the same: in tests, and in worlds that are played.
    #[must_use]
    pub const fn both(at: Micros) -> Self {
        Self {
            wall: at,
            steady: at,
        }
    }

    /// The steady instant of one by the wall, as far as both clocks agree now; 0 for one before the steady clock began.
    #[must_use]
    pub const fn steady_of(self, wall: Micros) -> Micros {
        let ahead = wall.since(self.wall);
        let behind = self.wall.since(wall);
        self.steady.plus(ahead).since(behind)
    }

    /// The instant by the wall of a steady one, as far as both clocks agree now; 0 for one before 1970.
    #[must_use]
    pub const fn wall_of(self, steady: Micros) -> Micros {
        let ahead = steady.since(self.steady);
        let behind = self.steady.since(steady);
        self.wall.plus(ahead).since(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_of_the_wall_is_as_far_away_by_the_steady_clock() {
        let now = Now {
            wall: Micros(1_000),
            steady: Micros(50),
        };
        assert_eq!(now.steady_of(Micros(1_007)), Micros(57));
        assert_eq!(now.steady_of(Micros(990)), Micros(40));
        assert_eq!(now.steady_of(Micros(1)), Micros(0));
    }
}
