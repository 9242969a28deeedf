//! Words of the command line as values.

use coordinator::plan::bounds::{self, Bound};
use coordinator::plan::profile::Weights;
use shared::ids::{EventNumber, JobId, JobName};
use shared::job::{MAX_TOKENS_PER_PASS, Products};
use shared::wire::request::JobRef;

/// A job by its id or its name; what looks like an id is one.
pub(super) fn job(word: &str) -> Result<JobRef, String> {
    if let Ok(id) = word.parse::<JobId>() {
        return Ok(JobRef::Id(id));
    }
    JobName::new(word)
        .map(JobRef::Name)
        .map_err(|error| error.to_string())
}

/// An event's number, with its letters or without.
pub(super) fn event(word: &str) -> Result<EventNumber, String> {
    word.parse()
        .or_else(|_| format!("ev{word}").parse())
        .map_err(|_| format!("{word:?} is no event number: write it as ev120 or 120"))
}

/// An arithmetic of frozen products.
pub(super) fn products(word: &str) -> Result<Products, String> {
    let known = [Products::F32, Products::Split].into_iter();
    let named = known.clone().find(|products| products.to_string() == word);
    named.ok_or_else(|| {
        let known: Vec<String> = known.map(|products| products.to_string()).collect();
        format!("{word:?} is none of {}", known.join(", "))
    })
}

/// Rows of a pass or a chunk.
pub(super) fn pass_tokens(word: &str) -> Result<usize, String> {
    within(word, MAX_TOKENS_PER_PASS)
}

/// A number from 1 to a bound, which the error names.
fn within(word: &str, most: usize) -> Result<usize, String> {
    let number = word.parse().ok();
    let number = number.filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("{word:?} is no number from 1 to {most}"))
}

/// Compute threads.
pub(super) fn threads(word: &str) -> Result<usize, String> {
    within(word, shared::job::MAX_THREADS)
}

/// How many of something: none is not meant.
pub(super) fn some(word: &str) -> Result<usize, String> {
    within(word, 1_000_000)
}

/// Samples that are shown. The number may be left out, so that a file behind the option is taken for one.
pub(super) fn shown(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| {
        format!(
            "{word:?} is no number of samples: write FILE in front of --show-mask, or --show-mask=3"
        )
    })
}

/// How weights are kept.
pub(super) fn weights(word: &str) -> Result<Weights, String> {
    let known = [
        Weights::F32,
        Weights::Bf16,
        Weights::F16,
        Weights::Q8,
        Weights::Q4,
    ];
    let named = known.into_iter().find(|weights| weights.name() == word);
    named.ok_or_else(|| {
        let known = known.map(Weights::name);
        format!("{word:?} is none of {}", known.join(", "))
    })
}

/// A number above 0.
pub(super) fn positive(word: &str) -> Result<f64, String> {
    let number = word.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("{word:?} is not a number above 0"))
}

/// Hours from now, above 0.
pub(super) fn hours(word: &str) -> Result<f64, String> {
    real_within(word, bounds::HOURS)
}

/// A price of an hour in dollars, above 0.
pub(super) fn price(word: &str) -> Result<f64, String> {
    real_within(word, bounds::PRICE)
}

/// A number above 0 up to a bound, which the error names.
fn real_within(word: &str, bound: Bound) -> Result<f64, String> {
    let (number, most) = (positive(word)?, bound.most);
    let checked = bound.check_real(number);
    checked.map_err(|_| format!("{word} is more than {most}"))
}

/// A number from a least to a most, which the error names: no number is one that is none, or without end.
fn between(word: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = word.parse::<f64>().ok();
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{word:?} is no number from {least} to {most}"))
}

/// Work as a share of what machines do.
pub(super) fn load(word: &str) -> Result<f64, String> {
    between(word, 0.001, 1000.0)
}

/// A share of a slot that computes: some of it does.
pub(super) fn share(word: &str) -> Result<f64, String> {
    between(word, 0.001, 1.0)
}

/// How many times something.
pub(super) fn times(word: &str) -> Result<f64, String> {
    between(word, 0.001, 1000.0)
}

/// What a machine costs for an hour in dollars: none is free.
pub(super) fn dollars(word: &str) -> Result<f64, String> {
    between(word, 0.000_001, 1_000_000.0)
}

/// Dollars or gibibytes, also none.
pub(super) fn amount(word: &str) -> Result<f64, String> {
    between(word, 0.0, 1_000_000.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn ids_names_and_numbers() {
        assert_eq!(job("j12"), Ok(JobRef::Id(JobId(12))));
        assert_eq!(job("j12x"), Ok(JobRef::Name(JobName::new("j12x").unwrap())));
        assert!(job("a/b").is_err());
        assert_eq!(event("ev7"), Ok(EventNumber(7)));
        assert_eq!(event("7"), Ok(EventNumber(7)));
        assert!(event("seven").is_err() && event("n7").unwrap_err().contains("ev120"));
        assert_eq!(products("split"), Ok(Products::Split));
        assert_eq!(pass_tokens("64"), Ok(64));
        assert!(pass_tokens("0").is_err() && pass_tokens("-1").is_err());
        assert!(pass_tokens("16777217").unwrap_err().contains("16777216"));
        assert_eq!(threads("8"), Ok(8));
        assert!(threads("0").unwrap_err().contains("from 1 to 4096"));
        assert!(threads("4097").is_err() && some("0").is_err());
        assert!(products("f16").unwrap_err().contains("f32, split"));
        assert_eq!(weights("q4"), Ok(Weights::Q4));
        assert!(weights("int3").unwrap_err().contains("bf16"));
        assert_eq!(positive("0.5"), Ok(0.5));
        assert!(positive("0").is_err() && positive("nan").is_err());
        assert_eq!(hours("12"), Ok(12.0));
        assert!(hours("1e300").unwrap_err().contains("876000"));
        assert!(price("1e9").unwrap_err().contains("1000000"));
    }

    #[test]
    fn a_number_that_cannot_be_is_told_with_its_bounds() {
        for parse in [load, share, times, dollars, amount] {
            for word in ["NaN", "inf", "-inf", "-1", "1e9", "x", ""] {
                let told = parse(word).unwrap_err();
                assert!(told.contains(" to 1"), "{word}: {told}");
            }
            assert_eq!(parse("0.5"), Ok(0.5));
        }
        for parse in [load, share, times, dollars] {
            assert!(parse("0").is_err() && parse("-0").is_err());
        }
        assert_eq!(amount("0"), Ok(0.0));
    }
}
