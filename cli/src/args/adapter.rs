//! Describing, merging and taking in adapters, and making them of checkpoints.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Of all commands on adapters.
pub(super) const EXAMPLES: &str = "\
Examples:
  spotmux adapter inspect adapters/support
  spotmux adapter merge adapters/support --model smollm2-135m-instruct --output support-merged
  spotmux adapter import from-peft --model smollm2-135m-instruct --output adapters/taken-in";

/// What to do with an adapter.
#[derive(Debug, Subcommand)]
pub(crate) enum AdapterCommand {
    /// Describes an adapter: method, sizes, tensors
    Inspect(InspectAdapterArgs),
    /// Adds an adapter to a model's weights and writes the sum as a model of its own
    Merge(MergeArgs),
    /// Takes in an adapter made elsewhere: checks every tensor against a model, and writes it anew
    Import(ImportArgs),
    /// Makes an adapter of a checkpoint, as of a job that was set aside
    Export(ExportArgs),
}

const INSPECT: &str = "\
Examples:
  spotmux adapter inspect adapters/support
  spotmux adapter inspect adapters/support --model smollm2-135m-instruct --json";

/// Arguments of `spotmux adapter inspect`.
#[derive(Debug, Args)]
#[command(after_help = INSPECT)]
pub(crate) struct InspectAdapterArgs {
    /// OUTPUT/NAME of a job, or any folder in the PEFT layout
    #[arg(value_name = "DIR")]
    pub(crate) adapter: PathBuf,
    /// Checks that it fits this model
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
}

const MERGE: &str = "\
Examples:
  spotmux adapter merge adapters/support --model smollm2-135m-instruct --output support-merged
  spotmux adapter merge adapters/support --model smollm2-135m-instruct --output m --format bf16

LoRA (with rsLoRA, LoRA+ and DoRA), IA3, BitFit and diff pruning can be merged; prompts, prefixes and bottleneck \
layers are no weights of the model. The loss of precision is measured and reported: a short training moves weights by \
little, and rounding to bf16 can take most of it.";

/// Arguments of `spotmux adapter merge`.
#[derive(Debug, Args)]
#[command(after_help = MERGE)]
pub(crate) struct MergeArgs {
    /// OUTPUT/NAME of a job, or any folder in the PEFT layout
    #[arg(value_name = "DIR")]
    pub(crate) adapter: PathBuf,
    /// The model it was trained on: a folder, a .gguf file or the name of a fetched one
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: String,
    /// Folder to write; it must not be there yet
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Merges even when the adapter names another base model than this one
    #[arg(long)]
    pub(crate) other_base: bool,
    /// Number format of the merged weights
    #[arg(long, value_enum, default_value_t = MergedFormat::Auto)]
    pub(crate) format: MergedFormat,
}

/// Number format of merged weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergedFormat {
    /// f16 where it holds every value and keeps what was learned, else f32
    Auto,
    /// 8 bits of mantissa, range of f32
    Bf16,
    /// 11 bits of mantissa, largest 65504
    F16,
    /// 24 bits of mantissa: nothing is lost, in twice the bytes
    F32,
}

const IMPORT: &str = "\
Examples:
  spotmux adapter import from-peft --model smollm2-135m-instruct --output adapters/taken-in
  spotmux adapter import from-peft --model smollm2-135m-instruct --check";

/// Arguments of `spotmux adapter import`.
#[derive(Debug, Args)]
#[command(after_help = IMPORT)]
pub(crate) struct ImportArgs {
    /// Folder with adapter_config.json and adapter_model.safetensors (or adapter.safetensors)
    #[arg(value_name = "DIR")]
    pub(crate) adapter: PathBuf,
    /// The model it belongs to
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: String,
    /// Folder to write; it must not be there yet
    #[arg(long, short, value_name = "DIR", required_unless_present = "check")]
    pub(crate) output: Option<PathBuf>,
    /// Takes it in even when the adapter was made for another base model than this one
    #[arg(long)]
    pub(crate) other_base: bool,
    /// Checks only, writes nothing
    #[arg(long)]
    pub(crate) check: bool,
}

const EXPORT: &str = "\
Examples:
  spotmux adapter export adapters/support --model smollm2-135m-instruct --output rescued
  spotmux adapter export adapters/support/checkpoints/step-00000050 --model m --output at-50

The folder is an adapter like any other: generate, merge and PEFT take it, and a job starts from it by init_from. \
Moments of the optimizer are left behind.";

/// Arguments of `spotmux adapter export`.
#[derive(Debug, Args)]
#[command(after_help = EXPORT)]
pub(crate) struct ExportArgs {
    /// OUTPUT/NAME of a job (its newest good checkpoint), or the folder of one checkpoint, as it is
    #[arg(value_name = "DIR")]
    pub(crate) checkpoint: PathBuf,
    /// The model that the job was trained on
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: String,
    /// Folder to write; it must not be there yet
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Makes it even when the job was trained on another backbone than this one
    #[arg(long)]
    pub(crate) other_base: bool,
}
