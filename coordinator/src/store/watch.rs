//! When a lease that another has may be taken over.
//!
//! Who has it renews it every third of its time, and each renewal changes when it expires. So a lease that was seen
//! unchanged for its whole time is not renewed any more; and for half of it, when by the journal's own clock it expired
//! too. Time is told by a clock that never jumps: when the journal's is put forward a lease that is renewed looks expired
//! until its next renewal, and when it is put back one that nobody renews looks as if it held for long.

use shared::ids::Term;
use shared::units::Micros;

use super::Seen;

/// A lease that is watched.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// How long a lease lasts.
    lasts: Micros,
    /// As it was seen last, and since when it has been so.
    seen: Option<(Term, Micros, Micros)>,
    /// Whose leadership it was told of last that it is waited for.
    told: Option<Term>,
}

impl Watch {
    /// Begins to watch leases that last so long.
    #[must_use]
    pub fn new(lasts: Micros) -> Self {
        Self {
            lasts,
            seen: None,
            told: None,
        }
    }

    /// Whether it is news that this leadership is waited for: a stand-in waits for days, and says so once.
    pub fn is_news(&mut self, seen: &Seen) -> bool {
        self.told.replace(seen.term) != Some(seen.term)
    }

    /// Notes what a lease is at this time, by a clock that never jumps; whether it may be taken over.
    pub fn is_free(&mut self, seen: &Seen, now: Micros) -> bool {
        let (term, expires) = (seen.term, seen.expires);
        let same = |known: &(Term, Micros, Micros)| (known.0, known.1) == (term, expires);
        let (.., since) = *match self.seen.take_if(|known| same(known)) {
            Some(known) => self.seen.insert(known),
            None => self.seen.insert((term, expires, now)),
        };
        let watched = now.since(since);
        let expired = seen.left == Micros(0);
        watched >= self.lasts || (expired && watched.0 >= self.lasts.0 / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Micros = Micros(9_000_000);
    const HOUR: i64 = 3_600_000_000;

    /// Looks every 0.1 s for a minute at a lease that is renewed every third of its time until then, by a wall clock that
    /// jumps so far at ten seconds; when it is free first.
    fn free_at(renewed_until: u64, jump: i64) -> Option<u64> {
        let mut watch = Watch::new(LASTS);
        let base = 1_700_000_000_000_000_i64;
        let wall = |now: u64| base + now as i64 + if now < 10_000_000 { 0 } else { jump };
        let mut expires = wall(0) + LASTS.0 as i64;
        for now in (0..60_000_000).step_by(100_000) {
            if now % (LASTS.0 / 3) == 0 && now <= renewed_until {
                expires = wall(now) + LASTS.0 as i64;
            }
            let seen = Seen {
                owner: "one".into(),
                term: Term(1),
                expires: Micros(expires as u64),
                left: Micros((expires - wall(now)).max(0) as u64),
            };
            if watch.is_free(&seen, Micros(now)) {
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn a_lease_that_is_renewed_is_not_taken_over_however_the_wall_clock_jumps() {
        for jump in [0, HOUR, -HOUR, 5_000_000, -5_000_000] {
            assert_eq!(free_at(u64::MAX, jump), None, "{jump}");
        }
    }

    #[test]
    fn one_that_is_not_renewed_is_taken_over_within_its_time_however_the_wall_clock_jumps() {
        // Not renewed since 6 s; put forward by an hour, it is expired at 10 s, and was unchanged for half of its time at
        // 10.5 s.
        for (jump, free) in [(0, 15), (HOUR, 10), (-HOUR, 15), (-5_000_000, 15)] {
            let found = free_at(6_000_000, jump).map(|at| at / 1_000_000);
            assert_eq!(found, Some(free), "{jump}");
        }
    }

    #[test]
    fn one_that_expired_long_ago_is_watched_for_half_of_its_time() {
        let mut watch = Watch::new(LASTS);
        let seen = Seen {
            owner: "one".into(),
            term: Term(1),
            expires: Micros(1),
            left: Micros(0),
        };
        assert!(!watch.is_free(&seen, Micros(5)));
        assert!(!watch.is_free(&seen, Micros(4_400_000)));
        assert!(watch.is_free(&seen, Micros(4_600_000)));
        assert!(watch.is_news(&seen) && !watch.is_news(&seen));
        // Another took it meanwhile.
        let other = Seen {
            term: Term(2),
            ..seen
        };
        assert!(!watch.is_free(&other, Micros(4_700_000)));
        assert!(watch.is_news(&other) && !watch.is_news(&other));
    }
}
