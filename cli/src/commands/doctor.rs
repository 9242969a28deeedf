//! `spotmux doctor`: looks for what would keep the cluster from working.

use serde_json::json;

use crate::args::DoctorArgs;
use crate::cluster_file;
use crate::control::Control;
use crate::exit::{Exit, Failure};
use crate::health::{self, Check, Verdict};
use crate::render::Output;
use crate::session::Session;

/// Runs the command: 1 when something fails.
pub(crate) fn run(args: &DoctorArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
    // Nobody there is no failure: the ports are looked at instead.
    let control = session.connect(&args.cluster).ok();
    let control = control.as_deref().map(|control| control as &dyn Control);
    let checks = health::all(&loaded, session.settings, control);
    show(&checks, session.output)?;
    Ok(match health::worst(&checks) {
        Verdict::Fail => Exit::Internal,
        Verdict::Ok | Verdict::Warn => Exit::Done,
    })
}

/// Shows checks, a line each.
pub(crate) fn show(checks: &[Check], output: &Output) -> Result<(), Failure> {
    let told = json!({ "ok": health::worst(checks) < Verdict::Fail, "checks": checks });
    Ok(output.result(&told, &health::table(checks))?)
}
