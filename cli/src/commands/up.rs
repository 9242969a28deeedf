//! `spotmux up`: a cluster of processes on this machine.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::Context;
use serde_json::{Value, json};
use shared::units::Micros;

use crate::args::{ClusterArgs, UpArgs};
use crate::cluster_file;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::local::cluster::{self, Line, Serving};
use crate::local::family::{self, Around};
use crate::local::kept::Kept;
use crate::local::state::State;
use crate::local::watch::Patience;
use crate::render::Output;
use crate::security::{self, State as Made};
use crate::session::Session;

/// Runs the command. Nothing is started when anything is known to be wrong.
pub(crate) fn run(args: &UpArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let named = session.cluster(&args.cluster);
    let loaded = cluster_file::load(&named, session.settings)?;
    let state = State::of(&loaded);
    let watcher = state.watch()?;
    cluster::check(&loaded, session.settings)?;
    if args.detach {
        drop(watcher);
        return detached(args, &named, &state, session.output);
    }
    let made = security::ensure(&loaded)?;
    let fresh = made
        .iter()
        .filter(|(_, state)| *state != Made::Kept)
        .count();
    if fresh > 0 {
        session.output.note(format!("made {fresh} certificates"));
    }
    let program = std::env::current_exe()
        .context("cannot find the program itself")
        .or_exit(Exit::Internal)?;
    let members = cluster::members(&loaded, &named.set, &[], &program);
    let patience = Patience {
        ready: Micros::of_millis(args.patience.saturating_mul(1000)),
        ..Patience::default()
    };
    let interrupt = Interrupt::listen()?;
    interrupt.silently();
    session.output.note(format!(
        "starting {} processes; logs: {}",
        members.len(),
        state.log("*").display()
    ));
    let mut around = Told {
        line: Line::new(&loaded, &interrupt),
        output: session.output,
        waits: (String::new(), 0),
        note: None,
    };
    let ended = family::run(&members, &state, patience, &interrupt, &mut around);
    let kept = Kept::read(&loaded);
    if let Err(failure) = ended {
        watcher.ends_alone();
        return Err(match kept {
            Ok(kept) if kept.is_empty() => failure,
            Ok(kept) => failure.hint(kept.sentence()),
            Err(unknown) => failure.hint(unknown.message()),
        });
    }
    let kept = kept?;
    session.output.result(
        &json!({ "event": "ended", "jobs": kept.told() }),
        format!(
            "the cluster has ended; {}\n{}",
            kept.sentence(),
            kept.table()
        )
        .trim_end(),
    )?;
    Ok(kept.exit())
}

/// Looks after which it is told what the cluster still waits for.
const LOOKS: u32 = 15;

/// The cluster while it runs.
struct Told<'a> {
    line: Line<'a>,
    output: &'a Output,
    /// What is missing, and for how many looks in a row.
    waits: (String, u32),
    /// What is to be known of a cluster that is ready.
    note: Option<String>,
}

impl Told<'_> {
    /// Says what keeps the cluster from being ready, once it does so for a while.
    fn wait_for(&mut self, why: &str) {
        if self.waits.0 != why {
            self.waits = (why.to_owned(), 0);
        }
        self.waits.1 += 1;
        if self.waits.1 == LOOKS {
            self.output.note(format!("it waits: {why}"));
        }
    }
}

impl Around for Told<'_> {
    fn is_ready(&mut self) -> Result<bool, Failure> {
        match self.line.serves()? {
            Serving::Ready(note) => {
                self.note = note;
                Ok(true)
            }
            Serving::Waits(why) => {
                self.wait_for(&why);
                Err(Failure::new(Exit::Unreachable, why))
            }
        }
    }

    fn ends(&mut self) {
        self.output
            .note("ending the cluster; press Ctrl-C again to end it at once");
    }

    fn ask_end(&mut self) -> bool {
        self.line.ask_end()
    }

    fn ready(&mut self, processes: &[(String, u32)]) {
        let listed: Vec<Value> = processes
            .iter()
            .map(|(name, id)| json!({ "name": name, "process": id }))
            .collect();
        self.output
            .event(&json!({ "event": "ready", "processes": listed, "note": self.note }));
        let names: Vec<&str> = processes.iter().map(|(name, _)| name.as_str()).collect();
        self.output.note(format!("ready: {}", names.join(", ")));
        if let Some(note) = &self.note {
            self.output.note(format!("note: {note}"));
        }
        self.output.next(&[
            "spotmux status".into(),
            "spotmux submit jobs.toml --wait".into(),
        ]);
    }

    fn restarted(&mut self, name: &str, times: usize, words: &str) {
        self.output
            .event(&json!({ "event": "restarted", "name": name, "times": times, "words": words }));
        self.output.note(format!(
            "{name} ended and is started again ({times}): {words}"
        ));
    }
}

/// The failure of a process of this program, by its last line, with its number and hints.
fn told_by_child(told: &Value) -> Failure {
    let exit = told["exit_code"].as_u64().and_then(Exit::of_code);
    let message = told["message"].as_str().unwrap_or("it did not say why");
    let hints = told["hints"].as_array().into_iter().flatten();
    hints.filter_map(Value::as_str).fold(
        Failure::new(exit.unwrap_or(Exit::Internal), message),
        Failure::hint,
    )
}

/// Starts the one who watches as a process of its own, and waits until it says how it went.
fn detached(
    args: &UpArgs,
    cluster: &ClusterArgs,
    state: &State,
    output: &Output,
) -> Result<Exit, Failure> {
    let path = state.log("up");
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))
        .or_exit(Exit::Internal)?;
    let program = std::env::current_exe()
        .context("cannot find the program itself")
        .or_exit(Exit::Internal)?;
    let mut command = Command::new(program);
    command
        .arg("--json")
        .arg("up")
        .arg("--patience")
        .arg(args.patience.to_string());
    if let Some(config) = &cluster.config {
        command.arg("--config").arg(config);
    }
    for set in &cluster.set {
        command.arg("--set").arg(set);
    }
    let mut started = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("cannot start the cluster")
        .or_exit(Exit::Internal)?;
    let lines = started.stdout.take().map(BufReader::new);
    for line in lines.into_iter().flat_map(BufRead::lines) {
        let told: Value = serde_json::from_str(&line?).unwrap_or_default();
        match told["event"].as_str() {
            Some("ready") => {
                let note = told["note"].as_str();
                let text = note.map_or_else(String::new, |note| format!("; note: {note}"));
                output.result(&told, &format!("the cluster is ready{text}"))?;
                output.next(&["spotmux status".into(), "spotmux down".into()]);
                return Ok(Exit::Done);
            }
            Some("error") => {
                return Err(told_by_child(&told));
            }
            _ => {}
        }
    }
    let message = format!(
        "the cluster ended before it was ready; its log: {}",
        path.display()
    );
    Err(Failure::new(Exit::Internal, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_process_of_its_own_says_is_said_again_with_its_number_and_hints() {
        let told = json!({ "event": "error", "exit_code": 7, "message": "late", "hints": ["wait", "look"] });
        let failure = told_by_child(&told);
        assert_eq!(
            (failure.exit, failure.message().as_str()),
            (Exit::Unreachable, "late")
        );
        assert_eq!(failure.hints, ["wait", "look"]);
        for odd in [json!({}), json!({ "exit_code": 99, "hints": "none" })] {
            let failure = told_by_child(&odd);
            assert_eq!((failure.exit, failure.hints.len()), (Exit::Internal, 0));
        }
    }
}
