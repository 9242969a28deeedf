//! `spotmux gpu-actor`: a node that holds a stage of the backbone.

use crate::args::GpuActorArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure, OrExit};
use crate::process;
use crate::settings::Settings;

/// Runs the command until the coordinator tells the node to stop, or the system asked it to end and its time is over.
pub(crate) fn run(args: &GpuActorArgs, settings: &Settings) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&args.cluster, settings)?;
    crate::log_to_stderr(Some(
        settings
            .log
            .as_ref()
            .unwrap_or(&loaded.config.telemetry.log),
    ));
    let told = process::node(&loaded, &args.name, settings)?;
    let section = &loaded.config.gpu_actor;
    let (risks, risk) = tokio::sync::watch::channel(None);
    let leave = process::asked_to_leave(section.leave(), section.cloud, risks);
    let credential = told.credential.clone();
    let ended = gpu_actor::actor::run(told, leave, risk).or_exit(Exit::Internal);
    ended.map_err(|failure| match credential.exists() {
        true => failure,
        false => failure.hint(format!(
            "spotmux ca issue {} makes it where the authority is; elsewhere spotmux join gets it by a token",
            args.name
        )),
    })?;
    Ok(Exit::Done)
}
