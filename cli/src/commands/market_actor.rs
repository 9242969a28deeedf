//! `spotmux market-actor`: the process that holds machines for a cluster.

use crate::args::MarketActorArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure, OrExit};
use crate::process;
use crate::settings::Settings;

/// Runs the command until the system asks the process to end; machines stay as they are.
pub(crate) fn run(args: &MarketActorArgs, settings: &Settings) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&args.cluster, settings)?;
    crate::log_to_stderr(Some(
        settings
            .log
            .as_ref()
            .unwrap_or(&loaded.config.telemetry.log),
    ));
    let told = process::market::market(&loaded, &args.cluster.set, settings)?;
    market_actor::actor::run(told, process::asked_to_end()).or_exit(Exit::Internal)?;
    Ok(Exit::Done)
}
