//! The cluster that the processes make: what must hold before it starts, who they are, whether it serves.

use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;

use shared::config::load::Loaded;
use shared::wire::request::{Reply, Request};
use shared::wire::view::{ClusterView, NodeHealth};

use super::family::Member;
use crate::control::quic::{PATIENCE, Quic};
use crate::control::{Control, unfitting};
use crate::exit::{Exit, Failure};
use crate::health::{self, Check, Verdict};
use crate::interrupt::Interrupt;
use crate::settings::Settings;

/// Name of the coordinator's process.
pub(crate) const COORDINATOR: &str = "coordinator";

/// Refuses what cannot start: all that one of the processes would end for, and a port that is taken.
///
/// # Errors
/// [`Exit::BadInput`] with all that is known to be wrong.
pub(crate) fn check(loaded: &Loaded, settings: &Settings) -> Result<(), Failure> {
    refuse(health::before_start(loaded, settings))
}

/// Refuses what failed.
///
/// # Errors
/// [`Exit::BadInput`] with all of it.
pub(crate) fn refuse(checks: Vec<Check>) -> Result<(), Failure> {
    if health::worst(&checks) != Verdict::Fail {
        return Ok(());
    }
    let failed: Vec<_> = checks
        .into_iter()
        .filter(|check| check.verdict == Verdict::Fail)
        .collect();
    let message = format!("the cluster cannot start:\n{}", health::table(&failed));
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
    std::iter::once(member(COORDINATOR, &["coordinator"]))
        .chain(nodes)
        .chain(market)
        .collect()
}

/// The line to the coordinator of a cluster that is being watched; opened when it is needed. Who watches has more to look
/// at: it waits for no answer longer than [`PATIENCE`], and not when the user has another wish meanwhile.
pub(crate) struct Line<'a> {
    loaded: &'a Loaded,
    interrupt: &'a Interrupt,
    control: Option<Rc<Quic>>,
}

impl<'a> Line<'a> {
    /// A line that is not open yet.
    pub(crate) fn new(loaded: &'a Loaded, interrupt: &'a Interrupt) -> Self {
        Self {
            loaded,
            interrupt,
            control: None,
        }
    }

    fn open(&mut self) -> Result<Rc<Quic>, Failure> {
        if let Some(control) = &self.control {
            return Ok(Rc::clone(control));
        }
        let control = connect(self.loaded, self.interrupt)?;
        self.control = Some(Rc::clone(&control));
        Ok(control)
    }

    /// Whether the cluster serves.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub(crate) fn serves(&mut self) -> Result<Serving, Failure> {
        let status = match self.open()?.request(&Request::Status) {
            Ok(Reply::Cluster(cluster)) => cluster,
            Ok(other) => return Err(unfitting(&other)),
            Err(failure) => {
                self.control = None;
                return Err(failure);
            }
        };
        Ok(serves(&status, self.loaded))
    }

    /// Asks the coordinator to end the cluster in order; whether it heard. Who does not is ended by signals.
    pub(crate) fn ask_end(&mut self) -> bool {
        let (loaded, interrupt) = (self.loaded, self.interrupt);
        heard(self.control.take(), || connect(loaded, interrupt))
    }
}

fn connect(loaded: &Loaded, interrupt: &Interrupt) -> Result<Rc<Quic>, Failure> {
    let control = Quic::connect(loaded, interrupt)?;
    Ok(Rc::new(control.answering_within(PATIENCE)))
}

/// Whether a coordinator heard that the cluster shall end. A line that was held may be one to a coordinator that is no
/// more: the one of now is asked on a line of its own.
fn heard<C: Control>(held: Option<Rc<C>>, open: impl FnOnce() -> Result<Rc<C>, Failure>) -> bool {
    let hears = |line: Rc<C>| match line.request(&Request::Shutdown) {
        Ok(_) => true,
        Err(failure) => failure.exit != Exit::Unreachable,
    };
    held.is_some_and(hears) || open().is_ok_and(hears)
}

/// Whether a cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// It does; what its operator should know.
    Ready(Option<String>),
    /// What is missing.
    Waits(String),
}

/// Whether the plan is in force and every listed node lives. A node that its operator drained gets no work however long
/// one waits: a cluster that has no other place for its layers serves all the same, and says what gives it back.
fn serves(status: &ClusterView, loaded: &Loaded) -> Serving {
    let alive = |name: &str| {
        let mut nodes = status.nodes.iter();
        nodes.any(|node| node.name.as_str() == name && node.health.is_here())
    };
    let names = loaded.config.node.iter().map(|node| node.name.as_str());
    let missing: Vec<&str> = names.filter(|name| !alive(name)).collect();
    if !missing.is_empty() {
        return Serving::Waits(format!("not heard of: {}", missing.join(", ")));
    }
    let (placed, wanted) = (
        status.plan.replicas.len() as u64,
        loaded.config.plan.replicas,
    );
    let draining = status.nodes.iter();
    let draining = draining.filter(|node| node.health == NodeHealth::Draining);
    let draining: Vec<String> = draining
        .map(|node| format!("spotmux drain {} --undo", node.name))
        .collect();
    let lack = status.lack.as_deref().filter(|_| placed < wanted);
    let note = match (lack, draining.is_empty()) {
        (Some(lack), false) => Some(format!("{placed} of {wanted} replicas are placed: {lack}")),
        (None, false) => Some(format!(
            "a node shall be empty, and is given back by {}",
            draining.join(", ")
        )),
        (_, true) => None,
    };
    // A market's machines come with the work.
    let placed_later = loaded.config.market.runs() || (lack.is_some() && note.is_some());
    if (placed < wanted && !placed_later) || status.moving.is_some() {
        let lack = lack.map_or_else(String::new, |lack| format!(": {lack}"));
        return Serving::Waits(format!("{placed} of {wanted} replicas are placed{lack}"));
    }
    Serving::Ready(note)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::cell::Cell;

    use super::*;
    use crate::control::scripted::Scripted;
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
    fn the_coordinator_of_now_is_asked_when_that_of_before_is_gone() {
        let gone = || Rc::new(Scripted::lost());
        let there = Rc::new(Scripted::new(|_, _| vec![Reply::Done]));
        let opened = Cell::new(0);
        let open = || {
            opened.set(opened.get() + 1);
            Ok(Rc::clone(&there))
        };
        assert!(heard(Some(gone()), open));
        assert_eq!(*there.asked.borrow(), [Request::Shutdown]);
        assert!(heard(Some(Rc::clone(&there)), open));
        assert_eq!(opened.get(), 1, "who hears is not asked twice");
        assert!(!heard(Some(gone()), || Ok(gone())));
        let nobody = || Err(Failure::new(Exit::Unreachable, "nobody answers"));
        assert!(!heard(None::<Rc<Scripted>>, nobody));
    }

    #[test]
    fn a_coordinator_that_does_not_answer_keeps_nobody_who_has_another_wish() {
        let folder = tempfile::tempdir().unwrap();
        // Takes what is sent, and answers nothing.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let listen = silent.local_addr().unwrap();
        let text = format!("[coordinator]\nlisten = '{listen}'\n");
        let loaded = loaded(folder.path(), &text);
        crate::security::ensure(&loaded).unwrap();
        let interrupt = Interrupt::default();
        interrupt.ask();
        let failure = Line::new(&loaded, &interrupt).serves().unwrap_err();
        assert_eq!(failure.exit, Exit::Interrupted);
        assert!(!Line::new(&loaded, &interrupt).ask_end());
    }

    #[test]
    fn it_serves_when_all_nodes_live_and_all_replicas_are_placed() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = loaded(folder.path(), NODES);
        let mut status = samples::cluster();
        let waits = |why: &str| Serving::Waits(why.into());
        assert_eq!(serves(&status, &loaded), waits("not heard of: n2"));
        status.nodes[1].health = NodeHealth::Alive;
        assert_eq!(
            serves(&status, &loaded),
            waits("1 of 1 replicas are placed")
        );
        status.moving = None;
        assert_eq!(serves(&status, &loaded), Serving::Ready(None));
        status.plan.replicas.clear();
        assert_eq!(
            serves(&status, &loaded),
            waits("0 of 1 replicas are placed")
        );
        status.lack = Some("n1 is too small".into());
        assert_eq!(
            serves(&status, &loaded),
            waits("0 of 1 replicas are placed: n1 is too small")
        );
    }

    #[test]
    fn a_drain_of_before_is_told_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = loaded(folder.path(), NODES);
        let mut status = samples::cluster();
        status.moving = None;
        status.nodes[1].health = NodeHealth::Draining;
        let Serving::Ready(Some(note)) = serves(&status, &loaded) else {
            panic!("all replicas are placed");
        };
        assert!(note.contains("spotmux drain n2 --undo"), "{note}");
        status.plan.replicas.clear();
        assert!(
            matches!(serves(&status, &loaded), Serving::Waits(_)),
            "it may yet be placed"
        );
        status.lack = Some("n2 shall be empty, `spotmux drain n2 --undo` gives it back".into());
        let Serving::Ready(Some(note)) = serves(&status, &loaded) else {
            panic!("no wait helps");
        };
        assert!(
            note.starts_with("0 of 1 replicas are placed: n2 shall be empty"),
            "{note}"
        );
    }
}
