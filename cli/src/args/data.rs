//! Looking at data sets.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::parse;

/// Of all commands on data sets.
pub(super) const EXAMPLES: &str = "\
Example:
  spotmux data check support.jsonl --model smollm2-135m-instruct";

/// What to do with a data set.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Reads a data set as training would: all errors at once, token counts, what is learned
    Check(CheckArgs),
}

const CHECK: &str = "\
Examples:
  spotmux data check support.jsonl
  spotmux data check support.jsonl --model smollm2-135m-instruct --max-length 1024
  spotmux data check support.jsonl --model smollm2-135m-instruct --show-mask 3
  spotmux data check support.jsonl --template chat_template.jinja --json

Formats, one a file, told by the first line: chat {\"messages\": [...]}, {\"prompt\", \"completion\"}, {\"text\"}, \
Alpaca {\"instruction\", \"input\", \"output\"}, ShareGPT {\"conversations\": [...]}.
Without --model tokens are bytes and turns are set as <|im_start|>role ... <|im_end|>.";

/// Arguments of `spotmux data check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK)]
pub(crate) struct CheckArgs {
    /// File of samples, one JSON object a line
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
    /// Counts and labels tokens as this model does: a folder, a .gguf file or the name of a fetched one
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Chat template to use instead of the model's
    #[arg(long, value_name = "FILE.jinja")]
    pub(crate) template: Option<PathBuf>,
    /// Shows the first N samples with what is learned in brackets
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "3", value_parser = parse::shown)]
    pub(crate) show_mask: Option<usize>,
    /// Longest sample in tokens [default: the model's context]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_length: Option<usize>,
    /// What happens to a longer sample
    #[arg(long, value_enum, default_value_t = LongRows::Drop)]
    pub(crate) overlong: LongRows,
    /// Counts prompts and user turns in the loss too
    #[arg(long)]
    pub(crate) train_on_inputs: bool,
    /// Largest share of rows that may be dropped
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub(crate) max_dropped: f64,
}

/// What happens to a sample that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LongRows {
    /// Left out, counted
    Drop,
    /// Cut at the end, counted
    Truncate,
    /// An error that names the line
    Error,
}
