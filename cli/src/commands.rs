//! One file a command: arguments in, results out.

pub(crate) mod adapter_export;
pub(crate) mod adapter_import;
pub(crate) mod adapter_inspect;
pub(crate) mod adapter_merge;
pub(crate) mod bench_pipeline;
mod bench_plan;
pub(crate) mod bench_train;
pub(crate) mod ca;
pub(crate) mod cluster;
pub(crate) mod coordinator;
pub(crate) mod data_check;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod generate;
pub(crate) mod gpu_actor;
pub(crate) mod join;
pub(crate) mod market;
pub(crate) mod market_actor;
pub(crate) mod model_inspect;
pub(crate) mod model_pull;
pub(crate) mod model_tiny;
pub(crate) mod plan;
pub(crate) mod profile;
pub(crate) mod quote;
pub(crate) mod repl;
pub(crate) mod settings;
pub(crate) mod simulate;
pub(crate) mod train;
pub(crate) mod up;

use crate::args::{AdapterCommand, BenchCommand, Command, DataCommand, ModelCommand};
use crate::exit::{Exit, Failure};
use crate::render::Output;
use crate::settings::Settings;

/// Runs a command that needs no cluster.
///
/// # Errors
/// What it says; [`Exit::Internal`] for one that needs a cluster.
pub(crate) fn alone(
    command: &Command,
    settings: &Settings,
    output: &Output,
) -> Result<Exit, Failure> {
    match command {
        Command::Demo(args) => demo::run(args, settings, output),
        Command::Train(args) => train::run(args, settings, output),
        Command::Generate(args) => generate::run(args, settings, output),
        Command::Coordinator(args) => coordinator::run(args, settings),
        Command::GpuActor(args) => gpu_actor::run(args, settings),
        Command::MarketActor(args) => market_actor::run(args, settings),
        Command::Data(DataCommand::Check(args)) => data_check::run(args, settings, output),
        Command::Model(ModelCommand::Pull(args)) => model_pull::run(args, settings, output),
        Command::Model(ModelCommand::Inspect(args)) => model_inspect::run(args, settings, output),
        Command::Model(ModelCommand::Tiny(args)) => model_tiny::run(args, output),
        Command::Adapter(AdapterCommand::Inspect(args)) => {
            adapter_inspect::run(args, settings, output)
        }
        Command::Adapter(AdapterCommand::Import(args)) => {
            adapter_import::run(args, settings, output)
        }
        Command::Adapter(AdapterCommand::Export(args)) => {
            adapter_export::run(args, settings, output)
        }
        Command::Adapter(AdapterCommand::Merge(args)) => adapter_merge::run(args, settings, output),
        Command::Bench(BenchCommand::Train(args)) => bench_train::run(args, settings, output),
        Command::Bench(BenchCommand::Pipeline(args)) => bench_pipeline::run(args, settings, output),
        Command::Bench(BenchCommand::Plan(args)) => bench_plan::run(args, settings, output),
        Command::Profile(args) => profile::run(args, settings, output),
        Command::Simulate(args) => simulate::run(args, settings, output),
        Command::Market(command) => market::run(command, settings, output),
        other => Err(Failure::new(
            Exit::Internal,
            format!("{other:?} is not done here"),
        )),
    }
}
