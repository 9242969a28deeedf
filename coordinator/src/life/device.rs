//! Whether the device of a node still comes back from its work. CL-9
//!
//! Its heartbeats tell for how long it has been at one piece, by a clock of the node that never jumps. How long a piece takes
//! depends on model, device and batch, and is learned: ten times the longest that came to an end is believed, and the bound
//! of the settings while that is less. Two heartbeats in a row must say so.
//!
//! What is learned is bounded. A piece that was found to hang, or was over what is believed, teaches nothing when it comes
//! back: else one hang would make the next ten times as long. And no piece counts for longer than the bound, so that at
//! most ten times the bound is ever believed; a device whose pieces take longer wants a greater bound.

use shared::units::Micros;

/// More than the longest piece of before by this factor is not believed.
const FACTOR: u64 = 10;

/// Heartbeats in a row that must say so.
const BEATS: u32 = 2;

/// What is known of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// For how long it has been at one piece of work; 0: it is at none.
    pub age: Micros,
    /// Whether it was found not to come back.
    pub hangs: bool,
    /// The longest piece that came to an end as it should, as far as heartbeats saw it; at most the bound.
    longest: Micros,
    /// Heartbeats in a row that were of too long a piece.
    over: u32,
}

impl Device {
    /// Notes what a heartbeat says; whether that changes what is thought of it.
    pub fn beat(&mut self, age: Micros, bound: Micros) -> bool {
        if age < self.age && !self.hangs && self.over == 0 {
            self.longest = self.longest.max(self.age.min(bound));
        }
        self.age = age;
        let over = age > self.patience(bound);
        self.over = if over { self.over + 1 } else { 0 };
        let before = self.hangs;
        self.hangs = over && (before || self.over >= BEATS);
        before != self.hangs
    }

    /// For how long it may be at one piece of work.
    #[must_use]
    pub fn patience(&self, bound: Micros) -> Micros {
        bound.max(Micros(self.longest.0.saturating_mul(FACTOR)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Micros = Micros(60);

    fn after(beats: &[u64]) -> Vec<bool> {
        let mut device = Device::default();
        beats
            .iter()
            .map(|age| {
                device.beat(Micros(*age), BOUND);
                device.hangs
            })
            .collect()
    }

    #[test]
    fn cl_9_a_device_hangs_after_the_bound_and_two_beats_until_it_ends_its_piece() {
        assert_eq!(
            after(&[0, 30, 60, 61, 62, 90, 0, 1]),
            [false, false, false, false, true, true, false, false]
        );
        // One heartbeat alone proves nothing.
        assert_eq!(after(&[3, 3_600, 2, 3]), [false; 4]);
    }

    #[test]
    fn cl_9_what_took_long_before_is_borne_ten_times_as_long() {
        // A piece of 50 ended: 500 are borne, and 501 are not.
        let told = after(&[50, 0, 100, 499, 500, 501, 502]);
        assert_eq!(told, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn cl_9_a_hang_teaches_nothing_and_what_is_learned_is_bounded() {
        let mut device = Device::default();
        let mut beat = |age| {
            device.beat(Micros(age), BOUND);
            (device.hangs, device.patience(BOUND))
        };
        // Found to hang, and back after long; then one that only one heartbeat saw, as of a clock that jumped.
        for age in [61, 62, 5_000] {
            beat(age);
        }
        assert_eq!(beat(0), (false, BOUND));
        beat(3_600);
        assert_eq!(beat(0), (false, BOUND), "it was believed by nobody");
        // Pieces that grow by less than ten each: not without end.
        for age in [59, 0, 580, 0, 590, 0, 600, 0] {
            beat(age);
        }
        assert_eq!(beat(0), (false, Micros(600)));
        assert_eq!(beat(601), (false, Micros(600)));
        assert_eq!(beat(602), (true, Micros(600)));
    }
}
