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
