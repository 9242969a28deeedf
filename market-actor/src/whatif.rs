//! What would be done if something happened: sentences about a market, and the market in which they are true.
//!
//! | sentence | from now on |
//! | --- | --- |
//! | `zone Z vanishes` | no spot in zone Z (`every zone` in all) |
//! | `zone Z has N machines` | at most N spot machines there |
//! | `price doubles`, `price times F` | spot costs so much more |
//! | `on-demand runs out` | no on-demand machine |
//!
//! Each may end in `now`, and in `for N slots`; without the latter it lasts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use shared::units::MicroUsd;
use thiserror::Error;

use crate::admission::{self, Inadmissible};
use crate::market::Market;

/// A price grows no further.
const MOST_FACTOR: f64 = 1e6;

/// What happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// No more than so many spot machines, in a zone or in all.
    Capacity {
        /// Which zone; nothing for all.
        zone: Option<String>,
        /// At most.
        most: u32,
    },
    /// Spot costs so many times as much.
    Price {
        /// Factor.
        factor: f64,
    },
    /// No on-demand machine can be had.
    NoOnDemand,
}

/// What happens, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// What.
    pub change: Change,
    /// For so many slots; nothing for good.
    pub slots: Option<u32>,
}

/// Why a sentence is none.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ScenarioError {
    /// Not understood.
    #[error(
        "{text:?} is not understood: write \"zone Z vanishes\", \"every zone vanishes\", \"zone Z has N machines\", \"price \
         doubles\", \"price times F\" or \"on-demand runs out\", each with \"now\" and \"for N slots\" if wanted"
    )]
    Unknown {
        /// The sentence.
        text: String,
    },
    /// Not a number that can be.
    #[error("{word:?} in {text:?} is no number from 0 to {most}")]
    Number {
        /// The sentence.
        text: String,
        /// The word.
        word: String,
        /// Most that it may be.
        most: &'static str,
    },
    /// No such zone.
    #[error(transparent)]
    Zone(#[from] Inadmissible),
}

impl Scenario {
    /// Reads a sentence.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(text: &str) -> Result<Self, ScenarioError> {
        let lower = text.trim().trim_end_matches('.').to_lowercase();
        let mut words: Vec<&str> = lower.split_whitespace().collect();
        let number = |word: &str| -> Result<u32, ScenarioError> {
            let parsed = word.parse::<u32>().ok();
            parsed.ok_or_else(|| ScenarioError::Number {
                text: text.to_owned(),
                word: word.to_owned(),
                most: "4294967295",
            })
        };
        // Names are told as they were typed.
        let as_typed = |word: &str| {
            let mut typed = text.split_whitespace();
            let typed = typed.find(|typed| typed.to_lowercase() == word);
            typed.unwrap_or(word).to_owned()
        };
        let mut slots = None;
        if let [rest @ .., "for", count, "slot" | "slots"] = &words[..] {
            slots = Some(number(count)?);
            words = rest.to_vec();
        }
        if let [rest @ .., "now"] = &words[..] {
            words = rest.to_vec();
        }
        let change = match &words[..] {
            ["zone", zone, "vanishes"] => Change::Capacity {
                zone: Some(as_typed(zone)),
                most: 0,
            },
            ["every", "zone", "vanishes"] => Change::Capacity {
                zone: None,
                most: 0,
            },
            ["zone", zone, "has", count, "machine" | "machines"] => Change::Capacity {
                zone: Some(as_typed(zone)),
                most: number(count)?,
            },
            ["price", "doubles"] => Change::Price { factor: 2.0 },
            ["price", "times", factor] => {
                let parsed = factor.parse::<f64>().ok();
                let factor = parsed.filter(|f| (0.0..=MOST_FACTOR).contains(f));
                let factor = factor.ok_or_else(|| ScenarioError::Number {
                    text: text.to_owned(),
                    word: words[2].to_owned(),
                    most: "1000000",
                })?;
                Change::Price { factor }
            }
            ["on-demand", "runs", "out"] => Change::NoOnDemand,
            _ => {
                return Err(ScenarioError::Unknown {
                    text: text.to_owned(),
                });
            }
        };
        Ok(Self { change, slots })
    }

    /// Which of the markets it is about; nothing where it is about all.
    ///
    /// # Errors
    /// When it names a zone that none of them is.
    fn only(&self, markets: &[Market]) -> Result<Option<usize>, ScenarioError> {
        let Change::Capacity {
            zone: Some(zone), ..
        } = &self.change
        else {
            return Ok(None);
        };
        let name = |market: &Market| {
            let pool = &market.pool;
            match pool.zone.is_empty() {
                true => pool.machine.clone(),
                false => pool.zone.clone(),
            }
        };
        let known: Vec<String> = markets.iter().map(name).collect();
        let lower: Vec<String> = known.iter().map(|name| name.to_lowercase()).collect();
        let found = admission::zone(&zone.to_lowercase(), &lower);
        // What is not known is told as it was typed.
        Ok(Some(found.or_else(|_| admission::zone(zone, &known))?))
    }

    /// The markets that vanish by it: a job is not sent to one of them, whatever machines on demand it may still have.
    ///
    /// # Errors
    /// When it names a zone that none of them is.
    pub fn vanished(&self, markets: &[Market]) -> Result<BTreeSet<usize>, ScenarioError> {
        if !matches!(self.change, Change::Capacity { most: 0, .. }) {
            return Ok(BTreeSet::new());
        }
        let only = self.only(markets)?;
        Ok(only.map_or_else(|| (0..markets.len()).collect(), |one| BTreeSet::from([one])))
    }

    /// Makes it true in markets from their slot `at` on.
    ///
    /// # Errors
    /// When it names a zone that none of them is.
    pub fn apply(&self, markets: &mut [Market], at: usize) -> Result<(), ScenarioError> {
        let only = self.only(markets)?;
        for (number, market) in markets.iter_mut().enumerate() {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            let length = market.slots.len();
            let end = self.slots.map_or(length, |slots| {
                at.saturating_add(slots as usize).min(length)
            });
            for slot in &mut market.slots[at.min(end)..end] {
                match &self.change {
                    Change::Capacity { most, .. } => {
                        slot.spot_available = slot.spot_available.min(*most);
                    }
                    Change::Price { factor } => {
                        let price = slot.spot_price.0 as f64 * factor;
                        slot.spot_price = MicroUsd(price.round() as u64);
                    }
                    Change::NoOnDemand => slot.on_demand_available = Some(0),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::episode::tests::market;

    fn zone(name: &str) -> Market {
        let mut market = market(&[(0.3, 6); 5], 1.0);
        market.pool.zone = name.into();
        market
    }

    #[test]
    fn sentences_are_read() {
        let of = |text| Scenario::of(text).expect("it is one");
        assert_eq!(
            of("zone us-east-1a vanishes now"),
            Scenario {
                change: Change::Capacity {
                    zone: Some("us-east-1a".into()),
                    most: 0
                },
                slots: None
            }
        );
        assert_eq!(of("Price doubles now for 3 slots").slots, Some(3));
        assert_eq!(of("price times 1.5").change, Change::Price { factor: 1.5 });
        assert_eq!(of("on-demand runs out.").change, Change::NoOnDemand);
        assert_eq!(
            of("zone 1a has 2 machines for 1 slot").change,
            Change::Capacity {
                zone: Some("1a".into()),
                most: 2
            }
        );
        assert!(matches!(
            Scenario::of("the sky falls"),
            Err(ScenarioError::Unknown { .. })
        ));
        assert!(matches!(
            Scenario::of("price times -1"),
            Err(ScenarioError::Number { .. })
        ));
    }

    #[test]
    fn only_what_is_said_changes() {
        let before = [zone("us-east-1a"), zone("us-west-2b")];
        let mut after = before.clone();
        let gone = Scenario::of("zone 1a vanishes for 2 slots").expect("it is one");
        gone.apply(&mut after, 1).expect("it is there");
        let left: Vec<u32> = after[0].slots.iter().map(|s| s.spot_available).collect();
        assert_eq!(left, [6, 0, 0, 6, 6]);
        assert_eq!(
            gone.vanished(&before).expect("it is there"),
            BTreeSet::from([0])
        );
        assert_eq!(after[1], before[1]);
        let unknown = Scenario::of("Zone 9Z vanishes").expect("it is one");
        let told = unknown.apply(&mut after, 1).expect_err("there is none");
        assert_eq!(
            told.to_string(),
            "zone \"9Z\" is not known; known are: us-east-1a, us-west-2b"
        );
        let typed = Scenario::of("zone US-EAST-1A vanishes").expect("it is one");
        assert_eq!(
            typed.vanished(&before).expect("it is there"),
            BTreeSet::from([0])
        );
        let dear = Scenario::of("price times 3").expect("it is one");
        dear.apply(&mut after, 4).expect("it names no zone");
        assert_eq!(
            after[1].slots[4].spot_price.0,
            3 * before[1].slots[4].spot_price.0
        );
        assert_eq!(after[1].slots[3], before[1].slots[3]);
    }
}
