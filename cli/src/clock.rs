//! The command line's clock: the one place that reads it.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shared::units::Micros;

/// Time since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts to count.
    #[expect(
        clippy::disallowed_methods,
        reason = "the command line measures how long things take; nothing computed depends on it"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// The same in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

/// Time since it was first asked: a clock to hand to what may not read one.
pub(crate) fn since_first_asked() -> Duration {
    static FIRST: OnceLock<Stopwatch> = OnceLock::new();
    FIRST.get_or_init(Stopwatch::start).elapsed()
}

/// The time of day, since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "ages are shown against the clock of who looks; nothing computed depends on it"
)]
pub(crate) fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    Micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_for_ages_is_not_that_of_the_day() {
        // 2020; since the process was started it is some hours at most.
        const THEN: Duration = Duration::from_secs(1_577_836_800);
        assert!(now() > Micros(1_577_836_800_000_000));
        let first = since_first_asked();
        assert!(first < THEN);
        assert!(since_first_asked() >= first, "it never goes back");
    }
}
