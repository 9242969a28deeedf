//! The processes of a cluster: started, heard, ended, as [`super::watch`] decides.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::Context;
use shared::process::Process;
use shared::units::Micros;

use super::state::State;
use super::watch::{Effect, Event, Outcome, Patience, Watch};
use crate::clock::Stopwatch;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;

/// How often it looks whether the cluster is ready, and whether the user wants the end.
const LOOK: Duration = Duration::from_millis(200);

/// Buffers from this size on go back to the system when they are freed. Left to itself, the C library raises the size to
/// that of what was freed before, up to 32 MiB, and a node goes on holding what passes and stages of before needed.
const GIVES_BACK: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "1048576");

/// A process to start.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Its name; also that of its log.
    pub(crate) name: String,
    /// What runs.
    pub(crate) program: PathBuf,
    /// With these arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Without these variables of the environment.
    pub(crate) unset: Vec<String>,
}

/// What the family tells and asks while it runs.
pub(crate) trait Around {
    /// Whether the cluster serves; an error is told when it never does.
    fn is_ready(&mut self) -> Result<bool, Failure>;

    /// Asks the coordinator to end the cluster in order; whether it heard.
    fn ask_end(&mut self) -> bool;

    /// The end has begun.
    fn ends(&mut self) {}

    /// All are ready.
    fn ready(&mut self, processes: &[(String, u32)]);

    /// A process is started again: its name, which time, its last words.
    fn restarted(&mut self, name: &str, times: usize, words: &str);
}

/// A process that runs, or ran.
#[derive(Debug, Default)]
struct Running {
    process: Option<Process>,
    /// Where its log was when it started.
    log_from: u64,
    status: String,
}

struct Family<'a> {
    members: &'a [Member],
    running: Vec<Running>,
    state: &'a State,
    news: Receiver<(usize, std::io::Result<std::process::ExitStatus>)>,
    tell: Sender<(usize, std::io::Result<std::process::ExitStatus>)>,
}

/// Runs all until the end; the first is the coordinator.
///
/// # Errors
/// [`Exit::Internal`] when a process could not be started or ended too often, with its last words.
pub(crate) fn run(
    members: &[Member],
    state: &State,
    patience: Patience,
    interrupt: &Interrupt,
    around: &mut dyn Around,
) -> Result<(), Failure> {
    let (tell, news) = channel();
    let mut family = Family {
        members,
        running: members.iter().map(|_| Running::default()).collect(),
        state,
        news,
        tell,
    };
    let clock = Stopwatch::start();
    let now = || Micros(u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX));
    let (mut watch, effects) = Watch::new(members.len(), patience, now());
    let mut never = None;
    let mut unheard = false;
    let mut todo = effects;
    loop {
        let mut failed = Vec::new();
        for effect in todo.drain(..) {
            match effect {
                Effect::Start(child) => {
                    if let Err(failure) = family.start(child) {
                        family.running[child].status = failure.message();
                        failed.push(child);
                    }
                }
                Effect::TellReady => around.ready(&family.processes()),
                Effect::TellRestart(child, times) => {
                    around.restarted(&members[child].name, times, &family.words(child));
                }
                Effect::AskEnd => {
                    around.ends();
                    unheard = !around.ask_end();
                }
                Effect::Terminate(child) => family.send(child, Process::terminate),
                Effect::Kill(child) => family.send(child, Process::kill),
                Effect::End(outcome) => return family.outcome(outcome, never),
            }
        }
        for child in failed {
            let well = false;
            todo.extend(watch.step(Event::Ended { child, well }, now()));
        }
        if !todo.is_empty() {
            continue;
        }
        let event = match family.news.recv_timeout(LOOK) {
            Ok((child, status)) => {
                let well = status.as_ref().is_ok_and(std::process::ExitStatus::success);
                family.ended(child, status);
                Event::Ended { child, well }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Event::Tick,
        };
        todo.extend(watch.step(event, now()));
        if interrupt.asked() {
            interrupt.forget();
            todo.extend(watch.step(Event::Signal, now()));
        } else if unheard && watch.is_asking() && event == Event::Tick {
            // One that was just started again hears once it leads.
            unheard = !around.ask_end();
        } else if watch.is_starting() && event == Event::Tick {
            match around.is_ready() {
                Ok(true) => todo.extend(watch.step(Event::Ready, now())),
                Ok(false) => {}
                Err(failure) => never = Some(failure),
            }
        }
    }
}

impl Family<'_> {
    fn start(&mut self, child: usize) -> Result<(), Failure> {
        let member = &self.members[child];
        let path = self.state.log(&member.name);
        let cannot = || format!("cannot start {}", member.name);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))
            .or_exit(Exit::Internal)?;
        let from = log.metadata().map_or(0, |data| data.len());
        let more = log
            .try_clone()
            .with_context(cannot)
            .or_exit(Exit::Internal)?;
        let mut command = Command::new(&member.program);
        for name in &member.unset {
            command.env_remove(name);
        }
        let mut started = command
            .args(&member.arguments)
            .env(GIVES_BACK.0, GIVES_BACK.1)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(more)
            // A key pressed here is not meant for it: the end has an order.
            .process_group(0)
            .spawn()
            .with_context(cannot)
            .or_exit(Exit::Internal)?;
        let process = Process::of(started.id());
        self.running[child] = Running {
            process: Some(process),
            log_from: from,
            status: String::new(),
        };
        let tell = self.tell.clone();
        std::thread::spawn(move || {
            // When nobody hears, the family is over.
            let _ = tell.send((child, started.wait()));
        });
        self.state.note(&member.name, process)
    }

    fn ended(&mut self, child: usize, status: std::io::Result<std::process::ExitStatus>) {
        self.state.forget(&self.members[child].name);
        self.running[child].process = None;
        self.running[child].status = match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
    }

    fn send(&self, child: usize, what: impl Fn(Process)) {
        if let Some(process) = self.running[child].process {
            what(process);
        }
    }

    fn processes(&self) -> Vec<(String, u32)> {
        let pairs = self.members.iter().zip(&self.running);
        pairs
            .filter_map(|(member, running)| Some((member.name.clone(), running.process?.id)))
            .collect()
    }

    fn words(&self, child: usize) -> String {
        let (running, name) = (&self.running[child], &self.members[child].name);
        let words = self.state.last_words(name, running.log_from);
        format!("{}\n{words}", running.status).trim().to_owned()
    }

    fn outcome(&self, outcome: Outcome, never: Option<Failure>) -> Result<(), Failure> {
        let of = |child: usize, what: &str| {
            let name = &self.members[child].name;
            let message = format!("{name} {what}: {}", self.words(child));
            let log = self.state.log(name);
            Failure::new(Exit::Internal, message)
                .hint("nothing is left running")
                .hint(format!("its log: {}", log.display()))
        };
        match outcome {
            Outcome::Asked => Ok(()),
            Outcome::NeverReady(child) => Err(of(child, "ended before the cluster was ready")),
            Outcome::TooOften(child) => Err(of(child, "ended too often")),
            Outcome::TooLate => {
                let why =
                    never.map_or_else(String::new, |failure| format!(": {}", failure.message()));
                let message = format!("the cluster was not ready in time{why}");
                Err(Failure::new(Exit::Unreachable, message).hint("nothing is left running"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
