//! Prices as text, exactly: decimal digits to millionths of a dollar, without a float in between.

use shared::units::MicroUsd;

use super::fault::RowFault;

/// No machine costs more an hour, in millionths of a dollar: sums over all slots and machines of a job stay numbers.
pub(super) const MOST: u64 = 1_000_000_000_000;

/// Reads `0.918`: dollars, no machine is free; digits beyond millionths are rounded to the nearest, halves up.
pub(super) fn parse(text: &str) -> Result<MicroUsd, RowFault> {
    parse_digits(text).ok_or_else(|| RowFault::Price {
        text: text.to_owned(),
    })
}

/// Dollars of a float, rounded to the nearest millionth.
pub(super) fn of_dollars(dollars: f64) -> Option<MicroUsd> {
    let micros = (dollars * 1e6).round();
    (micros >= 1.0 && micros <= MOST as f64).then_some(MicroUsd(micros as u64))
}

fn parse_digits(text: &str) -> Option<MicroUsd> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let dollars: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut micros = 0;
    for at in 0..6 {
        let digit = fraction.as_bytes().get(at).map_or(0, |byte| byte - b'0');
        micros = micros * 10 + u64::from(digit);
    }
    let up = fraction.as_bytes().get(6).is_some_and(|byte| *byte >= b'5');
    let total = dollars
        .checked_mul(1_000_000)?
        .checked_add(micros + u64::from(up))?;
    (1..=MOST).contains(&total).then_some(MicroUsd(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_exact() {
        for (text, micros) in [
            ("0.918", 918_000),
            ("0.0652", 65_200),
            ("12.69", 12_690_000),
            ("3", 3_000_000),
            (".5", 500_000),
            ("0.0000005", 1),
            ("1.368000", 1_368_000),
        ] {
            assert_eq!(parse(text).unwrap(), MicroUsd(micros), "{text}");
        }
        for text in [
            "",
            ".",
            "0",
            "0.00000049",
            "-1",
            "1e3",
            "0.9.1",
            "1,5",
            "NaN",
            "1000001",
            "99999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn floats_are_rounded() {
        assert_eq!(of_dollars(1.2754), Some(MicroUsd(1_275_400)));
        assert_eq!(of_dollars(-0.1), None);
        assert_eq!(of_dollars(0.0), None);
        assert_eq!(of_dollars(f64::NAN), None);
        assert_eq!(of_dollars(f64::INFINITY), None);
    }
}
