//! What a job asks of the machines that a market holds: until when it is to be done, and what it may cost.

use serde::{Deserialize, Serialize};

use super::check::Found;
use super::limits::MAX_ZONES;
use crate::units::{MicroUsd, Micros};

/// Longest deadline, in hours.
const MOST_HOURS: f64 = 100_000.0;
/// Largest budget, in dollars.
const MOST_USD: f64 = 1e9;
/// How an instant is written.
const FORM: &str = "2026-12-24T18:00Z";

/// Deadline and budget of a job. Results do not depend on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MarketSpec {
    /// Hours from its submission until it is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_hours: Option<f64>,
    /// The instant until which it is to be done, UTC, such as `2026-12-24T18:00Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_by: Option<String>,
    /// What its share of the machines may cost; more pauses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Zones or regions where its machines may be; all when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
}

impl MarketSpec {
    /// Until when a job that was submitted then is to be done, both since 1970; nothing where it has time.
    #[must_use]
    pub fn until(&self, submitted: Micros) -> Option<Micros> {
        let hours = self.deadline_hours.filter(|hours| hours.is_finite());
        let after = hours.map(|hours| submitted.plus(Micros((hours.max(0.0) * 3.6e9) as u64)));
        after.or_else(|| self.done_by.as_deref().and_then(instant))
    }

    /// What it may cost; nothing where there is no end.
    #[must_use]
    pub fn budget(&self) -> Option<MicroUsd> {
        let usd = self.budget_usd.filter(|usd| usd.is_finite());
        usd.map(|usd| MicroUsd((usd.max(0.0) * 1e6).round() as u64))
    }

    /// Why it is not taken at an instant since 1970, where the least that a job costs is known.
    #[must_use]
    pub fn refusal(&self, now: Micros, least: MicroUsd) -> Option<String> {
        let over = self.until(now).filter(|until| *until <= now);
        if over.is_some() {
            let by = self.done_by.as_deref().unwrap_or_default();
            return Some(format!(
                "market.done_by = {by:?} is over by {:.0} min: name an instant that is to come, or leave it out",
                now.since(over.unwrap_or(now)).seconds() / 60.0
            ));
        }
        let cap = self.budget().filter(|cap| *cap < least)?;
        Some(format!(
            "market.budget_usd is {cap}, and one slot of the fewest machines costs {least} at the lower price: at least {:.2} would do",
            (least.0.div_ceil(10_000)) as f64 / 100.0
        ))
    }

    pub(super) fn collect(&self, found: &mut Found) {
        if let Some(hours) = self.deadline_hours {
            let fits = hours > 0.0 && hours <= MOST_HOURS;
            found.when(!fits, "market.deadline_hours", || {
                format!(
                    "{} is no number of hours above 0 up to {MOST_HOURS}",
                    short(hours)
                )
            });
        }
        if let Some(by) = &self.done_by {
            found.when(instant(by).is_none(), "market.done_by", || {
                format!("{by:?} is no instant of the form {FORM}, UTC")
            });
            found.when(self.deadline_hours.is_some(), "market.done_by", || {
                "is given together with market.deadline_hours: leave one out".into()
            });
        }
        found.when(
            self.zones.iter().any(|zone| zone.trim().is_empty()),
            "market.zones",
            || {
                "names nothing: write zones or regions of the market, or leave it out for all"
                    .into()
            },
        );
        let zones = self.zones.len();
        found.when(zones > MAX_ZONES, "market.zones", || {
            format!("names {zones}: use at most {MAX_ZONES}, or leave it out for all")
        });
        let longest = self.zones.iter().map(String::len).max();
        found.longest("market.zones", longest.unwrap_or(0), MAX_ZONES);
        if let Some(usd) = self.budget_usd {
            let fits = usd > 0.0 && usd <= MOST_USD;
            found.when(!fits, "market.budget_usd", || {
                format!(
                    "{} is no number of dollars above 0 up to {MOST_USD}",
                    short(usd)
                )
            });
        }
    }
}

/// A number as it was written, or nearly: a huge one without all its zeros.
fn short(number: f64) -> String {
    if number.abs() < 1e15 {
        format!("{number}")
    } else {
        format!("{number:e}")
    }
}

/// Microseconds since 1970 of `YYYY-MM-DDTHH:MMZ`, with seconds if wanted.
///
/// Days of a date: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn instant(text: &str) -> Option<Micros> {
    let (date, time) = text.trim().strip_suffix('Z')?.split_once('T')?;
    let number = |text: &str, digits: usize| -> Option<i64> {
        let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten()
    };
    let mut date = date.split('-');
    let (year, month, day) = (
        number(date.next()?, 4)?,
        number(date.next()?, 2)?,
        number(date.next()?, 2)?,
    );
    let mut time = time.split(':');
    let (hour, minute) = (number(time.next()?, 2)?, number(time.next()?, 2)?);
    let second = time.next().map_or(Some(0), |second| number(second, 2))?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let whole = date.next().is_none() && time.next().is_none();
    let fits = year >= 1970 && (1..=days).contains(&day) && hour < 24 && minute < 60 && second < 60;
    if !whole || !fits {
        return None;
    }
    let shifted = if month > 2 { year } else { year - 1 };
    let era = shifted / 400;
    let of_era = shifted % 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = era * 146_097 + of_era - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Micros(
        u64::try_from(seconds).ok()?.saturating_mul(1_000_000),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn instants_are_read_and_what_is_none_is_not() {
        for (text, seconds) in [
            ("1970-01-01T00:00Z", 0),
            ("2000-02-29T12:30:05Z", 951_827_405),
            ("2026-11-30T07:31:00Z", 1_796_023_860),
        ] {
            assert_eq!(instant(text), Some(Micros(seconds * 1_000_000)), "{text}");
        }
        for text in [
            "2026-11-31T00:00Z",
            "2026-02-29T00:00Z",
            "2026-1-1T00:00Z",
            "2026-01-01T24:00Z",
            "2026-01-01 00:00Z",
            "2026-01-01T00:00",
            "1969-12-31T23:59Z",
            "2026-01-01T00:00:00:00Z",
            "",
        ] {
            assert_eq!(instant(text), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_number_that_would_work() {
        let now = Micros(1_796_023_860_000_000);
        let spec = |by: Option<&str>, hours, budget_usd| MarketSpec {
            deadline_hours: hours,
            done_by: by.map(ToOwned::to_owned),
            budget_usd,
            zones: Vec::new(),
        };
        assert_eq!(spec(None, None, None).refusal(now, MicroUsd(5)), None);
        let past = spec(Some("2026-11-30T06:31Z"), None, None);
        let told = past.refusal(now, MicroUsd(0)).unwrap_or_default();
        assert!(told.contains("over by 60 min"), "{told}");
        let poor = spec(None, Some(2.0), Some(0.1));
        let told = poor.refusal(now, MicroUsd(150_000)).unwrap_or_default();
        assert!(told.contains("at least 0.15 would do"), "{told}");
        assert_eq!(poor.refusal(now, MicroUsd(100_000)), None);
        assert_eq!(poor.until(now), Some(now.plus(Micros(2 * HOUR))));
        let mut found = Found::default();
        spec(Some("tomorrow"), Some(-1.0), Some(f64::NAN)).collect(&mut found);
        assert_eq!(found.0.len(), 4, "{:?}", found.0);
        assert_eq!([1e300, 2.5, -1.0].map(short), ["1e300", "2.5", "-1"]);
    }
}
