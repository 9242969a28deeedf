//! `spotmux coordinator`: the process that decides.

use crate::args::CoordinatorArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure, OrExit};
use crate::process;
use crate::settings::Settings;

/// Runs the command until the cluster is shut down or the process is asked to end.
pub(crate) fn run(args: &CoordinatorArgs, settings: &Settings) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&args.cluster, settings)?;
    crate::log_to_stderr(Some(
        settings
            .log
            .as_ref()
            .unwrap_or(&loaded.config.telemetry.log),
    ));
    let told = process::coordinator(&loaded, settings)?;
    coordinator::actor::run(told, process::asked_to_end()).or_exit(Exit::Internal)?;
    Ok(Exit::Done)
}
