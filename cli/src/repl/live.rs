//! Names of jobs and nodes, asked from the cluster on a connection of their own, and kept for a second.

use std::time::Duration;

use clap::{Command, CommandFactory};
use reedline::{Completer, CompletionResult, Span, Suggestion};
use shared::config::load::Loaded;
use shared::wire::request::{Reply, Request};

use super::complete::{self, Names};
use crate::args::Args;
use crate::clock::Stopwatch;
use crate::control::Control;
use crate::control::quic::Quic;
use crate::interrupt::Interrupt;

/// How long names are believed.
const FRESH: Duration = Duration::from_secs(1);
/// How long nobody is asked again after nobody answered.
const SULK: Duration = Duration::from_secs(10);

/// When names were asked for, and the names, each with what it is.
type Known = (Stopwatch, Vec<(String, String)>);

/// Completes lines.
pub(crate) struct Live {
    tree: Command,
    loaded: Option<Loaded>,
    quic: Option<Quic>,
    known: [Option<Known>; 2],
    sulks: Option<Stopwatch>,
}

impl Live {
    /// With the names of a cluster, if its file is sound.
    pub(crate) fn new(loaded: Option<Loaded>) -> Self {
        let mut tree = Args::command();
        tree.build();
        Self {
            tree,
            loaded,
            quic: None,
            known: [None, None],
            sulks: None,
        }
    }

    fn names(&mut self, what: Names) -> Vec<(String, String)> {
        let place = match what {
            Names::Jobs => 0,
            Names::Nodes => 1,
        };
        if let Some((when, names)) = &self.known[place]
            && when.elapsed() < FRESH
        {
            return names.clone();
        }
        if self
            .sulks
            .as_ref()
            .is_some_and(|since| since.elapsed() < SULK)
        {
            return Vec::new();
        }
        match self.ask(what) {
            Some(names) => {
                self.known[place] = Some((Stopwatch::start(), names.clone()));
                names
            }
            None => {
                self.quic = None;
                self.sulks = Some(Stopwatch::start());
                Vec::new()
            }
        }
    }

    fn ask(&mut self, what: Names) -> Option<Vec<(String, String)>> {
        if self.quic.is_none() {
            let loaded = self.loaded.as_ref()?;
            self.quic = Quic::connect(loaded, &Interrupt::default()).ok();
        }
        let request = match what {
            Names::Jobs => Request::Jobs,
            Names::Nodes => Request::Nodes,
        };
        Some(match self.quic.as_ref()?.request(&request).ok()? {
            Reply::Jobs(jobs) => jobs
                .into_iter()
                .flat_map(|job| {
                    let about = format!("{}, {}", job.name, job.state);
                    [
                        (job.id.to_string(), about.clone()),
                        (job.name.to_string(), about),
                    ]
                })
                .collect(),
            Reply::Nodes(nodes) => nodes
                .into_iter()
                .map(|node| (node.name.to_string(), node.address))
                .collect(),
            _ => return None,
        })
    }
}

impl Completer for Live {
    fn complete(&mut self, line: &str, at: usize) -> CompletionResult {
        let line = line.get(..at).unwrap_or(line);
        let tree = self.tree.clone();
        let found = complete::complete(line, &tree, &mut |what| self.names(what));
        let suggestions: Vec<Suggestion> = found
            .into_iter()
            .map(|next| Suggestion {
                value: next.text,
                description: Some(next.about).filter(|about| !about.is_empty()),
                span: Span::new(next.start, line.len()),
                append_whitespace: next.ends,
                ..Suggestion::default()
            })
            .collect();
        CompletionResult::fresh(suggestions)
    }
}
