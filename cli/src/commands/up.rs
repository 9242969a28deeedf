//! `spotmux up`: a cluster of processes on this machine.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::Context;
use serde_json::{Value, json};
use shared::config::load::Loaded;
use shared::units::Micros;
use shared::wire::request::{Reply, Request};
use shared::wire::view::{ClusterView, NodeHealth};

use super::doctor;
use crate::args::{ClusterArgs, UpArgs};
use crate::cluster_file;
use crate::control::Control;
use crate::control::quic::Quic;
use crate::exit::{Exit, Failure, OrExit};
use crate::health::{self, Verdict};
use crate::interrupt::Interrupt;
use crate::local::family::{self, Around, Member};
use crate::local::state::State;
use crate::local::watch::Patience;
use crate::render::Output;
use crate::security::{self, State as Made};
use crate::session::Session;

/// Runs the command. Nothing is started when anything is known to be wrong.
pub(crate) fn run(args: &UpArgs, session: &Session<'_>) -> Result<Exit, Failure> {
    let cluster = session.cluster(&args.cluster);
    let loaded = cluster_file::load(&cluster, session.settings)?;
    if loaded.config.node.is_empty() {
        let message = format!(
            "{} lists no node: add a [[node]] table",
            loaded.path.display()
        );
        return Err(Failure::new(Exit::BadInput, message));
    }
    let state = State::of(&loaded);
    let watcher = state.watch()?;
    let checks = health::before_start(&loaded, session.settings);
    if health::worst(&checks) == Verdict::Fail {
        let failed: Vec<_> = checks
            .into_iter()
            .filter(|check| check.verdict == Verdict::Fail)
            .collect();
        let message = format!("the cluster cannot start:\n{}", doctor::table(&failed));
        return Err(Failure::new(Exit::BadInput, message.trim_end()).hint("nothing was started"));
    }
    if args.detach {
        drop(watcher);
        return detached(args, &cluster, &state, session.output);
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
    let members = members(&loaded, &cluster, &program);
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
    let mut around = Cluster {
        loaded: &loaded,
        output: session.output,
        control: None,
    };
    family::run(&members, &state, patience, &interrupt, &mut around)?;
    session.output.result(
        &json!({ "event": "ended" }),
        "the cluster has ended; what was trained is durable",
    )?;
    Ok(Exit::Done)
}

/// The processes: the coordinator first.
fn members(loaded: &Loaded, cluster: &ClusterArgs, program: &Path) -> Vec<Member> {
    let mut options: Vec<OsString> = vec!["--config".into(), loaded.path.clone().into()];
    for set in &cluster.set {
        options.extend(["--set".into(), set.into()]);
    }
    let member = |name: &str, words: &[&str]| {
        let mut arguments: Vec<OsString> = words.iter().map(Into::into).collect();
        arguments.extend(options.iter().cloned());
        Member {
            name: name.into(),
            program: program.to_path_buf(),
            arguments,
        }
    };
    let nodes = loaded.config.node.iter().map(|node| {
        let name = node.name.as_str();
        member(name, &["gpu-actor", "--name", name])
    });
    std::iter::once(member("coordinator", &["coordinator"]))
        .chain(nodes)
        .collect()
}

/// The cluster while it runs.
struct Cluster<'a> {
    loaded: &'a Loaded,
    output: &'a Output,
    control: Option<Rc<Quic>>,
}

impl Cluster<'_> {
    fn status(&mut self) -> Result<ClusterView, Failure> {
        let control = match &self.control {
            Some(control) => Rc::clone(control),
            None => {
                let control = Rc::new(Quic::connect(self.loaded, &Interrupt::default())?);
                self.control = Some(Rc::clone(&control));
                control
            }
        };
        match control.request(&Request::Status) {
            Ok(Reply::Cluster(cluster)) => Ok(cluster),
            Ok(other) => Err(crate::control::unfitting(&other)),
            Err(failure) => {
                self.control = None;
                Err(failure)
            }
        }
    }
}

impl Around for Cluster<'_> {
    fn is_ready(&mut self) -> Result<bool, Failure> {
        let status = self.status()?;
        serves(&status, self.loaded).map_err(|missing| Failure::new(Exit::Unreachable, missing))?;
        Ok(true)
    }

    fn ask_end(&mut self) {
        self.output
            .note("ending the cluster; press Ctrl-C again to end it at once");
        let control = match self.control.take() {
            Some(control) => Ok(control),
            None => Quic::connect(self.loaded, &Interrupt::default()).map(Rc::new),
        };
        // Who does not answer is ended by signals.
        let _ = control.and_then(|control| control.request(&Request::Shutdown));
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

/// Whether the plan is in force and every listed node lives; else what is missing.
fn serves(status: &ClusterView, loaded: &Loaded) -> Result<(), String> {
    let alive = |name: &str| {
        let mut nodes = status.nodes.iter();
        nodes.any(|node| node.name.as_str() == name && node.health != NodeHealth::Lost)
    };
    let names = loaded.config.node.iter().map(|node| node.name.as_str());
    let missing: Vec<&str> = names.filter(|name| !alive(name)).collect();
    if !missing.is_empty() {
        return Err(format!("not heard of: {}", missing.join(", ")));
    }
    let (placed, wanted) = (
        status.plan.replicas.len() as u64,
        loaded.config.plan.replicas,
    );
    if placed < wanted || status.moving.is_some() {
        return Err(format!("{placed} of {wanted} replicas are placed"));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::shown::samples;

    fn loaded(folder: &Path, text: &str) -> Loaded {
        let path = folder.join("cluster.toml");
        std::fs::write(&path, text).unwrap();
        shared::config::load::load(&path, [], &[]).unwrap()
    }

    const NODES: &str = "\
[[node]]
name = 'n1'
listen = '127.0.0.1:1'
[[node]]
name = 'n2'
listen = '127.0.0.1:2'
";

    #[test]
    fn every_process_is_told_the_same_settings() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = loaded(folder.path(), NODES);
        let cluster = ClusterArgs {
            config: None,
            set: vec!["plan.stages=1".into()],
        };
        let members = members(&loaded, &cluster, Path::new("spotmux"));
        let words: Vec<String> = members
            .iter()
            .map(|member| {
                member
                    .arguments
                    .join(OsString::from(" ").as_os_str())
                    .into_string()
                    .unwrap()
            })
            .collect();
        let path = loaded.path.display();
        assert_eq!(
            words[0],
            format!("coordinator --config {path} --set plan.stages=1")
        );
        assert_eq!(
            words[2],
            format!("gpu-actor --name n2 --config {path} --set plan.stages=1")
        );
    }

    #[test]
    fn it_serves_when_all_nodes_live_and_all_replicas_are_placed() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = loaded(folder.path(), NODES);
        let mut status = samples::cluster();
        assert_eq!(serves(&status, &loaded), Err("not heard of: n2".into()));
        status.nodes[1].health = NodeHealth::Alive;
        assert_eq!(
            serves(&status, &loaded),
            Err("1 of 1 replicas are placed".into())
        );
        status.moving = None;
        assert_eq!(serves(&status, &loaded), Ok(()));
        status.plan.replicas.clear();
        assert_eq!(
            serves(&status, &loaded),
            Err("0 of 1 replicas are placed".into())
        );
    }
}
