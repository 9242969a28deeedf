//! The cluster that the processes make: what must hold before it starts, who they are, whether it serves.

use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use shared::config::load::Loaded;
use shared::wire::request::{Reply, Request};
use shared::wire::view::{ClusterView, NodeHealth};

use super::family::Member;
use crate::commands::doctor;
use crate::control::quic::Quic;
use crate::control::{Control, unfitting};
use crate::exit::{Exit, Failure};
use crate::health::{self, Verdict};
use crate::interrupt::Interrupt;
use crate::settings::Settings;

/// Refuses what cannot start: no node, a port that is taken, a model that is absent.
///
/// # Errors
/// [`Exit::BadInput`] with all that is known to be wrong.
pub(crate) fn check(loaded: &Loaded, settings: &Settings) -> Result<(), Failure> {
    let checks = health::before_start(loaded, settings);
    if health::worst(&checks) != Verdict::Fail {
        return Ok(());
    }
    let failed: Vec<_> = checks
        .into_iter()
        .filter(|check| check.verdict == Verdict::Fail)
        .collect();
    let message = format!("the cluster cannot start:\n{}", doctor::table(&failed));
    Err(Failure::new(Exit::BadInput, message.trim_end()).hint("nothing was started"))
}

/// The processes: the coordinator first. All are told the same settings, and none hears the variables `unset`.
pub(crate) fn members(
    loaded: &Loaded,
    set: &[String],
    unset: &[String],
    program: &Path,
) -> Vec<Member> {
    let mut options: Vec<OsString> = vec!["--config".into(), loaded.path.clone().into()];
    for set in set {
        options.extend(["--set".into(), set.into()]);
    }
    let member = |name: &str, words: &[&str]| {
        let mut arguments: Vec<OsString> = words.iter().map(Into::into).collect();
        arguments.extend(options.iter().cloned());
        Member {
            name: name.into(),
            program: program.to_path_buf(),
            arguments,
            unset: unset.to_vec(),
        }
    };
    let nodes = loaded.config.node.iter().map(|node| {
        let name = node.name.as_str();
        member(name, &["gpu-actor", "--name", name])
    });
    let market = loaded.config.market.runs();
    let market = market.then(|| member("market-actor", &["market-actor"]));
    std::iter::once(member("coordinator", &["coordinator"]))
        .chain(nodes)
        .chain(market)
        .collect()
}

/// The line to the coordinator of a cluster that is being watched; opened when it is needed.
pub(crate) struct Line<'a> {
    loaded: &'a Loaded,
    control: Option<Rc<Quic>>,
}

impl<'a> Line<'a> {
    /// A line that is not open yet.
    pub(crate) fn new(loaded: &'a Loaded) -> Self {
        Self {
            loaded,
            control: None,
        }
    }

    fn open(&mut self) -> Result<Rc<Quic>, Failure> {
        if let Some(control) = &self.control {
            return Ok(Rc::clone(control));
        }
        let control = Rc::new(Quic::connect(self.loaded, &Interrupt::default())?);
        self.control = Some(Rc::clone(&control));
        Ok(control)
    }

    /// Passes when the cluster serves.
    ///
    /// # Errors
    /// [`Exit::Unreachable`] with what is missing.
    pub(crate) fn serves(&mut self) -> Result<(), Failure> {
        let status = match self.open()?.request(&Request::Status) {
            Ok(Reply::Cluster(cluster)) => cluster,
            Ok(other) => return Err(unfitting(&other)),
            Err(failure) => {
                self.control = None;
                return Err(failure);
            }
        };
        serves(&status, self.loaded).map_err(|missing| Failure::new(Exit::Unreachable, missing))
    }

    /// Asks the coordinator to end the cluster in order; who does not answer is ended by signals.
    pub(crate) fn ask_end(&mut self) {
        let _ = self
            .open()
            .and_then(|control| control.request(&Request::Shutdown));
        self.control = None;
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
    // A market's machines come with the work.
    let placed_later = loaded.config.market.runs();
    if (placed < wanted && !placed_later) || status.moving.is_some() {
        return Err(format!("{placed} of {wanted} replicas are placed"));
    }
    Ok(())
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
        let set = ["plan.stages=1".to_owned()];
        let members = members(&loaded, &set, &[], Path::new("spotmux"));
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
