//! Measuring.

use clap::{Args, Subcommand};

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Trains 1, 2, 4, ... jobs together and reports speed, memory and where the time goes
    Train(BenchTrainArgs),
}

const TRAIN: &str = "\
Examples:
  spotmux bench train
  spotmux bench train --jobs 1,8 --rounds 4 --json
  spotmux bench train --model smollm2-135m-instruct --mask-half --threads 2

Each job: LoRA on all seven linear layers, batches of four sequences of 93, 81, 60, 77 and of 64, 43, 277, 66 random \
tokens in turn. One round is one optimizer step of every job; one job is trained first, not counted.

Speed and memory are of the measured rounds; peak PSS is the largest of samples taken every 0.2 s. One more job starts \
beside so many that rest. Shares are of wall time; other is what lies outside the operators. Bare products are those \
with frozen weights at the mean size of a pass, by our kernels and by the gemm crate in turns, the best of three each: \
no step can be faster than the faster of the two.";

/// Arguments of `spotmux bench train`.
#[derive(Debug, Args)]
#[command(after_help = TRAIN)]
pub(crate) struct BenchTrainArgs {
    /// A folder, a .gguf file or the name of a fetched model
    #[arg(
        long,
        short,
        value_name = "MODEL",
        default_value = "smollm2-135m-instruct"
    )]
    pub(crate) model: String,
    /// Numbers of jobs to measure
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32"
    )]
    pub(crate) jobs: Vec<usize>,
    /// Rounds to measure for each number of jobs; even, so that both batches count
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) rounds: u64,
    /// LoRA rank
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) rank: usize,
    /// The first half of each sequence does not count in the loss
    #[arg(long)]
    pub(crate) mask_half: bool,
    /// How weights are held: as-shipped, f32 or bf16
    #[arg(long, value_name = "FORMAT", default_value = "f32", value_parser = ["as-shipped", "f32", "bf16"])]
    pub(crate) backbone: String,
    /// Most tokens of a pass
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) tokens_per_pass: usize,
    /// Compute threads [default: one per available core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Leaves out the comparison with bare products
    #[arg(long)]
    pub(crate) no_products: bool,
}
