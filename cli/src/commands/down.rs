//! `spotmux down`: ends the cluster that `spotmux up` started, or what is left of it.

use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;
use shared::process::Process;

use crate::args::DownArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure};
use crate::local::cluster::{COORDINATOR, Line};
use crate::local::kept::Kept;
use crate::local::state::State;
use crate::session::Session;

/// How long the one who watches may take for an end in order.
const ORDERLY: Duration = Duration::from_secs(90);
/// How long a process may take that nobody watches.
const LEFTOVER: Duration = Duration::from_secs(20);
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
    if let Some(watcher) = watcher {
        watcher.terminate();
        if !unwatched(&state) {
            session.output.note("it takes long: ending it at once");
            watcher.terminate();
            if !unwatched(&state) {
                watcher.kill();
            }
        }
    }
    if state.living().iter().any(|(name, _)| name == COORDINATOR) {
        // Nobody watches: it is asked from here for an end in order.
        Line::new(&loaded).ask_end();
        gone(&state);
    }
    let stubborn = end(&state);
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

/// Waits for the end of the one who watches, but not for ever.
fn unwatched(state: &State) -> bool {
    let (tell, told) = channel();
    let state = state.clone();
    std::thread::spawn(move || {
        // Nobody may hear any more.
        let _ = tell.send(state.until_unwatched());
    });
    matches!(told.recv_timeout(ORDERLY), Ok(Ok(())))
}

/// Ends processes that are left; by force what does not obey. What is left then.
fn end(state: &State) -> Vec<(String, Process)> {
    for force in [false, true] {
        for (_, process) in state.living() {
            if force {
                process.kill()
            } else {
                process.terminate()
            }
        }
        if gone(state) {
            return Vec::new();
        }
    }
    state.living()
}

/// Waits until none lives; nothing tells the end of a process that is not ours.
fn gone(state: &State) -> bool {
    let (_keep, silence) = channel::<()>();
    for _ in 0..LEFTOVER.as_millis() / LOOK.as_millis() {
        if state.living().is_empty() {
            return true;
        }
        // Never told: only waits.
        let _ = silence.recv_timeout(LOOK);
    }
    state.living().is_empty()
}
