//! How long a stage is not taken again after one that panicked.
//!
//! - `RP-1` What is let go, ends well or is told anew in the meantime does not shorten it.

use std::time::Duration;

use shared::actor::budget::{Budget, Restarts};
use shared::actor::exit::ExitReason;
use shared::units::Micros;

/// A stage that panics is given up as a lost epoch, and taken again at the next order so often; then the process ends,
/// and whoever started it starts it again.
const PANICS: Budget = Budget {
    restarts: 3,
    window: Micros::of_millis(120_000),
    pause: Micros::of_millis(100),
};

/// The panics that are borne, and until when the next stage waits for the last.
#[derive(Debug)]
pub(super) struct Respite {
    restarts: Restarts,
    not_before: Micros,
    pause: Micros,
}

impl Respite {
    /// Nothing panicked yet.
    pub(super) fn new() -> Self {
        Self {
            restarts: Restarts::new(PANICS),
            not_before: Micros(0),
            pause: Micros(0),
        }
    }

    /// A stage ended now.
    ///
    /// # Errors
    /// The process's exit, when stages panicked too often.
    pub(super) fn ended(&mut self, exit: ExitReason, now: Micros) -> Result<(), ExitReason> {
        let ExitReason::Panicked(said) = exit else {
            return Ok(());
        };
        let Some(pause) = self.restarts.ended(now) else {
            return Err(ExitReason::Failed(format!(
                "the stage panicked {} times within {} s, the last time with: {said}",
                self.restarts.count(),
                PANICS.window.seconds()
            )));
        };
        self.not_before = now.plus(pause);
        self.pause = pause;
        Ok(())
    }

    /// How long the next stage waits from now on; no longer than the pause, should the clock be put back.
    pub(super) fn left(&self, now: Micros) -> Duration {
        Duration::from_micros(self.not_before.since(now).min(self.pause).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Micros {
        Micros::of_millis(1_000_000 + millis)
    }

    fn panicked() -> ExitReason {
        ExitReason::Panicked("a word".into())
    }

    #[test]
    fn rp_1_the_wait_after_a_panic_lasts_whatever_is_told_meanwhile() {
        let mut respite = Respite::new();
        assert_eq!(respite.left(at(0)), Duration::ZERO);
        // It panicked, and is let go.
        assert_eq!(respite.ended(panicked(), at(0)), Ok(()));
        assert_eq!(respite.left(at(0)), Duration::from_millis(100));
        // A post, and a newer one: nothing ran, so nothing panicked.
        for told in [10, 40] {
            assert_eq!(respite.ended(ExitReason::Asked, at(told)), Ok(()));
            assert_eq!(respite.left(at(told)), Duration::from_millis(100 - told));
        }
        assert_eq!(respite.left(at(101)), Duration::ZERO);
        // The second waits longer.
        assert_eq!(respite.ended(panicked(), at(200)), Ok(()));
        assert_eq!(respite.left(at(250)), Duration::from_millis(150));
        assert_eq!(respite.left(Micros(0)), Duration::from_millis(200));
    }

    #[test]
    fn too_many_panics_end_the_process_with_the_last_words() {
        let mut respite = Respite::new();
        let ends = [0, 1, 2, 3].map(|told| respite.ended(panicked(), at(told)));
        assert_eq!(ends[..3], [Ok(()), Ok(()), Ok(())]);
        let why = "the stage panicked 4 times within 120 s, the last time with: a word";
        assert_eq!(ends[3], Err(ExitReason::Failed(why.into())));
    }
}
