//! Chance, from the seed: each throw is the next element of one stream.

use shared::random::{Domain, Stream};

/// The dice.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    seed: u64,
    thrown: u64,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, thrown: 0 }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// A number below a bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let place = [(self.thrown >> 32) as u32, 0, 0];
        let stream = Stream::new(self.seed, Domain::Simulation, place);
        let number = stream.below(self.thrown as u32, bound);
        self.thrown += 1;
        number
    }

    /// A number within a range, ends included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
