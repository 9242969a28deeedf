//! When chunks were on their way, by a clock that is given: what carries a link notes it, who looks at the stage asks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shared::units::Micros;

use super::ChunkHeader;

/// Tells the time; any fixed start.
pub type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

/// Most that are kept while nobody asks; the newest are.
const MOST: usize = 1024;

/// A chunk that was on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// The chunk.
    pub header: ChunkHeader,
    /// Whether it came; else it went.
    pub inward: bool,
    /// When the carrier began with it: packed its values, or had its head.
    pub start: Micros,
    /// When its last byte was with the network, or here and found to be right.
    pub end: Micros,
}

/// Transits of a link that nobody asked for yet; by default none is noted.
#[derive(Default)]
pub struct Transits(Option<(Clock, Mutex<VecDeque<Transit>>)>);

impl Transits {
    /// Noted by this clock.
    #[must_use]
    pub fn by(clock: Clock) -> Self {
        Self(Some((clock, Mutex::default())))
    }

    /// Now, where transits are noted.
    pub(super) fn now(&self) -> Option<Micros> {
        self.0.as_ref().map(|(clock, _)| clock())
    }

    /// A chunk is through, which was begun then.
    pub(super) fn note(&self, header: ChunkHeader, inward: bool, start: Option<Micros>) {
        let (Some((clock, kept)), Some(start)) = (&self.0, start) else {
            return;
        };
        let mut kept = lock(kept);
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back(Transit {
            header,
            inward,
            start,
            end: clock(),
        });
    }

    /// Takes those out that were noted since the last call.
    pub(super) fn take(&self) -> Vec<Transit> {
        let kept = self
            .0
            .as_ref()
            .map(|(_, kept)| lock(kept).drain(..).collect());
        kept.unwrap_or_default()
    }
}

fn lock(kept: &Mutex<VecDeque<Transit>>) -> MutexGuard<'_, VecDeque<Transit>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Transits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transits").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::Direction;
    use super::*;

    #[test]
    fn the_newest_are_kept_until_they_are_asked_for() {
        let header = |micro_batch| ChunkHeader {
            epoch: 1,
            micro_batch,
            direction: Direction::Forward,
            rows: 1,
            width: 1,
        };
        let ticks = AtomicU64::new(0);
        let clock = move || Micros(ticks.fetch_add(1, Ordering::Relaxed));
        let transits = Transits::by(Arc::new(clock));
        for number in 0..MOST as u64 + 2 {
            let start = transits.now();
            transits.note(header(number), number % 2 == 0, start);
        }
        let taken = transits.take();
        assert_eq!((taken.len(), taken[0].header.micro_batch), (MOST, 2));
        assert!(taken.iter().all(|one| one.start < one.end));
        assert!(transits.take().is_empty());
        let off = Transits::default();
        off.note(header(0), true, off.now());
        assert!(off.take().is_empty());
    }
}
