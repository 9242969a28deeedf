//! Whether the device of a node still comes back from its work. CL-9
//!
//! Its heartbeats tell for how long it has been at one piece. How long a piece takes depends on model, device and
//! batch, and is learned: ten times the longest that came to an end is believed, and the bound of the settings while that is
//! less. Two heartbeats in a row must say so, as a clock that was put forward lasts for one piece only.

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
    /// The longest piece that came to an end, as far as heartbeats saw it.
    longest: Micros,
    /// Heartbeats in a row that were of too long a piece.
    over: u32,
}

impl Device {
    /// Notes what a heartbeat says; whether that changes what is thought of it.
    pub fn beat(&mut self, age: Micros, bound: Micros) -> bool {
        if age < self.age {
            self.longest = self.longest.max(self.age);
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
        // A clock put forward is over with the piece.
        assert_eq!(after(&[3, 3_600, 2, 3]), [false; 4]);
    }

    #[test]
    fn cl_9_what_took_long_before_is_borne_ten_times_as_long() {
        // A piece of 50 ended: 500 are borne, and 501 are not.
        let told = after(&[50, 0, 100, 499, 500, 501, 502]);
        assert_eq!(told, [false, false, false, false, false, false, true]);
    }
}
