//! Section `plan`: how the backbone is cut and copied.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::recompute::Recompute;
use crate::units::Bytes;

/// Stages of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// So many.
    Count(u64),
    /// One for every node.
    All,
}

impl Serialize for Stages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::All => serializer.serialize_str("all"),
        }
    }
}

impl<'de> Deserialize<'de> for Stages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "stages is a number or \"all\"")]
        enum Written {
            Count(u64),
            Word(All),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum All {
            All,
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Count(count) => Self::Count(count),
            Written::Word(All::All) => Self::All,
        })
    }
}

/// When a job that fits in memory joins those that train on a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Saturation {
    /// Unless tokens a second fall.
    #[default]
    NoLoss,
    /// When tokens a second grow by half a percent, as in the MuxTune paper.
    Growth,
    /// Always.
    Off,
}

/// How the backbone is cut and copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanSection {
    /// Stages of a replica: a number, or `"all"`.
    pub stages: Stages,
    /// Copies of the backbone.
    pub replicas: u64,
    /// Most tokens that one fused pass carries.
    pub tokens_per_pass: u64,
    /// Most tokens of a chunk: longer samples are cut. 0: as `tokens_per_pass`.
    pub chunk_tokens: u64,
    /// Rounds a first stage may begin before the one under way has ended.
    pub rounds_ahead: u64,
    /// Most memory that a stage fills with activations at once.
    pub activation_budget_mib: u64,
    /// Layers of every stage, from its first, whose activations are made again and not kept.
    pub recompute: Recompute,
    /// Whether activations and gradients travel rounded to bf16.
    pub bf16_on_the_wire: bool,
    /// Files of `spotmux profile`, commas between; `none`: conservative figures.
    pub profile: String,
    /// When a job that fits in memory joins, where all devices were measured.
    pub saturation: Saturation,
    /// Most milliseconds that company may add to a job's step; 0: no bound.
    pub max_added_latency_ms: u64,
    /// A job that has waited for so long is passed by none, and waits for memory alone.
    pub patience_minutes: u64,
    /// Task level: whether jobs share passes.
    pub fuse: bool,
    /// Operator level: whether passes go in the order of the pipeline's template.
    pub order: bool,
    /// Data level: whether samples are cut where parts of the plan are full.
    pub align: bool,
    /// Weights of tenants, `a=3, b=1`; who is not named weighs 1; `equal`: all weigh 1.
    pub tenants: String,
}

impl PlanSection {
    /// Most tokens of a chunk of a sample: longer ones are cut.
    #[must_use]
    pub fn chunk_tokens(&self) -> u64 {
        match self.chunk_tokens {
            0 => self.tokens_per_pass,
            tokens => tokens,
        }
    }

    /// Most bytes that a stage fills with activations at once.
    #[must_use]
    pub fn activation_budget(&self) -> Bytes {
        mib(self.activation_budget_mib)
    }

    /// Paths of the profiles.
    #[must_use]
    pub fn profiles(&self) -> Vec<&str> {
        let words = self.profile.split(',').map(str::trim);
        words
            .filter(|word| !matches!(*word, "" | NO_PROFILE))
            .collect()
    }

    /// Weights of the tenants that are named.
    ///
    /// # Errors
    /// What is no `NAME=WEIGHT` with a weight from 1.
    pub fn weights(&self) -> Result<BTreeMap<String, u64>, String> {
        let words = self.tenants.split(',').map(str::trim);
        let words = words.filter(|word| !matches!(*word, "" | ALL_EQUAL));
        let one = |word: &str| {
            let (name, weight) = word.split_once('=')?;
            let weight = weight.trim().parse().ok();
            let weight = weight.filter(|weight| (1..=LARGEST_WEIGHT).contains(weight))?;
            let name = name.trim();
            (!name.is_empty()).then(|| (name.to_owned(), weight))
        };
        words
            .map(|word| {
                one(word).ok_or_else(|| {
                    format!("{word:?} is no NAME=WEIGHT with a weight from 1 to {LARGEST_WEIGHT}")
                })
            })
            .collect()
    }
}

/// Where no profile is named.
const NO_PROFILE: &str = "none";
/// Where no tenant is named.
const ALL_EQUAL: &str = "equal";
/// Largest weight of a tenant.
const LARGEST_WEIGHT: u64 = 1_000_000;

impl Default for PlanSection {
    fn default() -> Self {
        Self {
            stages: Stages::Count(1),
            replicas: 1,
            tokens_per_pass: 512,
            chunk_tokens: 0,
            rounds_ahead: 1,
            activation_budget_mib: 256,
            recompute: Recompute::None,
            bf16_on_the_wire: false,
            profile: NO_PROFILE.into(),
            saturation: Saturation::NoLoss,
            max_added_latency_ms: 0,
            patience_minutes: 60,
            fuse: true,
            order: true,
            align: true,
            tenants: ALL_EQUAL.into(),
        }
    }
}

/// So many MiB in bytes.
pub(super) fn mib(count: u64) -> Bytes {
    Bytes(count.saturating_mul(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(profile: &str, tenants: &str) -> PlanSection {
        PlanSection {
            profile: profile.into(),
            tenants: tenants.into(),
            ..PlanSection::default()
        }
    }

    #[test]
    fn lists_are_read() {
        assert!(PlanSection::default().profiles().is_empty());
        assert_eq!(PlanSection::default().weights(), Ok(BTreeMap::new()));
        let section = section("a.json, b.json", "x=3, y = 1");
        assert_eq!(section.profiles(), ["a.json", "b.json"]);
        let weights = section.weights().expect("weights");
        assert_eq!((weights["x"], weights["y"]), (3, 1));
    }

    #[test]
    fn a_wrong_weight_is_named() {
        for wrong in ["x", "x=0", "=2", "x=many", "a=1,b"] {
            assert!(section("none", wrong).weights().is_err(), "{wrong}");
        }
    }
}
