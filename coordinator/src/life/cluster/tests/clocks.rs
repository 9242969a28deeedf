//! The wall clock is put forward and back: nothing but what people read depends on it.

use shared::units::Micros;

use super::losses::{at_work, goes_on, obey, seated};

const HOUR: u64 = 3_600_000_000;

/// A node whose device hangs, one that is silent, a move and its end, with the wall clock so far ahead from the second on and
/// so far later; all that was written of it, but for the times.
fn history(ahead: [u64; 2]) -> Vec<String> {
    let (mut desk, job) = at_work(1, &["a", "b", "c"]);
    desk.ahead = Micros(ahead[0]);
    desk.pass(5_000);
    desk.hang("a");
    desk.pass(30_000);
    desk.ahead = Micros(ahead[1]);
    desk.pass(20_000);
    assert_eq!(seated(&desk), ["a"], "a minute is not over");
    desk.pass(15_000);
    for _ in 0..2 {
        obey(&mut desk, &["b", "c"], ["", ""]);
    }
    assert_eq!(seated(&desk), ["b"], "the device of a was found to hang");
    goes_on(&mut desk, job, "b");
    desk.ahead = Micros(ahead[0]);
    desk.pass(2_000);
    desk.fall_silent("b");
    desk.pass(1_000);
    desk.ahead = Micros(ahead[1]);
    desk.pass(1_000);
    assert_eq!(seated(&desk), ["b"], "it may be silent for 3 s");
    desk.pass(2_000);
    for _ in 0..2 {
        obey(&mut desk, &["c"], ["", ""]);
    }
    assert_eq!(seated(&desk), ["c"]);
    let changes = desk.journal.iter().map(|record| &record.change);
    changes.map(|change| format!("{change:?}")).collect()
}

#[test]
fn hangs_and_losses_are_found_at_the_same_moment_however_the_wall_clock_jumps() {
    let steady = history([2 * HOUR, 2 * HOUR]);
    assert!(steady.len() > 10, "{steady:?}");
    for ahead in [[2 * HOUR, 3 * HOUR], [2 * HOUR, HOUR], [0, 500 * HOUR]] {
        assert_eq!(history(ahead), steady, "{ahead:?}");
    }
}
