//! Where an axis has its marks, and what stands at them.

use shared::units::Micros;

use crate::feed::Instant;

/// Marks from 0 to at least `most`, some five, at round values: 1, 2 or 5 times a power of ten, `least` apart or more.
pub(super) fn ticks(most: f64, least: f64) -> Vec<f64> {
    let most = if most.is_finite() && most > 0.0 {
        most
    } else {
        1.0
    };
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|of| of * power)
        .find(|step| rough <= step * (1.0 + 1e-9))
        .unwrap_or(10.0 * power)
        .max(least);
    let count = (most / step - 1e-9).ceil().max(1.0) as u32;
    (0..=count).map(|at| f64::from(at) * step).collect()
}

/// A value at a mark, with the digits that its step needs.
pub(super) fn tick_text(value: f64, step: f64) -> String {
    let digits = (-(step.log10() + 1e-9).floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.digits$}")
}

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Steps that people read easily.
const STEPS: [u64; 20] = [
    SECOND,
    5 * SECOND,
    15 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    112 * DAY,
];

/// Most marks of an axis of time.
const MOST: u64 = 12;

/// The axis of time.
pub(super) struct Times {
    /// Slots from the first, and what stands there.
    pub(super) marks: Vec<(f64, String)>,
    /// What stands below the axis.
    pub(super) title: String,
}

impl Times {
    pub(super) fn new(start: Micros, slot: Micros, slots: usize, dated: bool) -> Self {
        let length = slot.0.max(1);
        let span = length.saturating_mul(slots as u64);
        let step = STEPS.into_iter().find(|step| span / step <= MOST);
        let step = step.unwrap_or_else(|| (span / MOST).max(DAY));
        let start = start.0;
        let end = start.saturating_add(span);
        let first = start.div_ceil(step).saturating_mul(step);
        let mut marks = Vec::new();
        let mut at = first;
        while at <= end {
            let place = (at - start) as f64 / length as f64;
            let text = if dated {
                date_text(at, step, at == first)
            } else {
                since_text(at, step)
            };
            marks.push((place, text));
            let Some(next) = at.checked_add(step) else {
                break;
            };
            at = next;
        }
        Self {
            marks,
            title: title(start, end, step, dated),
        }
    }
}

/// Clock times, with the date at the first mark and at midnight; dates alone for steps of days.
fn date_text(at: u64, step: u64, is_first: bool) -> String {
    let i = Instant::of(Micros(at));
    let date = format!("{:02}-{:02}", i.month, i.day);
    let clock = if step >= MINUTE {
        format!("{:02}:{:02}", i.hour, i.minute)
    } else {
        format!("{:02}:{:02}:{:02}", i.hour, i.minute, i.second)
    };
    if step >= DAY || at.is_multiple_of(DAY) {
        date
    } else if is_first {
        format!("{date} {clock}")
    } else {
        clock
    }
}

fn since_text(at: u64, step: u64) -> String {
    let (unit, _) = unit(step);
    format!("{}", at / unit)
}

/// The unit that a step is a whole number of.
const fn unit(step: u64) -> (u64, &'static str) {
    match step {
        DAY.. => (DAY, "days"),
        HOUR.. => (HOUR, "hours"),
        MINUTE.. => (MINUTE, "minutes"),
        _ => (SECOND, "seconds"),
    }
}

fn title(start: u64, end: u64, step: u64, dated: bool) -> String {
    if !dated {
        return format!("{} since the trace's first slot", unit(step).1);
    }
    let date = |at: u64| {
        let i = Instant::of(Micros(at));
        format!("{:04}-{:02}-{:02}", i.year, i.month, i.day)
    };
    format!("time, UTC, {} to {}", date(start), date(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_reach_the_greatest() {
        assert_eq!(ticks(16.0, 0.0), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(ticks(10.0, 1.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            ticks(0.0, 0.0),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        for most in [0.064, 0.918, 3.06, 12.69, 1000.0, 7e7] {
            let marks = ticks(most, 0.0);
            assert!((3..=8).contains(&marks.len()), "{marks:?}");
            assert!(*marks.last().unwrap() >= most * (1.0 - 1e-9));
        }
        assert_eq!(ticks(1.0, 1.0), [0.0, 1.0]);
        assert_eq!(tick_text(0.6000000000000001, 0.2), "0.6");
        assert_eq!(tick_text(15.0, 5.0), "15");
        assert_eq!(tick_text(0.05, 0.05), "0.05");
    }

    #[test]
    fn time_without_dates_counts_from_the_first_slot() {
        let times = Times::new(Micros(5 * HOUR), Micros(30 * MINUTE), 48, false);
        let texts: Vec<&str> = times.marks.iter().map(|mark| mark.1.as_str()).collect();
        assert_eq!(
            texts,
            [
                "6", "8", "10", "12", "14", "16", "18", "20", "22", "24", "26", "28"
            ]
        );
        // A window of a trace keeps the trace's time: 5 h are its left end.
        assert_eq!(times.marks[0].0, 2.0);
        assert_eq!(times.title, "hours since the trace's first slot");
    }

    #[test]
    fn dates_stand_at_the_first_mark_and_at_midnight() {
        // 2015-03-11T16:00:00Z.
        let start = Micros(1_426_089_600 * SECOND);
        let times = Times::new(start, Micros(30 * MINUTE), 40, true);
        let texts: Vec<&str> = times.marks.iter().map(|mark| mark.1.as_str()).collect();
        assert_eq!(
            texts,
            [
                "03-11 16:00",
                "18:00",
                "20:00",
                "22:00",
                "03-12",
                "02:00",
                "04:00",
                "06:00",
                "08:00",
                "10:00",
                "12:00"
            ]
        );
        assert_eq!(times.title, "time, UTC, 2015-03-11 to 2015-03-12");
        let long = Times::new(start, Micros(DAY), 4000, true);
        assert!(long.marks.len() <= 13);
    }
}
