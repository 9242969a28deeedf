//! Points in time as text: ISO 8601 and back, on the proleptic Gregorian calendar without leap seconds.
//!
//! Days since 1970-01-01 of a date: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil` and
//! `civil_from_days`.

use shared::units::Micros;

use super::fault::RowFault;

const DAY: i64 = 86_400;

/// A date and a time of day, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// 1970 or later.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
    /// 0 to 59.
    pub second: i64,
    /// 0 to 999,999.
    pub micros: i64,
}

/// The shape of the times that are read.
pub(super) const FORM: &str = "2015-03-11T16:53:20+00:00";

impl Instant {
    /// The date and time of an instant since 1970-01-01 UTC.
    #[must_use]
    pub const fn of(at: Micros) -> Self {
        let seconds = (at.0 / 1_000_000) as i64;
        let (days, rest) = (seconds / DAY, seconds % DAY);
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let of_era = shifted % 146_097;
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Self {
            year: year + era * 400 + (month <= 2) as i64,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            micros: (at.0 % 1_000_000) as i64,
        }
    }

    /// Microseconds since 1970-01-01 UTC; nothing before that, or when a part is out of its range.
    #[must_use]
    pub fn micros_since_1970(self) -> Option<Micros> {
        let in_range = (1970..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_of(self.year, self.month)).contains(&self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second);
        if !in_range {
            return None;
        }
        let year = self.year - i64::from(self.month <= 2);
        let era = year / 400;
        let of_era = year % 400;
        let month = (self.month + 9) % 12;
        let of_year = (153 * month + 2) / 5 + self.day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        let seconds = days * DAY + self.hour * 3600 + self.minute * 60 + self.second;
        let micros = seconds.checked_mul(1_000_000)?.checked_add(self.micros)?;
        u64::try_from(micros).ok().map(Micros)
    }
}

const fn days_of(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + leap as i64,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// An instant since 1970-01-01 as `2015-03-11T16:53:20Z`, with microseconds where there are any.
#[must_use]
pub fn instant_text(at: Micros) -> String {
    let i = Instant::of(at);
    let second = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        i.year, i.month, i.day, i.hour, i.minute, i.second
    );
    if i.micros == 0 {
        format!("{second}Z")
    } else {
        format!("{second}.{:06}Z", i.micros)
    }
}

/// Reads `2015-03-11T16:53:20+00:00`: a `T` or a space between, a fraction or none, an offset or `Z` or none (UTC).
pub(super) fn parse(text: &str) -> Result<Micros, RowFault> {
    parse_parts(text).ok_or_else(|| RowFault::Instant {
        text: text.to_owned(),
        form: FORM,
    })
}

fn parse_parts(text: &str) -> Option<Micros> {
    let (date, clock) = text.split_once(['T', ' '])?;
    let [year, month, day] = numbers(date, '-')?;
    let (clock, offset) = match clock.find(['Z', '+', '-']) {
        Some(at) => (&clock[..at], offset_seconds(&clock[at..])?),
        None => (clock, 0),
    };
    let (clock, micros) = match clock.split_once('.') {
        Some((whole, fraction)) => (whole, fraction_micros(fraction)?),
        None => (clock, 0),
    };
    let [hour, minute, second] = numbers(clock, ':')?;
    let local = Instant {
        year,
        month,
        day,
        hour,
        minute,
        second,
        micros,
    };
    let local = local.micros_since_1970()?.0;
    local.checked_add_signed(-offset * 1_000_000).map(Micros)
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let mut parts = text.split(between).map(digits);
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(found)
}

fn digits(text: &str) -> Option<i64> {
    let fits = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

/// `Z`, `+00:00`, `-0530`.
fn offset_seconds(text: &str) -> Option<i64> {
    if text == "Z" {
        return Some(0);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let rest = text.get(1..)?.replace(':', "");
    if rest.len() != 4 {
        return None;
    }
    let all = digits(&rest)?;
    let (hours, minutes) = (all / 100, all % 100);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Digits after the point, cut at microseconds.
fn fraction_micros(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let six: String = text.chars().chain("000000".chars()).take(6).collect();
    digits(&six)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_instants() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0u64),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2015-03-11T16:53:20+00:00", 1_426_092_800),
            ("2015-03-11 18:53:20+02:00", 1_426_092_800),
            ("2015-03-11T11:23:20-0530", 1_426_092_800),
            ("2021-12-31T23:59:59", 1_640_995_199),
        ] {
            let found = parse(text).unwrap();
            assert_eq!(found, Micros(seconds * 1_000_000), "{text}");
        }
        let fraction = parse("2025-10-19T21:01:58.727366+00:00").unwrap();
        assert_eq!(fraction.0 % 1_000_000, 727_366);
        assert_eq!(instant_text(fraction), "2025-10-19T21:01:58.727366Z");
        let cut = parse("1970-01-01T00:00:00.1234567Z").unwrap();
        assert_eq!(cut, Micros(123_456));
    }

    #[test]
    fn what_is_no_instant() {
        for text in [
            "",
            "2015-03-11",
            "2015-02-29T00:00:00Z",
            "2015-13-01T00:00:00Z",
            "2015-03-11T24:00:00Z",
            "2015-03-11T16:53Z",
            "2015-03-11T16:53:20+99:00",
            "2015-03-11T16:53:20+0",
            "1969-12-31T23:59:59Z",
            "2015-03-11T16:53:20.Z",
            "1970-01-01T00:00:00+01:00",
            "2015-03-11T+6:53:20",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_and_instant_are_the_same(at in 0u64..253_402_300_800_000_000) {
            let text = instant_text(Micros(at));
            prop_assert_eq!(parse(&text).unwrap(), Micros(at));
        }
    }
}
