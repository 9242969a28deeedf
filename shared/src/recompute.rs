//! Layers whose activations are not kept between their forward and their backward pass, but made again.
//!
//! Backward needs what forward computed. A layer that recomputes keeps only its input, `hidden` values a row, and runs
//! forward once more right before its backward pass (Chen and others 2016, "Training deep nets with sublinear memory
//! cost"). It costs one more forward pass of the layer and changes no result.

use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How many layers recompute: `"none"`, `"all"`, or a number of layers from the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Every layer keeps what it computed.
    #[default]
    None,
    /// So many, from the first: what the first ones keep waits longest.
    Layers(NonZero<u32>),
    /// Every layer.
    All,
}

impl Recompute {
    /// The words beside a number.
    pub const WORDS: &'static [&'static str] = &["none", "all"];
    /// Most layers that may be asked for.
    pub const MOST: u64 = 4096;

    /// Of so many layers held together, those that recompute, from the first.
    #[must_use]
    pub fn of(self, layers: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Layers(count) => layers.min(count.get() as usize),
            Self::All => layers,
        }
    }

    /// What is wrong with it for a model of so many layers.
    #[must_use]
    pub fn problem(self, layers: u64) -> Option<String> {
        match self {
            Self::Layers(count) if u64::from(count.get()) > layers => Some(format!(
                "{count} layers recompute, and the model has {layers}: use at most {layers}, or \"all\""
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Layers(count) => write!(f, "{count}"),
            Self::All => f.write_str("all"),
        }
    }
}

impl FromStr for Recompute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "all" => Ok(Self::All),
            count => match count.parse() {
                Ok(count) => Ok(Self::Layers(count)),
                Err(_) => Err(format!(
                    "{text:?} is not \"none\", \"all\" or a number of layers"
                )),
            },
        }
    }
}

impl Serialize for Recompute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Layers(count) => serializer.serialize_u32(count.get()),
            word => serializer.collect_str(word),
        }
    }
}

impl<'de> Deserialize<'de> for Recompute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "recompute is \"none\", \"all\" or a number of layers from 1"
        )]
        enum Written {
            Count(NonZero<u32>),
            Word(Word),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            None,
            All,
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Count(count) => Self::Layers(count),
            Written::Word(Word::None) => Self::None,
            Written::Word(Word::All) => Self::All,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn layers(count: u32) -> Recompute {
        Recompute::Layers(NonZero::new(count).unwrap())
    }

    #[test]
    fn words_and_numbers_are_read_and_written() {
        for (text, value) in [
            ("none", Recompute::None),
            ("all", Recompute::All),
            ("7", layers(7)),
        ] {
            assert_eq!(text.parse(), Ok(value));
            assert_eq!(value.to_string(), text);
        }
        for (json, value) in [
            ("\"none\"", Recompute::None),
            ("\"all\"", Recompute::All),
            ("7", layers(7)),
        ] {
            assert_eq!(serde_json::from_str::<Recompute>(json).unwrap(), value);
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in ["", "some", "0", "-1", "1.5", "4294967296", "All"] {
            let error = text.parse::<Recompute>().unwrap_err();
            assert!(error.contains("\"none\", \"all\" or a number"), "{error}");
            let quoted = format!("{text:?}");
            for json in [text, &quoted] {
                assert!(serde_json::from_str::<Recompute>(json).is_err(), "{json}");
            }
        }
    }

    #[test]
    fn layers_are_counted_from_the_first_and_bounded() {
        let held = |recompute: Recompute| [0, 3, 30].map(|layers| recompute.of(layers));
        assert_eq!(held(Recompute::None), [0, 0, 0]);
        assert_eq!(held(layers(4)), [0, 3, 4]);
        assert_eq!(held(Recompute::All), [0, 3, 30]);
        assert_eq!(layers(30).problem(30), None);
        assert!(layers(31).problem(30).unwrap().contains("at most 30"));
        assert_eq!(Recompute::All.problem(1), None);
    }
}
