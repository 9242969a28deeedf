//! From the tree of commands to what does each.

use crate::args::Command;
use crate::commands;
use crate::exit::{Exit, Failure};
use crate::session::Session;

/// Runs a command.
///
/// # Errors
/// What it says.
pub(crate) fn run(command: &Command, session: &Session<'_>) -> Result<Exit, Failure> {
    use commands::cluster::{fetch, jobs, look, nodes, sample, submit, trace};
    match command {
        Command::Status(args) => session.with_cluster(&args.cluster, look::status),
        Command::Nodes(args) => session.with_cluster(&args.cluster, look::nodes),
        Command::Jobs(args) => session.with_cluster(&args.cluster, |desk| look::jobs(args, desk)),
        Command::Job(args) => session.with_cluster(&args.cluster, |desk| look::job(args, desk)),
        Command::Events(args) => {
            session.with_cluster(&args.cluster, |desk| look::events(args, desk))
        }
        Command::Submit(args) => {
            session.with_cluster(&args.cluster, |desk| submit::run(args, desk))
        }
        Command::Cancel(args) => {
            session.with_cluster(&args.cluster, |desk| jobs::cancel(args, desk))
        }
        Command::Pause(args) => session.with_cluster(&args.cluster, |desk| jobs::pause(args, desk)),
        Command::Resume(args) => {
            session.with_cluster(&args.cluster, |desk| jobs::resume(args, desk))
        }
        Command::Drain(args) => {
            session.with_cluster(&args.cluster, |desk| nodes::drain(args, desk))
        }
        Command::Migrate(args) => {
            session.with_cluster(&args.cluster, |desk| nodes::migrate(args, desk))
        }
        Command::Sample(args) => {
            session.with_cluster(&args.cluster, |desk| sample::run(args, desk))
        }
        Command::Trace(args) => session.with_cluster(&args.cluster, |desk| trace::run(args, desk)),
        Command::Fetch(args) => session.with_cluster(&args.cluster, |desk| fetch::run(args, desk)),
        Command::Plan(args) => commands::plan::run(args, session),
        Command::Quote(args) => commands::quote::run(args, session),
        Command::Up(args) => commands::up::run(args, session),
        Command::Down(args) => commands::down::run(args, session),
        Command::Doctor(args) => commands::doctor::run(args, session),
        Command::Join(args) => commands::join::run(args, session),
        Command::Ca(command) => commands::ca::run(command, session),
        Command::Config(command) => commands::settings::run(command, session),
        Command::Repl(args) => commands::repl::run(args, session),
        alone => commands::alone(alone, session.settings, session.output),
    }
}
