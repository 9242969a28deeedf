//! A cluster of the demo's own: its file, its processes, and their end, whatever happens meanwhile.
//!
//! - `LO-1` When the work is over, well or not, by a panic too, the processes are asked to end and waited for.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use shared::config::load::{self, Loaded};
use shared::job::Products;
use shared::units::Bytes;

use crate::control::is_lost;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::local::cluster::{self, Line, Serving};
use crate::local::family::{self, Around};
use crate::local::free::Free;
use crate::local::state::State;
use crate::local::watch::Patience;
use crate::render::Output;
use crate::security;
use crate::settings::Settings;

/// Name of the cluster's file.
pub(crate) const FILE: &str = "cluster.toml";
/// Stages of the backbone.
pub(crate) const STAGES: usize = 2;
/// Nodes: one more than there are stages.
const NODES: usize = STAGES + 1;
/// Memory that a node offers at least.
const LEAST_MEMORY: u64 = 1 << 30;
/// How often it is looked whether the user wants the end.
const LOOK: Duration = Duration::from_millis(200);

/// What the file says besides addresses.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    /// The backbone, from the root.
    pub(crate) model: PathBuf,
    /// Tokens of a pass.
    pub(crate) tokens_per_pass: usize,
    /// How products with frozen weights are computed.
    pub(crate) products: Products,
    /// Compute threads of a node.
    pub(crate) threads: usize,
    /// Memory that one process would need for all.
    pub(crate) memory: u64,
}

/// What happens to the processes.
#[derive(Debug)]
pub(crate) enum News {
    /// They serve.
    Ready,
    /// One ended and is started again, in a sentence.
    Restarted(String),
}

/// Writes the file of a cluster whose addresses were free just now.
///
/// # Errors
/// [`Exit::Internal`] when the system gives no address, or the file cannot be written.
pub(crate) fn write(folder: &Path, wishes: &Wishes) -> Result<Loaded, Failure> {
    let free = Free::find(NODES)
        .context("cannot find free ports of this machine")
        .or_exit(Exit::Internal)?;
    let path = folder.join(FILE);
    fs::write(&path, text(wishes, &free))
        .with_context(|| format!("cannot write {}", path.display()))
        .or_exit(Exit::Internal)?;
    // Variables of the environment are meant for another cluster.
    load::load(&path, [], &[]).or_exit(Exit::Internal)
}

fn text(wishes: &Wishes, free: &Free) -> String {
    // A string of JSON is one of TOML.
    let model = serde_json::Value::from(wishes.model.display().to_string());
    let memory = Bytes(wishes.memory.max(LEAST_MEMORY)).0.div_ceil(1 << 20);
    let mut text = format!(
        "# The cluster of `spotmux demo`: a coordinator and {NODES} nodes on this machine, {STAGES} stages, one node to spare.\n\
         # Started again, it still has the demo's jobs:  spotmux up --config {FILE}\n\n\
         [cluster]\nname = \"demo\"\n\n\
         [model]\npath = {model}\nproducts = \"{}\"\n\n\
         [coordinator]\nlisten = \"{}\"\nmetrics = \"{}\"\n\n\
         [plan]\nstages = {STAGES}\ntokens_per_pass = {}\n\n\
         [gpu_actor]\nthreads = {}\nmemory_mib = {memory}\n",
        wishes.products, free.coordinator, free.metrics, wishes.tokens_per_pass, wishes.threads
    );
    for (number, address) in (1..).zip(&free.nodes) {
        text.push_str(&format!(
            "\n[[node]]\nname = \"n{number}\"\nlisten = \"{address}\"\n"
        ));
    }
    text
}

/// Starts the processes, works with them once they serve, and ends them.
///
/// # Errors
/// What the work says; what became of the processes, when that was before; [`Exit::Interrupted`].
pub(crate) fn within<T>(
    loaded: &Loaded,
    settings: &Settings,
    output: &Output,
    interrupt: &Interrupt,
    work: impl FnOnce(&State, &Receiver<News>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let state = State::of(loaded);
    let _watcher = state.watch()?;
    cluster::check(loaded, settings)?;
    security::ensure(loaded)?;
    let program = std::env::current_exe()
        .context("cannot find the program itself")
        .or_exit(Exit::Internal)?;
    let unset: Vec<String> = settings.over.iter().map(|(name, _)| name.clone()).collect();
    let members = cluster::members(loaded, &[], &unset, &program);
    let (tell, news) = channel();
    let end = Interrupt::default();
    let (outcome, ended) = thread::scope(|scope| {
        let family = scope.spawn(|| {
            let mut around = Told {
                line: Line::new(loaded, &end),
                tell,
            };
            family::run(&members, &state, Patience::default(), &end, &mut around)
        });
        let ending = Ending(&end);
        let outcome = until_ready(&news, interrupt).and_then(|()| work(&state, &news));
        drop(ending);
        if interrupt.asked() {
            interrupt.forget();
            output.note("ending the cluster; press Ctrl-C again to end it at once");
        }
        // The sender goes with the family.
        while !matches!(news.recv_timeout(LOOK), Err(RecvTimeoutError::Disconnected)) {
            if interrupt.asked() {
                interrupt.forget();
                end.ask();
            }
        }
        let ended = family.join();
        (outcome, ended)
    });
    let ended = ended.unwrap_or_else(|_| {
        let message = "the thread that watched the processes failed";
        Err(Failure::new(Exit::Internal, message))
    });
    match outcome {
        // Whoever lost the cluster is told best by who watched it.
        Err(failure) if is_lost(&failure) => ended.and(Err(failure)),
        Err(failure) => Err(failure),
        Ok(outcome) => ended.map(|()| outcome),
    }
}

/// Asks for the end when it is dropped.
struct Ending<'a>(&'a Interrupt);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ask();
    }
}

fn until_ready(news: &Receiver<News>, interrupt: &Interrupt) -> Result<(), Failure> {
    loop {
        match news.recv_timeout(LOOK) {
            Ok(News::Ready) => return Ok(()),
            Ok(News::Restarted(_)) => {}
            Err(RecvTimeoutError::Timeout) => interrupt.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                let message = "the processes ended before they served";
                return Err(Failure::new(Exit::Unreachable, message));
            }
        }
    }
}

/// Tells the one who works.
struct Told<'a> {
    line: Line<'a>,
    tell: Sender<News>,
}

impl Around for Told<'_> {
    fn is_ready(&mut self) -> Result<bool, Failure> {
        match self.line.serves()? {
            Serving::Ready(_) => Ok(true),
            Serving::Waits(why) => Err(Failure::new(Exit::Unreachable, why)),
        }
    }

    fn ask_end(&mut self) -> bool {
        self.line.ask_end()
    }

    fn ready(&mut self, _processes: &[(String, u32)]) {
        // Nobody listens when the work is over.
        let _ = self.tell.send(News::Ready);
    }

    fn restarted(&mut self, name: &str, times: usize, words: &str) {
        let told = format!("{name} ended and is started again ({times}): {words}");
        let _ = self.tell.send(News::Restarted(told));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_file_has_two_stages_a_node_to_spare_and_addresses_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let wishes = Wishes {
            model: "/a \"b\"/c".into(),
            tokens_per_pass: 384,
            products: Products::Split,
            threads: 1,
            memory: 3 << 30,
        };
        let loaded = write(folder.path(), &wishes).unwrap();
        let config = &loaded.config;
        assert_eq!(config.model.path, "/a \"b\"/c");
        assert_eq!(config.model.products, Products::Split);
        assert_eq!(config.plan.tokens_per_pass, 384);
        assert_eq!(config.gpu_actor.memory_mib, 3 << 10);
        let nodes = config.nodes();
        assert_eq!(nodes.len(), NODES);
        let listen: BTreeSet<_> = nodes
            .iter()
            .map(|node| node.listen)
            .chain([config.coordinator.listen])
            .collect();
        assert_eq!(listen.len(), NODES + 1);
    }

    #[test]
    fn processes_that_never_serve_are_ended_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let wishes = Wishes {
            model: folder.path().join("absent"),
            tokens_per_pass: 64,
            products: Products::F32,
            threads: 1,
            memory: 0,
        };
        let loaded = write(folder.path(), &wishes).unwrap();
        let settings = Settings {
            models: Some(folder.path().into()),
            ..Settings::default()
        };
        let (output, interrupt) = (Output::new(false, true), Interrupt::default());
        let work = |_: &State, _: &Receiver<News>| -> Result<(), Failure> { panic!("it serves") };
        let failure = within(&loaded, &settings, &output, &interrupt, work).unwrap_err();
        let message = failure.message();
        assert!(message.contains("the cluster cannot start"), "{message}");
        assert!(State::of(&loaded).living().is_empty());
    }
}
