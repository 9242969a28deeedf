//! What an operator asks of a cluster; the same tree in a shell and in `spotmux repl`.

use std::path::PathBuf;

use clap::Args;
use shared::ids::{EventNumber, NodeName};
use shared::wire::request::JobRef;

use super::parse;

/// How the cluster is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct ClusterArgs {
    /// File of the cluster [default: $SPOTMUX_CONFIG, then cluster.toml]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Sets a key of that file for this command; may be given again
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Whether a destructive command is meant.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Consent {
    /// Does not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

const STATUS: &str = "\
Examples:
  spotmux status
  spotmux status --json | jq .nodes";

/// Arguments of `spotmux status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const NODES: &str = "\
Examples:
  spotmux nodes
  spotmux nodes --json";

/// Arguments of `spotmux nodes`.
#[derive(Debug, Args)]
#[command(after_help = NODES)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const JOBS: &str = "\
Examples:
  spotmux jobs
  spotmux jobs --all
  spotmux jobs --json";

/// Arguments of `spotmux jobs`.
#[derive(Debug, Args)]
#[command(after_help = JOBS)]
pub(crate) struct JobsArgs {
    /// Those that have ended too
    #[arg(long, short)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const JOB: &str = "\
Examples:
  spotmux job j12
  spotmux job support --wait          # until it has ended; then its end is the exit code
  spotmux job support --json";

/// Arguments of `spotmux job`.
#[derive(Debug, Args)]
#[command(after_help = JOB)]
pub(crate) struct JobArgs {
    /// Its id (j12) or name
    #[arg(value_name = "JOB", value_parser = parse::job)]
    pub(crate) job: JobRef,
    /// Waits until it has ended
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const CANCEL: &str = "\
Examples:
  spotmux cancel support
  spotmux cancel j12 --yes --wait

What is durable of it is kept for spotmux sample --job; an adapter to fetch is written only of a job that succeeded. \
Again is no error.";

/// Arguments of `spotmux cancel`.
#[derive(Debug, Args)]
#[command(after_help = CANCEL)]
pub(crate) struct CancelArgs {
    /// Its id (j12) or name
    #[arg(value_name = "JOB", value_parser = parse::job)]
    pub(crate) job: JobRef,
    /// Waits until it has ended
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const PAUSE: &str = "\
Examples:
  spotmux pause support
  spotmux pause j12 --wait";

/// Arguments of `spotmux pause`.
#[derive(Debug, Args)]
#[command(after_help = PAUSE)]
pub(crate) struct PauseArgs {
    /// Its id (j12) or name
    #[arg(value_name = "JOB", value_parser = parse::job)]
    pub(crate) job: JobRef,
    /// Waits until it is paused
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const RESUME: &str = "\
Examples:
  spotmux resume support
  spotmux resume j12 --wait";

/// Arguments of `spotmux resume`.
#[derive(Debug, Args)]
#[command(after_help = RESUME)]
pub(crate) struct ResumeArgs {
    /// Its id (j12) or name
    #[arg(value_name = "JOB", value_parser = parse::job)]
    pub(crate) job: JobRef,
    /// Waits until it trains again
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const EVENTS: &str = "\
Examples:
  spotmux events
  spotmux events -f --job support
  spotmux events --after ev120 --json";

/// Arguments of `spotmux events`.
#[derive(Debug, Args)]
#[command(after_help = EVENTS)]
pub(crate) struct EventsArgs {
    /// Goes on as they come, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Of this job only: its id or name
    #[arg(long, value_name = "JOB", value_parser = parse::job)]
    pub(crate) job: Option<JobRef>,
    /// Only those after this number, as ev120 or 120
    #[arg(long, value_name = "N", value_parser = parse::event, default_value = "ev0")]
    pub(crate) after: EventNumber,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const DRAIN: &str = "\
Examples:
  spotmux drain n1
  spotmux drain n1 --yes --wait       # until it holds nothing
  spotmux drain n1 --undo

A drain that leaves no place for layers is refused. A drain outlives the cluster: after the next `spotmux up` the node \
is still to be empty.";

/// Arguments of `spotmux drain`.
#[derive(Debug, Args)]
#[command(after_help = DRAIN)]
pub(crate) struct DrainArgs {
    /// The node
    #[arg(value_name = "NODE")]
    pub(crate) node: NodeName,
    /// Lets it have work again
    #[arg(long)]
    pub(crate) undo: bool,
    /// Drains it even where its layers have no other place: jobs are made durable, and wait for one
    #[arg(long, conflicts_with = "undo")]
    pub(crate) force: bool,
    /// Waits until it holds nothing
    #[arg(long, conflicts_with = "undo")]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const MIGRATE: &str = "\
Examples:
  spotmux migrate n1
  spotmux migrate n1 --to n3 --yes --wait";

/// Arguments of `spotmux migrate`.
#[derive(Debug, Args)]
#[command(after_help = MIGRATE)]
pub(crate) struct MigrateArgs {
    /// The node whose stage moves
    #[arg(value_name = "NODE")]
    pub(crate) node: NodeName,
    /// The node it moves to [default: the coordinator chooses]
    #[arg(long, value_name = "NODE")]
    pub(crate) to: Option<NodeName>,
    /// Waits until it has moved
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const SUBMIT: &str = "\
Examples:
  spotmux submit jobs.toml
  spotmux submit jobs.toml --wait
  spotmux submit jobs.toml --json

The file is that of `spotmux train`; its model, output and engine are the cluster's own. Files that the cluster has \
are not sent again, and a job that is there already is answered, not trained twice. A name is free again for other content \
once its job has ended, and for any once it was cancelled.";

/// Arguments of `spotmux submit`.
#[derive(Debug, Args)]
#[command(after_help = SUBMIT)]
pub(crate) struct SubmitArgs {
    /// File of jobs
    #[arg(value_name = "JOBS.toml")]
    pub(crate) jobs: PathBuf,
    /// Waits until all of them have ended
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const SAMPLE: &str = "\
Examples:
  spotmux sample 'What is the capital of France?'
  spotmux sample --job support 'Where is my parcel?'
  spotmux sample --job support --system 'Answer in one word.' 'Where is my parcel?'
  echo 'def fib(n):' | spotmux sample --raw -";

/// Arguments of `spotmux sample`.
#[derive(Debug, Args)]
#[command(after_help = SAMPLE)]
pub(crate) struct SampleArgs {
    /// The user's turn, or the text to continue with --raw; `-` reads standard input
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,
    /// The system's turn
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Continues the text as it is, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// With this job's adapter as it is now [default: the backbone alone]
    #[arg(long, value_name = "JOB", value_parser = parse::job)]
    pub(crate) job: Option<JobRef>,
    /// Most tokens to write
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_tokens: u32,
    /// 0 takes the most likely token; higher is more varied
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) temperature: f32,
    /// Keeps the most likely tokens that hold this much probability
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub(crate) top_p: f32,
    /// Keeps so many of the most likely tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) top_k: u32,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const TRACE: &str = "\
Examples:
  spotmux trace -o trace.json                  # the newest step
  spotmux trace 40 --job support -o trace.json

Open the file in https://ui.perfetto.dev: a process is a node, a row is what it does at a time.";

/// Arguments of `spotmux trace`.
#[derive(Debug, Args)]
#[command(after_help = TRACE)]
pub(crate) struct TraceArgs {
    /// Step of the job, from 1 [default: the newest]
    #[arg(value_name = "STEP", requires = "job", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) step: Option<u64>,
    /// Of this job [default: all that passed with the newest step]
    #[arg(long, value_name = "JOB", value_parser = parse::job)]
    pub(crate) job: Option<JobRef>,
    /// File to write, in the trace format of Chrome
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const FETCH: &str = "\
Examples:
  spotmux fetch support adapters/support
  spotmux fetch j12 out && spotmux adapter inspect out";

/// Arguments of `spotmux fetch`.
#[derive(Debug, Args)]
#[command(after_help = FETCH)]
pub(crate) struct FetchArgs {
    /// Its id (j12) or name
    #[arg(value_name = "JOB", value_parser = parse::job)]
    pub(crate) job: JobRef,
    /// Folder to write; it must not be there yet
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const COORDINATOR: &str = "\
Examples:
  spotmux coordinator --config cluster.toml

`spotmux up` starts it on this machine; elsewhere a service manager does.";

/// Arguments of `spotmux coordinator`.
#[derive(Debug, Args)]
#[command(after_help = COORDINATOR)]
pub(crate) struct CoordinatorArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

const GPU_ACTOR: &str = "\
Examples:
  spotmux gpu-actor --name n1 --config cluster.toml

`spotmux up` starts those that the file lists; on other machines a service manager does.";

/// Arguments of `spotmux gpu-actor`.
#[derive(Debug, Args)]
#[command(after_help = GPU_ACTOR)]
pub(crate) struct GpuActorArgs {
    /// Its name; its certificate bears it
    #[arg(long, value_name = "NODE")]
    pub(crate) name: NodeName,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
