//! Measuring.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum};
use shared::job::Products;

use super::parse;

/// Of all measurements.
pub(super) const EXAMPLES: &str = "\
Examples:
  spotmux bench train --jobs 1,8
  spotmux bench pipeline
  spotmux bench plan";

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Trains 1, 2, 4, ... jobs together and reports speed, memory and where the time goes
    Train(BenchTrainArgs),
    /// Trains the same jobs in one process and in clusters of one and two stages, and moves a stage
    Pipeline(BenchPipelineArgs),
    /// Trains a mix of jobs with each level of co-scheduling off in turn: predicted and measured steps
    Plan(BenchPlanArgs),
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
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) rounds: u64,
    /// LoRA rank
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count(1, 1024))]
    pub(crate) rank: usize,
    /// The first half of each sequence does not count in the loss
    #[arg(long)]
    pub(crate) mask_half: bool,
    /// How weights are held: as-shipped, f32 or bf16
    #[arg(long, value_name = "FORMAT", default_value = "f32", value_parser = ["as-shipped", "f32", "bf16"])]
    pub(crate) backbone: String,
    /// How frozen products are computed: f32 or split
    #[arg(long, value_name = "ARITHMETIC", default_value = "f32", value_parser = parse::products)]
    pub(crate) products: Products,
    /// Most tokens of a pass
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = parse::pass_tokens)]
    pub(crate) tokens_per_pass: usize,
    /// Compute threads [default: one per available core]
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// Leaves out the comparison with bare products
    #[arg(long)]
    pub(crate) no_products: bool,
}

const PIPELINE: &str = "\
Examples:
  spotmux bench pipeline
  spotmux bench pipeline --model tiny --jobs 2 --steps 6
  spotmux bench pipeline --model smollm2-135m-instruct --json

Starts clusters of real processes on loopback, in a temporary folder, and ends them. Speed counts from when every \
job has taken its first step. Waiting is told by traces, from the first device span after the first step to the \
last, beside (S - 1) / (M + S - 1) for S stages and M micro-batches a round; rounds overlap, so it may be less. The \
stall of a move is that of the job that stood still longest, less a usual step; what all lost is the time until each \
has trained under the new plan, less what the tokens of that time take at the pace of before. The link is measured \
beside a bare stream of QUIC with the same bytes, both ends in this process, the best of three; steps with \
checkpoints beside steps without, in turns, the best of two. Where there are fewer cores than threads, processes \
wait for each other: read the figures with that.";

/// Arguments of `spotmux bench pipeline`.
#[derive(Debug, Args)]
#[command(after_help = PIPELINE)]
pub(crate) struct BenchPipelineArgs {
    /// A folder, a .gguf file or the name of a fetched model; `tiny`: a small one with random weights
    #[arg(
        long,
        short,
        value_name = "MODEL",
        default_value = "smollm2-135m-instruct"
    )]
    pub(crate) model: String,
    /// Jobs at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count(1, 64))]
    pub(crate) jobs: usize,
    /// Steps of each job
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(3..=1000))]
    pub(crate) steps: u64,
    /// LoRA rank
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count(1, 1024))]
    pub(crate) rank: usize,
    /// Compute threads of each process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1, 4096))]
    pub(crate) threads: usize,
    /// Memory of each node
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) memory_mib: u64,
}

const PLAN: &str = "\
Examples:
  spotmux bench plan
  spotmux bench plan --workload wl-b --profile one-thread.profile.json --json
  spotmux bench plan --workload hard --model tiny --stages 1 --threads 2

wl-a and wl-b are the workloads of the MuxTune paper: eight jobs of LoRA r=16, batches of 2 to 8 sequences of 64, 128 or \
256 tokens. hard: lengths of 16 to 8,192, batches of 1 to 64. Stages are threads of this process, each with --threads \
compute threads; the planner's arrangement is carried out as it is. Without align, sequences are padded to the longest \
of their pass. What is timed and predicted is a round, one step of every job, behind another one, while the next fills what \
it leaves. The five plans are ready at once, each with adapters and optimizer states of its own, and take turns; where they do \
not fit into memory together one follows another, which is said. The profile \
must be of as many threads as a stage has (`spotmux profile --threads N`); without one it is measured first. Keep the \
machine free.";

/// The mix of jobs of `bench plan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchWorkload {
    /// 64 and 128 tokens.
    WlA,
    /// 64 and 256 tokens.
    WlB,
    /// 16 to 8,192 tokens.
    Hard,
}

impl BenchWorkload {
    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WlA => "wl-a",
            Self::WlB => "wl-b",
            Self::Hard => "hard",
        }
    }
}

/// Arguments of `spotmux bench plan`.
#[derive(Debug, Args)]
#[command(after_help = PLAN)]
pub(crate) struct BenchPlanArgs {
    /// The mix of jobs
    #[arg(long, value_enum, default_value_t = BenchWorkload::WlA)]
    pub(crate) workload: BenchWorkload,
    /// A folder, a .gguf file or the name of a fetched model; `tiny`: a small one with random weights
    #[arg(
        long,
        short,
        value_name = "MODEL",
        default_value = "smollm2-135m-instruct"
    )]
    pub(crate) model: String,
    /// Stages
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = count(1, 64))]
    pub(crate) stages: usize,
    /// Compute threads of each stage
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1, 4096))]
    pub(crate) threads: usize,
    /// Steps to measure, after one that is not; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count(1, 1000))]
    pub(crate) steps: usize,
    /// What `spotmux profile` wrote of so many threads [default: measured first]
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// Measures the profile at few sizes
    #[arg(long, conflicts_with = "profile")]
    pub(crate) quick: bool,
    /// How frozen products are computed: f32 or split
    #[arg(long, value_name = "ARITHMETIC", default_value = "f32", value_parser = parse::products)]
    pub(crate) products: Products,
}

/// A number within bounds, as a size of memory holds it.
fn count(least: u64, most: u64) -> impl TypedValueParser<Value = usize> {
    let within = clap::value_parser!(u64).range(least..=most);
    within.try_map(usize::try_from)
}
