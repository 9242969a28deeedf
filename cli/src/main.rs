//! The `spotmux` command: prints what [`run`] comes to and exits with its code.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod adapter_folder;
mod args;
mod backbone;
mod bench;
mod clock;
mod commands;
mod demo_kit;
mod demo_report;
mod exit;
mod interrupt;
mod language;
mod machine;
mod merged_model;
mod progress;
mod remark;
mod render;
mod settings;
mod store;
mod training;
mod writer;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{AdapterCommand, Args, BenchCommand, Command, DataCommand, ModelCommand};
use exit::{Exit, Failure};
use render::Output;
use settings::Settings;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return told_by_parser(&error),
    };
    let settings = Settings::from_environment();
    let output = Output::new(args.json, args.quiet);
    log_to_stderr(settings.log.as_deref());
    let exit = match run(&args.command, &settings, &output) {
        Ok(exit) => exit,
        Err(failure) => {
            tell(&failure, &output);
            failure.exit
        }
    };
    ExitCode::from(exit.code())
}

fn run(command: &Command, settings: &Settings, output: &Output) -> Result<Exit, Failure> {
    match command {
        Command::Demo(args) => commands::demo::run(args, settings, output),
        Command::Train(args) => commands::train::run(args, settings, output),
        Command::Generate(args) => commands::generate::run(args, settings, output),
        Command::Data(DataCommand::Check(args)) => {
            commands::data_check::run(args, settings, output)
        }
        Command::Model(ModelCommand::Pull(args)) => {
            commands::model_pull::run(args, settings, output)
        }
        Command::Model(ModelCommand::Inspect(args)) => {
            commands::model_inspect::run(args, settings, output)
        }
        Command::Model(ModelCommand::Tiny(args)) => commands::model_tiny::run(args, output),
        Command::Adapter(AdapterCommand::Inspect(args)) => {
            commands::adapter_inspect::run(args, settings, output)
        }
        Command::Adapter(AdapterCommand::Import(args)) => {
            commands::adapter_import::run(args, settings, output)
        }
        Command::Adapter(AdapterCommand::Merge(args)) => {
            commands::adapter_merge::run(args, settings, output)
        }
        Command::Bench(BenchCommand::Train(args)) => {
            commands::bench_train::run(args, settings, output)
        }
    }
}

/// Says why it failed: to people on standard error, to programs as a last line on standard output.
fn tell(failure: &Failure, output: &Output) {
    if failure.exit == Exit::Done {
        return;
    }
    let message = remark::short(&failure.message());
    if output.json() {
        let value = serde_json::json!({
            "event": "error",
            "exit_code": failure.exit.code(),
            "message": message,
            "hints": failure.hints,
        });
        output.event(&value);
    }
    remark::say(&format!("error: {message}"));
    for hint in &failure.hints {
        remark::say(&format!("  hint: {hint}"));
    }
}

/// Pages that were asked for go to standard output as the parser writes them; what is wrong with a command line is told
/// as every other failure.
fn told_by_parser(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader of half a page has had enough.
        let _ = error.print();
        return ExitCode::from(Exit::Done.code());
    }
    let text = error.to_string();
    let text = text.trim_end();
    if std::env::args_os()
        .take_while(|word| word != "--")
        .any(|word| word == "--json")
    {
        let message = text.strip_prefix("error: ").unwrap_or(text);
        Output::new(true, true).event(&serde_json::json!({
            "event": "error",
            "exit_code": Exit::Usage.code(),
            "message": remark::short(message),
            "hints": [],
        }));
    }
    remark::say(text);
    ExitCode::from(Exit::Usage.code())
}

fn log_to_stderr(filter: Option<&str>) {
    let filter =
        EnvFilter::try_new(filter.unwrap_or("warn")).unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| remark::Log)
        .with_ansi(io::stderr().is_terminal() && console::colors_enabled_stderr())
        .init();
}
