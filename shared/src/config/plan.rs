//! Section `plan`: how the backbone is cut and copied.

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
}

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
        }
    }
}

/// So many MiB in bytes.
pub(super) fn mib(count: u64) -> Bytes {
    Bytes(count.saturating_mul(1 << 20))
}
