//! `spotmux down`: ends the cluster that `spotmux up` started, or what is left of it.

use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;
use shared::process::Process;
use shared::units::Micros;

use crate::args::DownArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure};
use crate::local::cluster::{COORDINATOR, Line};
use crate::local::kept::Kept;
use crate::local::state::State;
use crate::local::watch::Patience;
use crate::session::Session;

/// How often it is looked whether they live.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the command.
pub(crate) fn run(args: &DownArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let loaded = cluster_file::load(&session.cluster(&args.cluster), session.settings)?;
    let state = State::of(&loaded);
    let (watcher, left) = (state.watcher(), state.living());
    if watcher.is_none() && left.is_empty() {
        let message = format!("no cluster of {} is up", loaded.path.display());
        session
            .output
            .result(&json!({ "event": "ended", "processes": 0 }), &message)?;
        return Ok(Exit::Done);
    }
    let name = &loaded.config.cluster.name;
    if !args.consent.yes
        && !session.output.json()
        && !session.asker.agrees(&format!(
            "End cluster {name}? Training stops; it goes on at the next start."
        ))
    {
        return Err(Failure::new(Exit::Interrupted, "nothing was done"));
    }
    let count = left.len();
    let patience = Patience::default();
    let orderly = lasting(patience.whole_end());
    if let Some(watcher) = watcher {
        watcher.terminate();
        if !unwatched(&state, orderly) {
            session.output.note("it takes long: ending it at once");
            watcher.terminate();
            if !unwatched(&state, orderly) {
                watcher.kill();
            }
        }
    }
    if state.living().iter().any(|(name, _)| name == COORDINATOR) {
        // Nobody watches: it is asked from here for an end in order.
        Line::new(&loaded).ask_end();
        gone(&state, lasting(patience.saving));
    }
    let stubborn = end(&state, lasting(patience.end));
    if !stubborn.is_empty() {
        let names: Vec<String> = stubborn
            .iter()
            .map(|(name, process)| format!("{name} (process {})", process.id))
            .collect();
        let message = format!("these do not end: {}", names.join(", "));
        return Err(Failure::new(Exit::Internal, message));
    }
    let kept = Kept::read(&loaded)?;
    let told = json!({ "event": "ended", "processes": count, "jobs": kept.told() });
    let text = format!(
        "cluster {name} has ended; {}\n{}",
        kept.sentence(),
        kept.table()
    );
    session.output.result(&told, text.trim_end())?;
    Ok(kept.exit())
}

fn lasting(time: Micros) -> Duration {
    Duration::from_micros(time.0)
}

/// Waits for the end of the one who watches, but not longer than an end in order takes.
fn unwatched(state: &State, orderly: Duration) -> bool {
    let (tell, told) = channel();
    let state = state.clone();
    std::thread::spawn(move || {
        // Nobody may hear any more.
        let _ = tell.send(state.until_unwatched());
    });
    matches!(told.recv_timeout(orderly), Ok(Ok(())))
}

/// Ends processes that are left; by force what does not obey. What is left then.
fn end(state: &State, patience: Duration) -> Vec<(String, Process)> {
    for force in [false, true] {
        for (_, process) in state.living() {
            if force {
                process.kill()
            } else {
                process.terminate()
            }
        }
        if gone(state, patience) {
            return Vec::new();
        }
    }
    state.living()
}

/// Waits until none lives, for so long; nothing tells the end of a process that is not ours.
fn gone(state: &State, patience: Duration) -> bool {
    let (_keep, silence) = channel::<()>();
    for _ in 0..patience.as_millis() / LOOK.as_millis() {
        if state.living().is_empty() {
            return true;
        }
        // Never told: only waits.
        let _ = silence.recv_timeout(LOOK);
    }
    state.living().is_empty()
}
