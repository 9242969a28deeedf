//! Policies and foresights by the words that people write for them.
//!
//! | policy | is |
//! | --- | --- |
//! | `on-demand`, `uniform`, `mixed` | the least constant number on demand; an even pace; an even pace topped up on demand |
//! | `maximal[=LIMIT]`, `buy-ahead[=SIGMA]` | all spot up to a share of the on-demand price; the same beside an even pace |
//! | `ross[=SEED]` | spot, and one drawn interval on demand |
//! | `horizon[=WINDOW]`, `c2g[=WINDOW]`, `chain[=WINDOW]` | plans over a window, by what follows it |
//! | `expectation[=MEMORY]` | plans against a chain of the last `MEMORY` slots |
//!
//! | foresight | is |
//! | --- | --- |
//! | `perfect`, `noisy[=ERROR]` | the future, and the future with noise: for judging only |
//! | `persistence`, `real` | what is, stays; AR(1) on the last five days |
//! | `ensemble`, `proven` | the forecasters of [`crate::forecast`]; slow, as they are asked anew at every slot |

use std::str::FromStr;

use thiserror::Error;

use super::pool::Source;
use crate::forecast::record::Kind;
use crate::policy::Policy;
use crate::policy::expectation::Expectation;
use crate::policy::foresight::outlook::Guess;
use crate::policy::horizon::Horizon;

/// Longest window of a plan, slots.
const MOST_WINDOW: u32 = 96;

/// What is wrong with a word.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WordError {
    /// None of them.
    #[error("{word:?} is no policy: {known} are", known = POLICIES.join(", "))]
    Policy {
        /// What was written.
        word: String,
    },
    /// None of them.
    #[error("{word:?} is no foresight: {known} are", known = FORESIGHTS.join(", "))]
    Foresight {
        /// What was written.
        word: String,
    },
    /// What follows `=` cannot be.
    #[error("{word:?}: {value:?} is no {wanted}")]
    Value {
        /// What was written.
        word: String,
        /// What follows `=`.
        value: String,
        /// What it has to be.
        wanted: &'static str,
    },
}

/// The words of policies.
pub const POLICIES: [&str; 10] = [
    "on-demand",
    "maximal",
    "uniform",
    "mixed",
    "buy-ahead",
    "ross",
    "horizon",
    "c2g",
    "chain",
    "expectation",
];

/// The words of foresights.
pub const FORESIGHTS: [&str; 6] = [
    "perfect",
    "noisy",
    "persistence",
    "real",
    "ensemble",
    "proven",
];

/// A word and what follows its `=`.
struct Word<'a> {
    whole: &'a str,
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Word<'a> {
    fn of(whole: &'a str) -> Self {
        match whole.split_once('=') {
            Some((name, value)) => Self {
                whole,
                name,
                value: Some(value),
            },
            None => Self {
                whole,
                name: whole,
                value: None,
            },
        }
    }

    /// What follows `=`, or `usual`.
    fn value<T: FromStr>(
        &self,
        usual: T,
        wanted: &'static str,
        fits: impl Fn(&T) -> bool,
    ) -> Result<T, WordError> {
        let Some(text) = self.value else {
            return Ok(usual);
        };
        let value = text.parse().ok().filter(|value| fits(value));
        value.ok_or_else(|| WordError::Value {
            word: self.whole.to_owned(),
            value: text.to_owned(),
            wanted,
        })
    }

    fn share(&self, usual: f64) -> Result<f64, WordError> {
        self.value(usual, "share from 0 to 1", |share| {
            (0.0..=1.0).contains(share)
        })
    }

    fn window(&self, usual: u32) -> Result<u32, WordError> {
        self.value(usual, "window of 1 to 96 slots", |window| {
            (1..=MOST_WINDOW).contains(window)
        })
    }

    /// Refuses what a word without a setting is given.
    fn alone<T>(&self, it: T) -> Result<T, WordError> {
        match self.value {
            None => Ok(it),
            Some(value) => Err(WordError::Value {
                word: self.whole.to_owned(),
                value: value.to_owned(),
                wanted: "setting of it, it has none",
            }),
        }
    }
}

/// The policy of a word.
///
/// # Errors
/// When there is none, or its setting cannot be.
pub fn policy(word: &str) -> Result<Policy, WordError> {
    let word = Word::of(word);
    Ok(match word.name {
        "on-demand" => word.alone(Policy::OnDemand)?,
        "maximal" => Policy::Maximal {
            limit: word.share(1.0)?,
        },
        "uniform" => word.alone(Policy::Uniform { mixed: false })?,
        "mixed" => word.alone(Policy::Uniform { mixed: true })?,
        "buy-ahead" => Policy::BuyAhead {
            sigma: word.share(0.7)?,
        },
        "ross" => Policy::Ross {
            seed: word.value(1, "seed", |_| true)?,
        },
        "horizon" => Policy::Horizon(Horizon::track(word.window(6)?)),
        "c2g" => Policy::Horizon(Horizon::cost_to_go(word.window(12)?)),
        "chain" => Policy::Horizon(Horizon::chain(word.window(4)?)),
        "expectation" => {
            let usual = Expectation::default();
            let memory = word.value(usual.memory, "number of slots", |slots| *slots > 0)?;
            Policy::Expectation(Expectation { memory, ..usual })
        }
        _ => {
            return Err(WordError::Policy {
                word: word.whole.to_owned(),
            });
        }
    })
}

/// The foresight of a word; `day` is a day in slots, 0 where there is no day to look for.
///
/// # Errors
/// When there is none, or its setting cannot be.
pub fn foresight(word: &str, day: u32) -> Result<Source, WordError> {
    let word = Word::of(word);
    let forecast = |forecaster| Source::Forecast {
        forecaster,
        day,
        guess: Guess::Mean,
    };
    Ok(match word.name {
        "perfect" => word.alone(Source::Perfect)?,
        "noisy" => Source::Noisy {
            error: word.share(0.5)?,
            seed: 1,
        },
        "persistence" => word.alone(Source::Persistence)?,
        "real" => word.alone(Source::Autoregression {
            memory: 5 * day.max(12),
        })?,
        "ensemble" => word.alone(forecast(Kind::Ensemble))?,
        "proven" => word.alone(forecast(Kind::Proven))?,
        _ => {
            return Err(WordError::Foresight {
                word: word.whole.to_owned(),
            });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_a_policy_or_a_foresight() {
        for word in POLICIES {
            assert!(policy(word).is_ok(), "{word}");
        }
        for word in FORESIGHTS {
            assert!(foresight(word, 48).is_ok(), "{word}");
        }
    }

    #[test]
    fn settings_are_read_and_refused() {
        assert_eq!(policy("horizon=8"), Ok(Policy::Horizon(Horizon::track(8))));
        assert_eq!(policy("maximal=0.5"), Ok(Policy::Maximal { limit: 0.5 }));
        assert_eq!(
            foresight("real", 48),
            Ok(Source::Autoregression { memory: 240 })
        );
        let told = |word| policy(word).expect_err("it cannot be").to_string();
        assert!(told("maximal=2").contains("share from 0 to 1"));
        assert!(told("horizon=0").contains("1 to 96"));
        assert!(told("uniform=3").contains("it has none"));
        assert!(told("greedy").contains("on-demand, maximal"));
        assert!(foresight("oracle", 48).is_err());
    }
}
