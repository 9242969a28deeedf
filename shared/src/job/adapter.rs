//! The PEFT methods a job can choose, with their sizes and targets.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::model::{Projection, Target};
use crate::suggest;

/// What a job trains on top of the frozen backbone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "lowercase")]
pub enum AdapterSpec {
    /// Low-rank updates of linear layers (LoRA, rsLoRA, LoRA+, DoRA).
    Lora(LoraSpec),
    /// Learned scaling of keys, values and feed-forward inputs.
    Ia3(Ia3Spec),
    /// Small feed-forward layers after attention and feed-forward (Houlsby, Pfeiffer, parallel).
    Bottleneck(BottleneckSpec),
    /// Trained keys and values in front of every sequence.
    Prefix(PrefixSpec),
    /// Trained embeddings in front of every sequence.
    Prompt(PromptSpec),
    /// Trained biases.
    BitFit(BitFitSpec),
    /// A sparse, masked delta of chosen weights.
    Diff(DiffSpec),
}

impl AdapterSpec {
    /// Positions taken in front of every sequence by virtual tokens (prefix or prompt).
    #[must_use]
    pub fn virtual_tokens(&self) -> usize {
        match self {
            Self::Prefix(prefix) => prefix.tokens,
            Self::Prompt(prompt) => prompt.tokens,
            _ => 0,
        }
    }

    /// The method as the specification writes it.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Lora(_) => "lora",
            Self::Ia3(_) => "ia3",
            Self::Bottleneck(_) => "bottleneck",
            Self::Prefix(_) => "prefix",
            Self::Prompt(_) => "prompt",
            Self::BitFit(_) => "bitfit",
            Self::Diff(_) => "diff",
        }
    }
}

/// Which linear layers a method changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "WrittenTargets")]
pub enum Targets {
    /// Named ones.
    Named(Vec<Target>),
    /// A group: `"all-linear"` (the seven projections of every block) or `"attention"` or `"mlp"`.
    Group(String),
}

/// Targets as they are written; names are checked one by one, so that a wrong one is named.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "targets is a list of names, or one of all-linear, attention, mlp"
)]
enum WrittenTargets {
    Named(Vec<String>),
    Group(String),
}

impl TryFrom<WrittenTargets> for Targets {
    type Error = String;
    fn try_from(written: WrittenTargets) -> Result<Self, String> {
        match written {
            WrittenTargets::Group(group) => Ok(Self::Group(group)),
            WrittenTargets::Named(names) => targets_of("targets", names).map(Self::Named),
        }
    }
}

/// The targets of a list; a wrong one is told with its place in it.
fn targets_of(key: &str, names: Vec<String>) -> Result<Vec<Target>, String> {
    let one =
        |(index, name)| Target::try_from(name).map_err(|error| format!("{key}[{index}]: {error}"));
    names.into_iter().enumerate().map(one).collect()
}

fn read_feedforward<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<Target>, D::Error> {
    let names = Vec::<String>::deserialize(reader)?;
    targets_of("feedforward", names).map_err(D::Error::custom)
}

impl Targets {
    /// The targets meant, in canonical order without repeats.
    ///
    /// # Errors
    /// The text of an unknown group, or of an empty list, with what is valid.
    pub fn resolve(&self) -> Result<Vec<Target>, String> {
        let mut list = match self {
            Self::Named(list) => list.clone(),
            Self::Group(group) => {
                let blocks: &[Projection] = match group.as_str() {
                    "all-linear" => &Projection::ALL,
                    "attention" => &Projection::ALL[..4],
                    "mlp" => &Projection::ALL[4..],
                    _ => {
                        let one =
                            Target::try_from(group.clone()).map_err(|_| unknown_targets(group))?;
                        return Ok(vec![one]);
                    }
                };
                blocks.iter().map(|&p| Target::Block(p)).collect()
            }
        };
        list.sort_unstable();
        list.dedup();
        if list.is_empty() {
            let names: Vec<_> = Target::ALL.iter().map(|t| t.name()).collect();
            return Err(format!(
                "targets is empty: name at least one of {}",
                names.join(", ")
            ));
        }
        Ok(list)
    }
}

fn unknown_targets(word: &str) -> String {
    let groups = ["all-linear", "attention", "mlp"];
    let names: Vec<_> = Target::ALL.iter().map(|target| target.name()).collect();
    format!(
        "unknown target {word:?}: valid targets are {}, or a group: {}{}",
        names.join(", "),
        groups.join(", "),
        suggest::clause(word, groups.into_iter().chain(names))
    )
}

fn all_linear() -> Targets {
    Targets::Group("all-linear".into())
}

/// LoRA and its relatives: y = W x + s B A x.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraSpec {
    /// Inner width, at least 1.
    pub rank: usize,
    /// Numerator of the scale; absent: `2 * rank`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Share of the adapter's inputs set to zero while training.
    #[serde(default)]
    pub dropout: f64,
    /// Layers it changes.
    #[serde(default = "all_linear")]
    pub targets: Targets,
    /// Scale alpha / sqrt(rank) instead of alpha / rank (rsLoRA).
    #[serde(default)]
    pub rslora: bool,
    /// Split the weight into magnitude and direction (DoRA).
    #[serde(default)]
    pub dora: bool,
    /// Learning rate of B over that of A (LoRA+).
    #[serde(default = "one")]
    pub lr_ratio: f64,
}

fn one() -> f64 {
    1.0
}

impl LoraSpec {
    /// The numerator of the scale, resolved.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.alpha.unwrap_or(2.0 * self.rank as f64)
    }

    /// The factor s of the update: alpha / r, or alpha / sqrt(r) for rsLoRA.
    #[must_use]
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha() / if self.rslora { rank.sqrt() } else { rank }
    }
}

/// IA3: keys, values and feed-forward inputs multiplied by learned vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ia3Spec {
    /// Layers it changes; those also in `feedforward` have their input scaled, the others their output.
    #[serde(default = "ia3_targets")]
    pub targets: Targets,
    /// The subset of targets whose input is scaled.
    #[serde(default = "ia3_feedforward", deserialize_with = "read_feedforward")]
    pub feedforward: Vec<Target>,
}

fn ia3_targets() -> Targets {
    Targets::Named(vec![
        Target::Block(Projection::K),
        Target::Block(Projection::V),
        Target::Block(Projection::Down),
    ])
}

fn ia3_feedforward() -> Vec<Target> {
    vec![Target::Block(Projection::Down)]
}

/// Where bottleneck adapters sit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BottleneckPlacement {
    /// After attention and after feed-forward, each fed by that output (Houlsby et al. 2019).
    Houlsby,
    /// After feed-forward only (Pfeiffer et al. 2020).
    Pfeiffer,
    /// Beside attention and feed-forward, fed by their input (He et al. 2022).
    Parallel,
}

/// The function between the two layers of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonLinearity {
    /// max(x, 0).
    Relu,
    /// Exact GELU, x Phi(x).
    Gelu,
    /// x sigmoid(x).
    Silu,
}

/// Bottleneck adapters: y + up(f(down(input))), with biases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BottleneckSpec {
    /// Inner width, at least 1.
    pub size: usize,
    /// Where they sit.
    #[serde(default = "pfeiffer")]
    pub placement: BottleneckPlacement,
    /// The function in the middle.
    #[serde(default = "relu")]
    pub non_linearity: NonLinearity,
}

fn pfeiffer() -> BottleneckPlacement {
    BottleneckPlacement::Pfeiffer
}

fn relu() -> NonLinearity {
    NonLinearity::Relu
}

/// Prefix tuning: trained keys and values in front of every sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixSpec {
    /// Number of virtual tokens, at least 1.
    pub tokens: usize,
    /// Width of the reparameterising layer (embedding, linear, tanh, linear); absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projection: Option<usize>,
}

/// Prompt tuning: trained embeddings in front of every sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptSpec {
    /// Number of virtual tokens, at least 1.
    pub tokens: usize,
    /// Start from the embeddings of this text, repeated or cut to length; absent: random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_text: Option<String>,
}

/// BitFit: a trained bias at each target (added to the backbone's own, which may be absent).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitFitSpec {
    /// Layers whose bias is trained.
    #[serde(default = "all_linear")]
    pub targets: Targets,
}

/// Diff pruning with a fixed binary mask: a sparse delta of chosen weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffSpec {
    /// Layers whose weights may change.
    #[serde(default = "all_linear")]
    pub targets: Targets,
    /// Share of each weight's values that may change, chosen at random by the job's seed.
    #[serde(default = "half_percent")]
    pub density: f64,
}

fn half_percent() -> f64 {
    0.005
}
