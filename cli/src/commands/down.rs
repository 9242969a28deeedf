//! `spotmux down`: ends the cluster that `spotmux up` started, or what is left of it.

use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;
use shared::process::Process;
use shared::units::Micros;

use crate::args::DownArgs;
use crate::cluster_file;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::local::cluster::{COORDINATOR, Line};
use crate::local::kept::Kept;
use crate::local::machines;
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
        let mut message = format!("no cluster of {} is up", loaded.path.display());
        if let Some(why) = state.ended_alone() {
            message = format!("{message}; {why}");
        }
        session
            .output
            .result(&json!({ "event": "ended", "processes": 0 }), &message)?;
        return Ok(Exit::Done);
    }
    let name = &loaded.config.cluster.name;
    let interrupt = Interrupt::listen()?;
    interrupt.silently();
    if !args.consent.yes
        && !session.output.json()
        && !session.asker.agrees(
            &format!("End cluster {name}? Training stops; it goes on at the next start."),
            &interrupt,
        )
    {
        return Err(Failure::new(Exit::Interrupted, "nothing was done"));
    }
    let count = left.len();
    let patience = Patience::default();
    let orderly = lasting(patience.whole_end());
    if let Some(watcher) = watcher {
        watcher.terminate();
        if !unwatched(&state, orderly, &interrupt)? {
            session.output.note("it takes long: ending it at once");
            watcher.terminate();
            if !unwatched(&state, orderly, &interrupt)? {
                watcher.kill();
            }
        }
    }
    if state.living().iter().any(|(name, _)| name == COORDINATOR) {
        // Nobody watches: it is asked from here for an end in order.
        Line::new(&loaded, &interrupt).ask_end();
        gone(&state, lasting(patience.saving), &interrupt)?;
    }
    let stubborn = end(&state, lasting(patience.end), &interrupt)?;
    if !stubborn.is_empty() {
        let names: Vec<String> = stubborn
            .iter()
            .map(|(name, process)| format!("{name} (process {})", process.id))
            .collect();
        let message = format!("these do not end: {}", names.join(", "));
        return Err(Failure::new(Exit::Internal, message));
    }
    state.forget_watcher();
    let kept = Kept::read(&loaded)?;
    let machines = machines::open(&loaded);
    let told = json!({
        "event": "ended", "processes": count, "jobs": kept.told(), "machines": machines.told(),
    });
    let text = format!(
        "cluster {name} has ended; {}\n{}",
        kept.sentence(),
        kept.table()
    );
    session.output.result(&told, text.trim_end())?;
    machines.say(session.output);
    Ok(kept.exit())
}

fn lasting(time: Micros) -> Duration {
    Duration::from_micros(time.0)
}

/// The user wants no more of the wait: what was asked for stays asked for.
fn still_waits(interrupt: &Interrupt) -> Result<(), Failure> {
    if !interrupt.asked() {
        return Ok(());
    }
    let message = "interrupted; the cluster goes on ending";
    Err(Failure::new(Exit::Interrupted, message).hint("spotmux down waits for it again"))
}

/// Waits for the end of the one who watches, but not longer than an end in order takes.
///
/// # Errors
/// [`Exit::Interrupted`].
fn unwatched(state: &State, orderly: Duration, interrupt: &Interrupt) -> Result<bool, Failure> {
    let (tell, told) = channel();
    let state = state.clone();
    std::thread::spawn(move || {
        // Nobody may hear any more.
        let _ = tell.send(state.until_unwatched());
    });
    for _ in 0..looks(orderly) {
        match told.recv_timeout(LOOK) {
            Ok(ended) => return Ok(ended.is_ok()),
            Err(_) => still_waits(interrupt)?,
        }
    }
    Ok(false)
}

fn looks(patience: Duration) -> u128 {
    patience.as_millis() / LOOK.as_millis()
}

/// Ends processes that are left; by force what does not obey. What is left then.
///
/// # Errors
/// [`Exit::Interrupted`].
fn end(
    state: &State,
    patience: Duration,
    interrupt: &Interrupt,
) -> Result<Vec<(String, Process)>, Failure> {
    for force in [false, true] {
        for (_, process) in state.living() {
            if force {
                process.kill()
            } else {
                process.terminate()
            }
        }
        if gone(state, patience, interrupt)? {
            return Ok(Vec::new());
        }
    }
    Ok(state.living())
}

/// Waits until none lives, for so long; nothing tells the end of a process that is not ours.
///
/// # Errors
/// [`Exit::Interrupted`].
fn gone(state: &State, patience: Duration, interrupt: &Interrupt) -> Result<bool, Failure> {
    let (_keep, silence) = channel::<()>();
    for _ in 0..looks(patience) {
        if state.living().is_empty() {
            return Ok(true);
        }
        still_waits(interrupt)?;
        // Never told: only waits.
        let _ = silence.recv_timeout(LOOK);
    }
    Ok(state.living().is_empty())
}
