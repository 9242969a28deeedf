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
use crate::local::cluster::{self, Line};
use crate::local::family::{self, Around};
use crate::local::state::State;
use crate::local::watch::Patience;
use crate::render::Output;
use crate::security::{self, State as Made};
use crate::session::Session;

/// Runs the command. Nothing is started when anything is known to be wrong.
pub(crate) fn run(args: &UpArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let named = session.cluster(&args.cluster);
    let loaded = cluster_file::load(&named, session.settings)?;
    if loaded.config.node.is_empty() && !loaded.config.market.runs() {
        let message = format!(
            "{} lists no node: add a [[node]] table, or name a market.provider",
            loaded.path.display()
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
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
        line: Line::new(&loaded),
        output: session.output,
    };
    family::run(&members, &state, patience, &interrupt, &mut around)?;
    session.output.result(
        &json!({ "event": "ended" }),
        "the cluster has ended; what was trained is durable",
    )?;
    Ok(Exit::Done)
}

/// The cluster while it runs.
struct Told<'a> {
    line: Line<'a>,
    output: &'a Output,
}

impl Around for Told<'_> {
    fn is_ready(&mut self) -> Result<bool, Failure> {
        self.line.serves().map(|()| true)
    }

    fn ask_end(&mut self) {
        self.output
            .note("ending the cluster; press Ctrl-C again to end it at once");
        self.line.ask_end();
    }

    fn ready(&mut self, processes: &[(String, u32)]) {
        let listed: Vec<Value> = processes
            .iter()
            .map(|(name, id)| json!({ "name": name, "process": id }))
            .collect();
        self.output
            .event(&json!({ "event": "ready", "processes": listed }));
        let names: Vec<&str> = processes.iter().map(|(name, _)| name.as_str()).collect();
        self.output.note(format!("ready: {}", names.join(", ")));
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
                output.result(&told, "the cluster is ready")?;
                output.next(&["spotmux status".into(), "spotmux down".into()]);
                return Ok(Exit::Done);
            }
            Some("error") => {
                let message = told["message"]
                    .as_str()
                    .unwrap_or("it did not say why")
                    .to_owned();
                return Err(Failure::new(Exit::Internal, message));
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
