//! The `spotmux` command: prints what the command comes to and exits with its code.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod adapter_folder;
mod admission;
mod args;
mod backbone;
mod bench;
mod beside;
mod carried;
mod clock;
mod cluster_file;
mod commands;
mod control;
mod demo;
mod desk;
mod dispatch;
mod exit;
mod health;
mod identity;
mod input;
mod interrupt;
mod language;
mod local;
mod machine;
mod markets;
mod measuring;
mod merged_model;
mod panics;
mod planning;
mod process;
mod progress;
mod remark;
mod render;
mod repl;
mod security;
mod session;
mod settings;
mod shown;
mod store;
mod timeline;
mod training;
mod whole_file;
mod writer;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{Args, ClusterArgs, Command};
use desk::Terminal;
use exit::{Exit, Failure};
use render::Output;
use session::Session;
use settings::Settings;

fn main() -> ExitCode {
    panics::tell_uncontained();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return told_by_parser(&error),
    };
    let settings = Settings::from_environment();
    let output = Output::new(args.json, args.quiet).naming(args.command.cluster());
    // A process of a cluster logs as its file says.
    if !matches!(
        args.command,
        Command::Coordinator(_) | Command::GpuActor(_) | Command::MarketActor(_)
    ) {
        log_to_stderr(settings.log.as_deref());
    }
    let session = Session::new(
        &settings,
        &output,
        &Terminal,
        ClusterArgs::default(),
        dispatch::run,
    );
    let exit = match session.run(&args.command) {
        Ok(exit) => exit,
        Err(failure) => {
            tell(&failure, &output);
            failure.exit
        }
    };
    ExitCode::from(exit.code())
}

/// Says why it failed: to people on standard error, to programs as a last line on standard output.
pub(crate) fn tell(failure: &Failure, output: &Output) {
    if failure.exit == Exit::Done {
        return;
    }
    let message = remark::short(&output.carried(&failure.message()));
    let hints: Vec<String> = failure
        .hints
        .iter()
        .map(|hint| output.carried(hint).into_owned())
        .collect();
    if output.json() {
        let value = serde_json::json!({
            "event": "error",
            "exit_code": failure.exit.code(),
            "message": message,
            "hints": hints,
        });
        output.event(&value);
    }
    remark::say(&format!("error: {message}"));
    for hint in &hints {
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

/// Logs what a filter lets through.
pub(crate) fn log_to_stderr(filter: Option<&str>) {
    let filter = EnvFilter::try_new(filter.unwrap_or("warn")).unwrap_or_else(|error| {
        remark::say(&format!(
            "the log filter {:?} is not understood ({error}): warn is used",
            filter.unwrap_or_default()
        ));
        EnvFilter::new("warn")
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| remark::Log)
        .with_ansi(io::stderr().is_terminal() && console::colors_enabled_stderr())
        .init();
}
