//! The command line: one tree, with an example for everything.

mod adapter;
mod bench;
mod cluster;
mod data;
mod local;
mod market;
mod model;
mod parse;
mod plan;
mod train;

use clap::{Parser, Subcommand};

pub(crate) use adapter::{
    AdapterCommand, ExportArgs, ImportArgs, InspectAdapterArgs, MergeArgs, MergedFormat,
};
pub(crate) use bench::{
    BenchCommand, BenchPipelineArgs, BenchPlanArgs, BenchTrainArgs, BenchWorkload,
};
pub(crate) use cluster::{
    CancelArgs, ClusterArgs, Consent, CoordinatorArgs, DrainArgs, EventsArgs, FetchArgs,
    GpuActorArgs, JobArgs, JobsArgs, MigrateArgs, NodesArgs, PauseArgs, ResumeArgs, SampleArgs,
    StatusArgs, SubmitArgs, TraceArgs,
};
pub(crate) use data::{CheckArgs, DataCommand, LongRows};
pub(crate) use local::{
    CaCommand, CaInitArgs, CaIssueArgs, CaRenewArgs, CaTokenArgs, ConfigCheckArgs, ConfigCommand,
    ConfigInitArgs, ConfigShowArgs, DoctorArgs, DownArgs, IssueRole, JoinArgs, JoinRole, ReplArgs,
    UpArgs,
};
pub(crate) use market::{
    BacktestArgs, BillArgs, ExplainArgs, ForecastArgs, MarketActorArgs, MarketCommand, MomentArgs,
    OrphansArgs, POLICIES, ShapeArgs, ShowMarketArgs, TogetherArgs, TraceArgs as MarketTraceArgs,
    WhatifArgs,
};
pub(crate) use model::{InspectArgs, ModelCommand, PullArgs, TinyArgs, TinyFamily};
pub(crate) use plan::{
    Joining, PlanArgs, ProblemArgs, ProfileArgs, QuoteArgs, SimulateArgs, SimulatedMix,
};
pub(crate) use train::{DemoArgs, GenerateArgs, TrainArgs};

const EXIT_CODES: &str = "\
Examples:
  spotmux demo
  spotmux model pull smollm2-135m-instruct
  spotmux data check support.jsonl --model smollm2-135m-instruct
  spotmux train jobs.toml
  spotmux generate --model smollm2-135m-instruct --adapter adapters/support 'Where is my parcel?'
  spotmux up --detach && spotmux submit jobs.toml --wait

Exit codes:
  0    done
  1    internal: a fault of spotmux or of the machine
  2    usage: the command line is wrong
  3    bad input: a job, a data set, an adapter or a model is wrong
  4    not found: a model or file is absent or could not be fetched; no such job or node is known
  5    would not fit: more memory is needed than there is
  6    at least one job was set aside because its numbers stopped being finite
  7    unreachable: no coordinator answers, or it does not believe who asks
  8    conflict: the state does not allow it, or a name is taken
  9    forbidden: the certificate does not allow it
  10   busy: a limit is reached, or what was asked was moved on the way; later, the same may pass
  11   no capacity: no node can do it
  12   the coordinator itself failed
  13   a job that was waited for did not succeed
  14   the cluster has ended, and steps that were taken are not durable
  130  interrupted; what was trained is saved

Environment:
  SPOTMUX_CACHE   fetched models are kept in $SPOTMUX_CACHE/spotmux/models
                  (absent: $XDG_CACHE_HOME, then ~/.cache)
  SPOTMUX_PYTHON  the Python whose pip fetches packages (absent: python3)
  SPOTMUX_LOG     what is logged, such as error or debug (absent: warn)
  SPOTMUX_CONFIG  file of the cluster (absent: cluster.toml); SPOTMUX__SECTION__KEY sets a key of it
  HF_TOKEN        key for gated models of the model hub; HF_HOME and HF_ENDPOINT are heeded too
  NO_COLOR        no colours";

/// Trains many fine-tuning jobs at once on one frozen language model.
///
/// Results go to standard output, progress and remarks to standard error.
#[derive(Debug, Parser)]
#[command(name = "spotmux", version, after_help = EXIT_CODES, propagate_version = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Args {
    /// Results as JSON, one object a line; no progress, no remarks
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No progress and no remarks
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Trains several jobs of a small model on a cluster of processes; answers before and after
    Demo(DemoArgs),
    /// Trains the jobs of a file; started again, it resumes
    Train(TrainArgs),
    /// Writes text with a model, with or without an adapter
    Generate(GenerateArgs),
    /// Looks at data sets
    #[command(subcommand, after_help = data::EXAMPLES)]
    Data(DataCommand),
    /// Fetches, describes and makes models
    #[command(subcommand, after_help = model::EXAMPLES)]
    Model(ModelCommand),
    /// Describes, merges and takes in adapters
    #[command(subcommand, after_help = adapter::EXAMPLES)]
    Adapter(AdapterCommand),
    /// Measures
    #[command(subcommand, after_help = bench::EXAMPLES)]
    Bench(BenchCommand),
    /// Measures this device for the planner
    Profile(ProfileArgs),
    /// Shows which jobs would share what, where and why, before anything runs
    Plan(PlanArgs),
    /// Says when jobs would be done and what they would cost
    Quote(QuoteArgs),
    /// Runs a fleet of GPUs in virtual time, beside other ways to share it
    Simulate(SimulateArgs),
    /// Looks at spot markets: what they were, what they may be, what to hold
    #[command(subcommand, after_help = market::EXAMPLES)]
    Market(MarketCommand),
    /// Starts a cluster on this machine
    Up(UpArgs),
    /// Runs the process that decides for a cluster
    Coordinator(CoordinatorArgs),
    /// Runs a node that holds a stage of the backbone
    GpuActor(GpuActorArgs),
    /// Runs the process that holds machines of a market for a cluster
    MarketActor(MarketActorArgs),
    /// Makes this machine a member of a cluster, by a one-time token
    Join(JoinArgs),
    /// Ends the cluster that `up` started
    Down(DownArgs),
    /// Shows the cluster at a glance
    Status(StatusArgs),
    /// Gives the jobs of a file to the cluster
    Submit(SubmitArgs),
    /// Lists jobs
    Jobs(JobsArgs),
    /// Shows a job
    Job(JobArgs),
    /// Ends a job; it cannot be resumed
    Cancel(CancelArgs),
    /// Halts a job after its step under way
    Pause(PauseArgs),
    /// Goes on with a paused job
    Resume(ResumeArgs),
    /// Tells what happened
    Events(EventsArgs),
    /// Lists nodes
    Nodes(NodesArgs),
    /// Takes work off a node, or gives it back
    Drain(DrainArgs),
    /// Moves the stage of a node to another
    Migrate(MigrateArgs),
    /// Continues a text on the cluster, with or without a job's adapter
    Sample(SampleArgs),
    /// Writes what every stage did for a step, for a timeline
    Trace(TraceArgs),
    /// Fetches the adapter of a job
    Fetch(FetchArgs),
    /// Certificates: who is who in a cluster
    #[command(subcommand, after_help = local::CA_EXAMPLES)]
    Ca(CaCommand),
    /// Looks for what would keep the cluster from working
    Doctor(DoctorArgs),
    /// Settings of the cluster
    #[command(subcommand, after_help = local::CONFIG_EXAMPLES)]
    Config(ConfigCommand),
    /// Takes commands line by line
    Repl(ReplArgs),
}

impl Command {
    /// How it names its cluster, where it has one.
    pub(crate) fn cluster(&self) -> Option<&ClusterArgs> {
        match self {
            Self::Up(UpArgs { cluster, .. })
            | Self::Coordinator(CoordinatorArgs { cluster, .. })
            | Self::GpuActor(GpuActorArgs { cluster, .. })
            | Self::MarketActor(MarketActorArgs { cluster, .. })
            | Self::Down(DownArgs { cluster, .. })
            | Self::Status(StatusArgs { cluster, .. })
            | Self::Submit(SubmitArgs { cluster, .. })
            | Self::Jobs(JobsArgs { cluster, .. })
            | Self::Job(JobArgs { cluster, .. })
            | Self::Cancel(CancelArgs { cluster, .. })
            | Self::Pause(PauseArgs { cluster, .. })
            | Self::Resume(ResumeArgs { cluster, .. })
            | Self::Events(EventsArgs { cluster, .. })
            | Self::Nodes(NodesArgs { cluster, .. })
            | Self::Drain(DrainArgs { cluster, .. })
            | Self::Migrate(MigrateArgs { cluster, .. })
            | Self::Sample(SampleArgs { cluster, .. })
            | Self::Trace(TraceArgs { cluster, .. })
            | Self::Fetch(FetchArgs { cluster, .. })
            | Self::Doctor(DoctorArgs { cluster, .. })
            | Self::Plan(PlanArgs {
                problem: ProblemArgs { cluster, .. },
                ..
            })
            | Self::Quote(QuoteArgs {
                problem: ProblemArgs { cluster, .. },
                ..
            })
            | Self::Ca(
                CaCommand::Init(CaInitArgs { cluster, .. })
                | CaCommand::Issue(CaIssueArgs { cluster, .. })
                | CaCommand::Token(CaTokenArgs { cluster, .. })
                | CaCommand::Renew(CaRenewArgs { cluster, .. }),
            )
            | Self::Config(
                ConfigCommand::Show(ConfigShowArgs { cluster, .. })
                | ConfigCommand::Check(ConfigCheckArgs { cluster, .. }),
            )
            | Self::Market(
                MarketCommand::Bill(BillArgs { cluster, .. })
                | MarketCommand::Orphans(OrphansArgs { cluster, .. }),
            )
            | Self::Repl(ReplArgs { cluster, .. }) => Some(cluster),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_tree_is_sound() {
        Args::command().debug_assert();
    }

    /// What a command names afterwards means the same cluster only if it says which one it is.
    #[test]
    fn every_command_that_takes_the_file_of_a_cluster_says_which_it_was_given() {
        let mut open = vec![(vec!["spotmux".to_owned()], Args::command())];
        let mut walked = 0;
        while let Some((words, command)) = open.pop() {
            for inner in command.get_subcommands() {
                let name = inner.get_name().to_owned();
                let words = words.iter().cloned().chain([name]);
                open.push((words.collect(), inner.clone()));
            }
            let takes = |long| {
                let mut options = command.get_arguments();
                options.any(|option| option.get_long() == Some(long))
            };
            // What `join` calls so is a file to write.
            if !(takes("config") && takes("set")) || command.has_subcommands() {
                continue;
            }
            let required = command
                .get_arguments()
                .filter(|argument| argument.is_required_set());
            let required: Vec<Option<String>> = required
                .map(|argument| argument.get_long().map(|long| format!("--{long}")))
                .collect();
            // A word that one of them does not take is no job, number, node or file.
            let parsed = ["j1", "1", "n1", "127.0.0.1:1"].iter().find_map(|value| {
                let mut line = words.clone();
                for option in &required {
                    line.extend(option.clone());
                    line.push((*value).to_owned());
                }
                line.extend(["--config".to_owned(), "b.toml".to_owned()]);
                // Of a name that may come in two ways neither is required.
                let named = line.iter().cloned().chain([(*value).to_owned()]);
                Args::try_parse_from(&line)
                    .or_else(|_| Args::try_parse_from(named))
                    .ok()
            });
            let args = parsed.unwrap_or_else(|| panic!("{words:?}"));
            let config = args
                .command
                .cluster()
                .and_then(|cluster| cluster.config.as_ref());
            assert!(
                config.is_some_and(|config| config.ends_with("b.toml")),
                "{words:?}"
            );
            walked += 1;
        }
        assert!(walked >= 25, "{walked} commands");
    }

    #[test]
    fn every_command_has_an_example_and_a_sentence() {
        let mut open = vec![Args::command()];
        while let Some(command) = open.pop() {
            let name = command.get_name().to_owned();
            assert!(
                command.get_about().is_some(),
                "{name} says nothing about itself"
            );
            let after = command.get_after_help().map(ToString::to_string);
            if !command.has_subcommands() {
                let text = after.unwrap_or_default();
                assert!(
                    text.contains("Examples:\n  spotmux "),
                    "{name} has no example"
                );
            }
            open.extend(command.get_subcommands().cloned());
        }
    }
}
