//! What the pools offered, slot by slot: bounded, and the same after a restart.
//!
//! - BH-1: at most [`MOST`] slots are held, of which [`KEPT`] survive a restart; a slot is known by its number, which only grows.

use serde::{Deserialize, Serialize};
use shared::units::Micros;

use crate::market::Slot;
use crate::now::Now;

/// Slots in memory: what the longest memory of a policy or forecaster takes, and half as much again.
pub const MOST: usize = 4096;
/// Slots that survive a restart: five days of half hours.
pub const KEPT: usize = 256;

/// Slots of a market, the one under way last.
#[derive(Clone, Debug)]
pub struct History {
    length: Micros,
    slots: Vec<Slot>,
    /// Number of the slot under way.
    number: u64,
    /// How much of it has passed, and when that was looked at.
    passed: Micros,
    seen: Micros,
    /// What was seen last: it need not be the least of the slot.
    latest: Option<Slot>,
}

/// What of it survives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptHistory {
    /// Length of a slot.
    pub length: Micros,
    /// The last slots.
    pub slots: Vec<Slot>,
    /// Number of the last.
    pub number: u64,
    /// How much of it had passed.
    pub passed: Micros,
}

impl History {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new(length: Micros, now: Now) -> Self {
        Self {
            length,
            slots: Vec::new(),
            number: 0,
            passed: Micros(0),
            seen: now.steady,
            latest: None,
        }
    }

    /// Nothing seen yet, with a number for the slot under way.
    #[must_use]
    pub const fn numbered(length: Micros, number: u64, now: Now) -> Self {
        let mut own = Self::new(length, now);
        own.number = number;
        own
    }

    /// What was kept at `at` by the wall, and what has passed since then by it. Slots of the same length, that is: those of another
    /// say nothing of these.
    #[must_use]
    pub fn resumed(length: Micros, kept: KeptHistory, at: Micros, now: Now) -> Self {
        let mut own = Self::new(length, now);
        own.number = kept.number;
        own.latest = kept.slots.last().copied();
        own.slots = kept.slots;
        own.passed = kept.passed.plus(now.wall.since(at));
        own.pass(now);
        own
    }

    /// What is to survive.
    #[must_use]
    pub fn kept(&self) -> KeptHistory {
        let from = self.slots.len().saturating_sub(KEPT);
        KeptHistory {
            length: self.length,
            slots: self.slots[from..].to_vec(),
            number: self.number,
            passed: self.passed,
        }
    }

    /// Time passes: how many slots began, each with what was seen last.
    pub fn pass(&mut self, now: Now) -> u64 {
        let more = now.steady.since(self.seen);
        self.seen = self.seen.max(now.steady);
        let Some(last) = self.slots.last().copied() else {
            return 0;
        };
        self.passed = self.passed.plus(more);
        let length = self.length.0.max(1);
        let begun = self.passed.0 / length;
        self.passed = Micros(self.passed.0 % length);
        if begun == 0 {
            return 0;
        }
        self.number = self.number.saturating_add(begun);
        let shown = begun.min(MOST as u64) as usize;
        // Of slots in which nobody looked no more is known than of the one before them; the one under way begins with what was seen
        // last, which may be more than the least of that one.
        self.slots.resize(self.slots.len() + shown, last);
        if let (Some(newest), Some(latest)) = (self.slots.last_mut(), self.latest) {
            *newest = latest;
        }
        // Not at each slot: what lies behind is moved to the front.
        if self.slots.len() > MOST + MOST / 2 {
            self.slots.drain(..self.slots.len() - MOST);
        }
        begun
    }

    /// The pools show this now: a slot that begins, begins with it.
    pub const fn next(&mut self, slot: Slot) {
        self.latest = Some(slot);
    }

    /// The pools show this now; whether it is the first that is seen of them. A capacity is the least over the slot, a price the
    /// last one seen.
    pub fn see(&mut self, slot: Slot) -> bool {
        self.latest = Some(slot);
        match self.slots.last_mut() {
            Some(last) => {
                let fewer = slot.spot_available.min(last.spot_available);
                *last = Slot {
                    spot_available: fewer,
                    ..slot
                };
                false
            }
            None => {
                self.slots.push(slot);
                true
            }
        }
    }

    /// Whether anything was seen.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What was seen last.
    #[must_use]
    pub fn latest(&self) -> Option<Slot> {
        self.latest.or_else(|| self.slots.last().copied())
    }

    /// The slot before the one under way.
    #[must_use]
    pub fn before(&self) -> Option<Slot> {
        let at = self.slots.len().checked_sub(2)?;
        self.slots.get(at).copied()
    }

    /// All slots that are held, the one under way last.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Number of the slot under way.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Length of a slot.
    #[must_use]
    pub const fn length(&self) -> Micros {
        self.length
    }

    /// What is left of the slot under way.
    #[must_use]
    pub const fn left(&self) -> Micros {
        self.length.since(self.passed)
    }
}

#[cfg(test)]
mod tests {
    use shared::units::MicroUsd;

    use super::*;

    fn slot(spot_available: u32) -> Slot {
        Slot {
            spot_price: MicroUsd(1),
            spot_available,
            on_demand_price: MicroUsd(2),
            on_demand_available: None,
        }
    }

    fn at(micros: u64) -> Now {
        Now::both(Micros(micros))
    }

    #[test]
    fn a_slot_has_the_least_and_the_next_begins_with_the_last() {
        let mut history = History::new(Micros(100), at(0));
        assert_eq!(history.pass(at(1000)), 0, "nothing was seen");
        assert!(history.see(slot(4)));
        assert!(!history.see(slot(2)));
        history.see(slot(3));
        assert_eq!(history.slots(), [slot(2)]);
        assert_eq!(history.pass(at(1099)), 0);
        assert_eq!(history.left(), Micros(1));
        assert_eq!(history.pass(at(1100)), 1);
        assert_eq!(history.slots(), [slot(2), slot(3)]);
        assert_eq!(history.before(), Some(slot(2)));
    }

    #[test]
    fn bh_1_it_stays_bounded_and_its_numbers_grow() {
        let mut history = History::new(Micros(1), at(0));
        history.see(slot(1));
        for time in 1..20_000 {
            history.pass(at(time));
        }
        assert_eq!(history.number(), 19_999);
        assert!((MOST..=MOST + MOST / 2).contains(&history.slots().len()));
        history.pass(at(u64::MAX));
        assert!(history.slots().len() <= MOST + MOST / 2);
        assert_eq!(history.kept().slots.len(), KEPT);
    }

    #[test]
    fn a_restart_goes_on_in_the_same_slot_or_a_later_one() {
        let mut history = History::new(Micros(100), at(0));
        history.see(slot(4));
        history.pass(at(250));
        let kept = history.kept();
        // Another process, whose steady clock begins anew, half a slot and then three later.
        for (wall, number, left) in [(280, 2, 20), (610, 6, 90)] {
            let now = Now {
                wall: Micros(wall),
                steady: Micros(7),
            };
            let again = History::resumed(Micros(100), kept.clone(), Micros(250), now);
            assert_eq!((again.number(), again.left()), (number, Micros(left)));
            assert_eq!(again.latest(), Some(slot(4)));
        }
    }
}
