//! Planning: measuring a device, plans, quotes and fleets in virtual time.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use coordinator::plan::profile::Weights;
use coordinator::plan::snapshot::Saturation;
use shared::job::Products;

use super::cluster::ClusterArgs;
use super::parse;

const PROFILE: &str = "\
Examples:
  spotmux profile -o cpu.profile.json
  spotmux profile --quick --threads 1 -o quick.json
  spotmux profile --check -o cpu.profile.json
  spotmux profile --check --profile cpu.profile.json

Times the operations of a few of the model's layers on this machine: frozen products by shape and rows, attention by \
length, adapters by method and rank, norms and copies, the head; and the way to another process by loopback. The file \
holds for this model's shapes; what it lacks is filled from the best rates in it. --check then trains some mixes of jobs \
and shows predicted beside measured steps. Other work on the machine is measured too: let it rest.";

/// Arguments of `spotmux profile`.
#[derive(Debug, Args)]
#[command(after_help = PROFILE)]
pub(crate) struct ProfileArgs {
    /// A folder, a .gguf file or the name of a fetched model
    #[arg(
        long,
        short,
        value_name = "MODEL",
        default_value = "smollm2-135m-instruct"
    )]
    pub(crate) model: String,
    /// Compute threads [default: one per available core]
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// How weights are held: as-shipped, f32 or bf16
    #[arg(long, value_name = "FORMAT", default_value = "as-shipped", value_parser = ["as-shipped", "f32", "bf16"])]
    pub(crate) backbone: String,
    /// How frozen products are computed: f32 or split
    #[arg(long, value_name = "ARITHMETIC", default_value = "f32", value_parser = parse::products)]
    pub(crate) products: Products,
    /// File to write; without it, the profile is the result
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Few sizes: some ten seconds, for a first look
    #[arg(long)]
    pub(crate) quick: bool,
    /// Predicts and measures the steps of some mixes of jobs
    #[arg(long)]
    pub(crate) check: bool,
    /// Checks this file instead of measuring anew
    #[arg(long, value_name = "FILE", requires = "check", conflicts_with_all = ["output", "quick"])]
    pub(crate) profile: Option<PathBuf>,
}

/// What is to be planned.
#[derive(Debug, Args)]
pub(crate) struct ProblemArgs {
    /// A file of jobs; without it, one job of LoRA r=16 with steps of four sequences
    #[arg(value_name = "JOBS.toml")]
    pub(crate) jobs: Option<PathBuf>,
    /// The backbone: a folder, a .gguf file, a fetched model, a config.json alone, or a known name such as llama-3-70b
    /// [default: the one in the file of jobs; with --cluster, the cluster's]
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// How the weights of blocks are kept [default: as they lie in the files; bf16 where there are none]
    #[arg(long, value_name = "FORMAT", value_parser = parse::weights)]
    pub(crate) weights: Option<Weights>,
    /// A file of nodes, or so many of a known device, such as 8xrtx4090,2xa40 [default: this machine]
    #[arg(
        long,
        value_name = "FILE or NxDEVICE",
        conflicts_with = "cluster_nodes"
    )]
    pub(crate) nodes: Option<String>,
    /// The nodes of the running cluster, and its model; of `plan` without a file of jobs, its jobs too, beside what stands there
    #[arg(long = "cluster")]
    pub(crate) cluster_nodes: bool,
    /// What `spotmux profile` wrote; may be given again for other devices [default: with --cluster, those of its file]
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Vec<PathBuf>,
    /// Tokens of a sample, where no tokenizer tells
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub(crate) length: u32,
    /// Stages of a replica [default: the planner's choice]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) stages: Option<u32>,
    /// Replicas [default: the planner's choice]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4_096), value_name = "N")]
    pub(crate) replicas: Option<u32>,
    /// The most that company may add to a job's step, in percent of the step alone
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) max_added_latency: Option<u32>,
    /// When a job that fits joins those that train [default: no-loss; with --cluster, as its file says where all devices were measured]
    #[arg(long, value_enum)]
    pub(crate) saturation: Option<Joining>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const PLAN: &str = "\
Examples:
  spotmux plan jobs.toml
  spotmux plan jobs.toml --profile cpu.profile.json --explain
  spotmux plan jobs.toml --nodes nodes.toml --no-fuse
  spotmux plan --cluster --explain
  spotmux plan jobs.toml --cluster --profile cpu.profile.json
  spotmux plan --model llama-3-70b --weights q4 --nodes 8xrtx4090 --explain

A file of nodes:
  [[node]]
  name = \"rig\"            # with count above 1: rig-1, rig-2, ...
  device = \"rtx4090\"      # a40, a100, h100, rtx4090, cpu, or the device of a --profile
  count = 8               # default 1
  memory_gib = 24         # default: that of the device
  threads = 8             # of a cpu; default 1
  site = \"here\"           # nodes of one site are near each other
  price_usd_hour = 0.35   # default: not known
  losses_per_1000_hours = 5   # default 0

Nothing is trained. Exit code 5: a job can never fit, and it is said what would.";

/// Arguments of `spotmux plan`.
#[derive(Debug, Args)]
#[command(after_help = PLAN)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) problem: ProblemArgs,
    /// Why it is so: what each level gains, what limits, what is left on the table
    #[arg(long)]
    pub(crate) explain: bool,
    /// Jobs share no passes
    #[arg(long)]
    pub(crate) no_fuse: bool,
    /// Passes run by the jobs' numbers, one forward one backward
    #[arg(long)]
    pub(crate) no_order: bool,
    /// Every sequence is padded to the longest of its pass
    #[arg(long)]
    pub(crate) no_align: bool,
}

const QUOTE: &str = "\
Examples:
  spotmux quote jobs.toml
  spotmux quote jobs.toml --nodes nodes.toml --deadline 12
  spotmux quote jobs.toml --cluster --profile cpu.profile.json --json

As if all jobs of the file were sent now, and no other trained: with --cluster too, on its nodes and its model. What trains is not \
paused for another, so one that waits begins when another ends. The range is 10 % around a measured profile and 50 % around a computed one, and \
the losses that the nodes are said to have; a job pays for its share of the rows.";

/// Arguments of `spotmux quote`.
#[derive(Debug, Args)]
#[command(after_help = QUOTE)]
pub(crate) struct QuoteArgs {
    #[command(flatten)]
    pub(crate) problem: ProblemArgs,
    /// Hours from now in which all jobs shall be done
    #[arg(long, value_name = "HOURS", value_parser = parse::hours)]
    pub(crate) deadline: Option<f64>,
}

/// When a job that fits joins those that train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Joining {
    /// Unless tokens a second fall.
    NoLoss,
    /// When tokens a second grow by half a percent, as in the MuxTune paper.
    Growth,
    /// Always.
    Off,
}

impl Joining {
    /// As the planner has it.
    pub(crate) fn rule(self) -> Saturation {
        match self {
            Self::NoLoss => Saturation::NO_LOSS,
            Self::Growth => Saturation::GROWTH,
            Self::Off => Saturation::Off,
        }
    }
}

/// What the jobs of a simulation train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimulatedMix {
    /// One length (128).
    Uniform,
    /// Three lengths (64, 128, 256).
    NonUniform,
}

const SIMULATE: &str = "\
Examples:
  spotmux simulate --gpus 64
  spotmux simulate --gpus 64 --jobs-per-hour 40 --device h100
  spotmux simulate --gpus 128 --jobs-per-hour 155.4 --trace workloads/philly --svg week.svg
  spotmux simulate --gpus 16 --trace workloads/alibaba-gpu-2023 --hours 48 --json
  spotmux simulate --gpus 8 --model smollm2-135m-instruct --profile cpu.profile.json

A trace is a folder: of Philly (vc-*.csv with arrival_s, runtime_s.csv with runtime_s) or of Alibaba's pods \
(openb_pod_list_default.csv). Its arrivals are brought to --jobs-per-hour and begin again when they end. Without one, \
arrivals are drawn: exponential gaps, log-normal lengths of the mean and deviation of Philly. A job's length is what it \
takes alone. Four systems have the same jobs: this planner, one instance a job, spatial sharing with padding, temporal \
sharing; the paper's ratios are shown beside. While less comes than the GPUs do one job at a time, look at times and \
queues; when more comes, at tokens a second.";

/// Arguments of `spotmux simulate`.
#[derive(Debug, Args)]
#[command(after_help = SIMULATE)]
pub(crate) struct SimulateArgs {
    /// GPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) gpus: u32,
    /// A folder with a trace; absent: drawn
    #[arg(long, value_name = "DIR")]
    pub(crate) trace: Option<PathBuf>,
    /// Jobs that come in an hour [default: half as many again as would keep all GPUs busy, one job to each]
    #[arg(long, value_name = "N", value_parser = parse::positive)]
    pub(crate) jobs_per_hour: Option<f64>,
    /// Hours that are simulated
    #[arg(long, value_name = "N", default_value_t = 168, value_parser = clap::value_parser!(u32).range(1..=8_760))]
    pub(crate) hours: u32,
    /// The backbone: a folder, a .gguf file, a fetched model, a config.json or a known name [default: llama-2-7b]
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// How the weights of blocks are kept
    #[arg(long, value_name = "FORMAT", value_parser = parse::weights)]
    pub(crate) weights: Option<Weights>,
    /// A known device
    #[arg(
        long,
        value_name = "DEVICE",
        default_value = "a40",
        conflicts_with = "profile"
    )]
    pub(crate) device: String,
    /// What `spotmux profile` wrote, in place of a known device
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// What jobs train: lengths of the paper's data sets
    #[arg(long, value_enum, default_value_t = SimulatedMix::NonUniform)]
    pub(crate) mix: SimulatedMix,
    /// GPUs to an instance [default: the best of 1, 2 and 4 for each system]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) width: Option<u32>,
    /// Micro-batches of a step in the three systems that it is compared with [default: the best for each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) micro_batches: Option<u64>,
    /// When a job that fits joins those that train
    #[arg(long, value_enum, default_value_t = Joining::NoLoss)]
    pub(crate) saturation: Joining,
    /// Losses of one GPU in a thousand hours
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) losses: u64,
    /// Price of a GPU and hour in dollars
    #[arg(long, value_name = "USD", default_value_t = 0.39, value_parser = parse::price)]
    pub(crate) price: f64,
    /// Seed of all that is drawn
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) seed: u64,
    /// Draws the timeline into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
