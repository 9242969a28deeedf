//! `strftime_now` over a given time: the date as templates write it, in UTC.

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// Writes the time `seconds` since 1970 by a format of `strftime`.
pub(super) fn format(seconds: i64, format: &str) -> Result<String, Error> {
    let days = seconds.div_euclid(86_400);
    let clock = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    let (year, month, day) = civil(days);
    let month_name = MONTHS[month as usize - 1];
    let day_name = DAYS[days.rem_euclid(7) as usize];
    let half_day = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let directive = rest.next();
        text.push_str(&match directive {
            Some('Y') => format!("{year:04}"),
            Some('y') => format!("{:02}", year.rem_euclid(100)),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('e') => format!("{day:2}"),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('H') => format!("{hour:02}"),
            Some('I') => format!("{half_day:02}"),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{second:02}"),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('F') => format!("{year:04}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('%') => "%".to_owned(),
            other => {
                let shown = other.map_or_else(String::new, String::from);
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("strftime_now does not know `%{shown}`"),
                ));
            }
        });
    }
    Ok(text)
}

/// Year, month and day of a day counted from 1970-01-01 (proleptic Gregorian calendar, years of 400 from March on).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::format;

    /// Expected texts printed by `date -u -d @SECONDS`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        let full = |seconds| format(seconds, "%A %d %B %Y %H:%M:%S, %a %b %e %y %I %p %F").unwrap();
        assert_eq!(
            full(0),
            "Thursday 01 January 1970 00:00:00, Thu Jan  1 70 12 AM 1970-01-01"
        );
        assert_eq!(
            full(1_709_210_096),
            "Thursday 29 February 2024 12:34:56, Thu Feb 29 24 12 PM 2024-02-29"
        );
        assert_eq!(
            full(-1),
            "Wednesday 31 December 1969 23:59:59, Wed Dec 31 69 11 PM 1969-12-31"
        );
    }

    #[test]
    fn an_unknown_directive_is_named() {
        assert!(format(0, "%Q").unwrap_err().to_string().contains("%Q"));
    }
}
