//! Tiny random models in the layouts of real ones: for tests, and for demos without a network.
//!
//! Weights are a function of the seed alone, the same on every machine: uniform numbers from the keyed generator,
//! no transcendental functions. The tokenizer has one token a byte, so it takes any text.

mod folder;
mod gguf;
mod weights;

use std::io;
use std::path::{Path, PathBuf};

use kernels::weight::Format;
use shared::model::config::{self, ConfigError};
use shared::model::{Family, ModelShape, Rope, RopeScaling};
use thiserror::Error;

/// Tokens of the byte tokenizer: 256 bytes, `<|endoftext|>`, `<|im_start|>`, `<|im_end|>`.
pub const VOCAB: usize = 259;
/// `<|im_start|>`.
const BOS: u32 = 257;
/// `<|im_end|>`.
const EOS: u32 = 258;

/// Tells why a tiny model cannot be written.
#[derive(Debug, Error)]
pub enum TinyError {
    /// Something is there already.
    #[error("{} exists and is not an empty folder: choose another place", path.display())]
    Exists {
        /// The place.
        path: PathBuf,
    },
    /// Writing failed; what was begun is taken away again.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Sizes that make no model.
    #[error("these sizes make no model: {0}")]
    Sizes(#[from] ConfigError),
    /// Sizes or formats that this container or tokenizer cannot hold.
    #[error("{what} is {found}, expected {expected}")]
    Unsupported {
        /// The field.
        what: &'static str,
        /// Its value.
        found: String,
        /// What is possible.
        expected: String,
    },
    /// The library that encodes the file refused.
    #[error("cannot encode the weights: {reason}")]
    Encode {
        /// Its reason.
        reason: String,
    },
}

/// What to write. The default has 1.6 million parameters and learns visibly within seconds on two cores.
#[derive(Clone, Debug, PartialEq)]
pub struct TinySpec {
    /// Family, which fixes the formulas.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub intermediate: usize,
    /// Rows of the embedding, at least [`VOCAB`].
    pub vocab: usize,
    /// Longest context in tokens.
    pub max_positions: usize,
    /// Whether the LM head is the embedding.
    pub tied: bool,
    /// Whether the linear layers have biases, where the family leaves the choice (Llama).
    pub bias: bool,
    /// Attention window, where the family has one (not Llama).
    pub sliding_window: Option<usize>,
    /// Change of the rotation frequencies.
    pub rope_scaling: RopeScaling,
    /// Seed of the weights.
    pub seed: u64,
    /// Format of the weights in safetensors: F32, BF16 or F16.
    pub format: Format,
    /// Number of safetensors files; 1: no index.
    pub shards: usize,
}

impl Default for TinySpec {
    fn default() -> Self {
        Self {
            family: Family::Llama,
            hidden: 192,
            layers: 4,
            heads: 6,
            kv_heads: 2,
            head_dim: 32,
            intermediate: 512,
            vocab: VOCAB,
            max_positions: 2048,
            tied: true,
            bias: false,
            sliding_window: None,
            rope_scaling: RopeScaling::Default,
            seed: 42,
            format: Format::F32,
            shards: 1,
        }
    }
}

impl TinySpec {
    /// The smallest model that still has every part: for tests that open many.
    #[must_use]
    pub fn smallest(family: Family) -> Self {
        Self {
            family,
            hidden: 64,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            intermediate: 96,
            ..Self::default()
        }
    }

    /// The sizes and switches of the model.
    #[must_use]
    pub fn shape(&self) -> ModelShape {
        let llama = self.family == Family::Llama;
        ModelShape {
            family: self.family,
            vocab: self.vocab,
            hidden: self.hidden,
            intermediate: self.intermediate,
            layers: self.layers,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            max_positions: self.max_positions,
            norm_eps: 1e-5,
            rope: Rope {
                theta: 10_000.0,
                scaling: self.rope_scaling.clone(),
            },
            tied_embeddings: self.tied,
            qkv_bias: self.family == Family::Qwen2 || (llama && self.bias),
            o_bias: llama && self.bias,
            mlp_bias: llama && self.bias,
            qk_norm: self.family == Family::Qwen3,
            sliding_window: self.sliding_window.filter(|_| !llama),
            eos: vec![EOS],
            bos: Some(BOS),
        }
    }

    fn check(&self) -> Result<ModelShape, TinyError> {
        let shape = self.shape();
        let refused = |what, found: String, expected: String| {
            Err(TinyError::Unsupported {
                what,
                found,
                expected,
            })
        };
        if self.vocab < VOCAB {
            let expected = format!("at least {VOCAB}, the tokens of the byte tokenizer");
            return refused("vocab", self.vocab.to_string(), expected);
        }
        if self.shards == 0 {
            return refused("shards", "0".into(), "at least 1".into());
        }
        // The reader's own checks, so that what is written can be opened.
        config::parse(&config::write(&shape, "float32"))?;
        Ok(shape)
    }
}

/// Writes a model folder: `config.json`, safetensors, tokenizer files with a ChatML template.
///
/// The folder appears whole or not at all.
///
/// # Errors
/// [`TinyError`] when something is there already, the sizes make no model, or writing fails.
pub fn write_tiny(folder: &Path, spec: &TinySpec) -> Result<(), TinyError> {
    let shape = spec.check()?;
    folder::write(folder, spec, &shape)
}

/// Writes the same model as one GGUF file of a format; norms and biases stay F32.
///
/// With a 4-bit format the embedding (and an LM head) is Q8_0, as in real files.
///
/// # Errors
/// [`TinyError`] when the file exists, a width is not whole blocks, or writing fails.
pub fn write_tiny_gguf(file: &Path, spec: &TinySpec, format: Format) -> Result<(), TinyError> {
    let shape = spec.check()?;
    gguf::write(file, spec, &shape, format)
}
