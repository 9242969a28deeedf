//! The sizes of a backbone, and the sites in it where an adapter may attach.

pub mod config;
mod rope;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::suggest;

/// Model families the engine computes; anything else is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Llama 2, 3, 3.1, SmolLM2, TinyLlama.
    Llama,
    /// Mistral: Llama with an optional sliding window.
    Mistral,
    /// Qwen2 and 2.5: biases on q, k and v.
    Qwen2,
    /// Qwen3: per-head norms on q and k.
    Qwen3,
}

impl Family {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Llama, Self::Mistral, Self::Qwen2, Self::Qwen3];

    /// The `model_type` of `config.json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// How positions become rotation frequencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Base of the geometric series of wavelengths.
    pub theta: f64,
    /// Change of the frequencies for longer contexts.
    pub scaling: RopeScaling,
}

/// Changes of the rotation frequencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "rope_type")]
pub enum RopeScaling {
    /// None.
    Default,
    /// Every frequency divided by `factor`.
    Linear {
        /// Divisor, at least 1.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between.
    Llama3 {
        /// Divisor of the long wavelengths.
        factor: f64,
        /// Wavelengths above `original / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length the model was pre-trained with.
        original_max_position_embeddings: usize,
    },
}

/// Sizes and switches of a backbone, read from `config.json` or from GGUF metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Family, which fixes the formulas.
    pub family: Family,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward layer.
    pub intermediate: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Longest context in tokens.
    pub max_positions: usize,
    /// Epsilon inside every RMS norm.
    pub norm_eps: f64,
    /// Rotary positions.
    pub rope: Rope,
    /// Whether the LM head is the embedding.
    pub tied_embeddings: bool,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// Bias on o.
    pub o_bias: bool,
    /// Biases on gate, up and down.
    pub mlp_bias: bool,
    /// Per-head RMS norm on q and k before rotation.
    pub qk_norm: bool,
    /// Attention reaches back at most this many tokens, the token itself included.
    pub sliding_window: Option<usize>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
    /// Token that starts a text, if the model has one.
    pub bos: Option<u32>,
}

impl ModelShape {
    /// Output and input width of a projection, `(out, in)`.
    #[must_use]
    pub fn projection(&self, projection: Projection) -> (usize, usize) {
        let (q, kv) = (self.q_width(), self.kv_width());
        match projection {
            Projection::Q => (q, self.hidden),
            Projection::K | Projection::V => (kv, self.hidden),
            Projection::O => (self.hidden, q),
            Projection::Gate | Projection::Up => (self.intermediate, self.hidden),
            Projection::Down => (self.hidden, self.intermediate),
        }
    }

    /// Width of all query heads together.
    #[must_use]
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key (or value) heads together.
    #[must_use]
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Whether the backbone itself has a bias on a projection.
    #[must_use]
    pub fn has_bias(&self, projection: Projection) -> bool {
        match projection {
            Projection::Q | Projection::K | Projection::V => self.qkv_bias,
            Projection::O => self.o_bias,
            Projection::Gate | Projection::Up | Projection::Down => self.mlp_bias,
        }
    }

    /// Number of values in the backbone, the tied head counted once.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let block: usize = Projection::ALL
            .iter()
            .map(|&p| {
                let (out, input) = self.projection(p);
                out * input + if self.has_bias(p) { out } else { 0 }
            })
            .sum::<usize>()
            + 2 * self.hidden
            + if self.qk_norm { 2 * self.head_dim } else { 0 };
        let table = self.vocab * self.hidden;
        let tables = if self.tied_embeddings {
            table
        } else {
            2 * table
        };
        (self.layers * block + tables + self.hidden) as u64
    }
}

/// The linear layers of a block, in the order in which a block computes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Projection {
    /// Queries.
    #[serde(rename = "q_proj")]
    Q,
    /// Keys.
    #[serde(rename = "k_proj")]
    K,
    /// Values.
    #[serde(rename = "v_proj")]
    V,
    /// Attention output.
    #[serde(rename = "o_proj")]
    O,
    /// Feed-forward gate.
    #[serde(rename = "gate_proj")]
    Gate,
    /// Feed-forward up.
    #[serde(rename = "up_proj")]
    Up,
    /// Feed-forward down.
    #[serde(rename = "down_proj")]
    Down,
}

impl Projection {
    /// All seven.
    pub const ALL: [Self; 7] = [
        Self::Q,
        Self::K,
        Self::V,
        Self::O,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];

    /// The leaf name in Hugging Face checkpoints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Q => "q_proj",
            Self::K => "k_proj",
            Self::V => "v_proj",
            Self::O => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// The module of a block that holds it.
    #[must_use]
    pub fn module(self) -> &'static str {
        match self {
            Self::Q | Self::K | Self::V | Self::O => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        }
    }
}

/// A linear layer that an adapter can name as a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// A projection, in every block.
    Block(Projection),
    /// The LM head.
    LmHead,
}

impl Target {
    /// Every valid target, for messages and for "all".
    pub const ALL: [Self; 8] = [
        Self::Block(Projection::Q),
        Self::Block(Projection::K),
        Self::Block(Projection::V),
        Self::Block(Projection::O),
        Self::Block(Projection::Gate),
        Self::Block(Projection::Up),
        Self::Block(Projection::Down),
        Self::LmHead,
    ];

    /// The name users write: `q_proj` ... `down_proj`, `lm_head`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Block(p) => p.name(),
            Self::LmHead => "lm_head",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl TryFrom<String> for Target {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|t| t.name() == text)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|t| t.name()).collect();
                format!(
                    "unknown target {text:?}: valid targets are {}{}",
                    names.join(", "),
                    suggest::clause(&text, names.iter().copied())
                )
            })
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.name().into()
    }
}
