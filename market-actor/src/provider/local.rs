//! Machines that are processes of this one: each acquired machine is a gpu-actor, started and ended here.
//!
//! What was started stands in files, so that a market actor that comes back finds it: `TOKEN.json` with the request before the
//! process is started, and its number after. A process whose number was not written any more is found by the variable
//! [`REQUEST`] in its environment, which names that file: another cluster's machine of the same name is not taken for it (PR-1).

mod shelf;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use shared::ids::NodeName;
use shared::process::Process;
use shared::units::{MicroUsd, Micros};
use tokio::process::{Child, Command};

use super::{Answer, Machine, MachineState, Provider, ProviderError, Sighting, Signal, Want};
use crate::market::Pool;
use shelf::{Kept, Shelf};

/// Variable of a machine's process: the file of its request.
pub const REQUEST: &str = "SPOTMUX_MACHINE";

/// Its name.
const LOCAL: &str = "local";

/// How a machine is started; `{name}` in an argument is its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What runs.
    pub program: PathBuf,
    /// Arguments of a run to its end before the machine is started, such as one that makes its certificate.
    pub prepare: Vec<String>,
    /// Arguments of the machine.
    pub start: Vec<String>,
    /// Folder of what was started.
    pub machines: PathBuf,
    /// Folder of process ids that others read.
    pub processes: PathBuf,
    /// Folder of logs.
    pub logs: PathBuf,
    /// File that `prepare` makes and that is removed with the machine, `{name}` in its path.
    pub made: Option<PathBuf>,
    /// Machines that are gone and whose logs are kept: the newest.
    pub kept_logs: usize,
}

impl Launch {
    fn shelf(&self) -> Shelf {
        Shelf {
            // One spelling, whatever a path was given as: processes are found by it.
            machines: fs::canonicalize(&self.machines).unwrap_or_else(|_| self.machines.clone()),
            processes: self.processes.clone(),
            logs: self.logs.clone(),
            made: self.made.clone(),
            kept_logs: self.kept_logs,
        }
    }
}

/// All machines that were started so and live: nothing is changed, no file is written.
///
/// # Errors
/// When the folder cannot be read.
pub fn look(launch: &Launch) -> io::Result<Vec<Machine>> {
    let all = launch.shelf().all()?.into_iter();
    let living = all.filter(|kept| kept.process.is_some_and(Process::lives));
    Ok(living
        .map(|kept| machine(&kept.want, MachineState::Running))
        .collect())
}

fn machine(want: &Want, state: MachineState) -> Machine {
    Machine {
        id: want.token.to_string(),
        token: Some(want.token.clone()),
        kind: want.kind,
        state,
        node: None,
    }
}

/// What it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    /// Most machines of each kind.
    pub most: u32,
    /// Of a spot machine for an hour.
    pub spot_price: MicroUsd,
    /// Of one on demand for an hour.
    pub on_demand_price: MicroUsd,
    /// How long before its end a machine is told.
    pub notice: Micros,
}

/// The provider.
#[derive(Debug)]
pub struct Local {
    launch: Launch,
    stock: Stock,
    shelf: Shelf,
    children: BTreeMap<NodeName, Child>,
    told: BTreeSet<NodeName>,
}

impl Local {
    /// One that starts machines so.
    ///
    /// # Errors
    /// When a folder cannot be made.
    pub fn new(launch: Launch, stock: Stock) -> io::Result<Self> {
        for folder in [&launch.machines, &launch.processes, &launch.logs] {
            fs::create_dir_all(folder)?;
        }
        Ok(Self {
            shelf: launch.shelf(),
            launch,
            stock,
            children: BTreeMap::new(),
            told: BTreeSet::new(),
        })
    }

    fn forget(&mut self, token: &NodeName) {
        self.shelf.forget(token);
        self.children.remove(token);
        self.told.remove(token);
    }

    /// All machines that live; what is kept of others is removed.
    fn living(&mut self) -> io::Result<Vec<(Want, Process)>> {
        for child in self.children.values_mut() {
            // Whoever ended is no longer a process of this one.
            let _ = child.try_wait();
        }
        let mut living = Vec::new();
        for kept in self.shelf.all()? {
            let token = kept.want.token.clone();
            match kept.process.filter(|process| process.lives()) {
                Some(process) => {
                    if kept.found {
                        self.shelf.keep(&kept)?;
                    }
                    living.push((kept.want, process));
                }
                None => self.forget(&token),
            }
        }
        Ok(living)
    }

    fn process(&mut self, id: &str) -> Option<(NodeName, Process)> {
        let living = self.living().ok()?;
        let found = living
            .into_iter()
            .find(|(want, _)| want.token.as_str() == id);
        found.map(|(want, process)| (want.token, process))
    }

    /// Ends a machine at once, as one that is taken away.
    pub fn take_away(&mut self, id: &str) {
        if let Some((_, process)) = self.process(id) {
            process.kill();
        }
    }

    async fn start(&mut self, want: &Want) -> io::Result<Machine> {
        let token = &want.token;
        if self.process(token.as_str()).is_some() {
            return Ok(self.machine(want));
        }
        self.shelf.keep(&Kept {
            want: want.clone(),
            process: None,
            found: false,
        })?;
        let filled = |words: &[String]| -> Vec<String> {
            let words = words.iter();
            words
                .map(|word| word.replace("{name}", token.as_str()))
                .collect()
        };
        if !self.launch.prepare.is_empty() {
            let prepared = Command::new(&self.launch.program)
                .args(filled(&self.launch.prepare))
                .stdin(Stdio::null())
                // A call that is given up must not go on.
                .kill_on_drop(true)
                .output()
                .await?;
            if !prepared.status.success() {
                let words = String::from_utf8_lossy(&prepared.stderr).trim().to_owned();
                self.forget(token);
                return Err(io::Error::other(words));
            }
        }
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.shelf.log(token))?;
        let child = Command::new(&self.launch.program)
            .args(filled(&self.launch.start))
            .env(REQUEST, self.shelf.file(token))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(false)
            .spawn()?;
        let process = child.id().map(Process::of);
        self.children.insert(token.clone(), child);
        self.shelf.keep(&Kept {
            want: want.clone(),
            process,
            found: false,
        })?;
        Ok(self.machine(want))
    }

    fn machine(&self, want: &Want) -> Machine {
        let state = match self.told.contains(&want.token) {
            true => MachineState::Ending,
            false => MachineState::Running,
        };
        machine(want, state)
    }

    /// All machines, as [`Provider::list`] shows them.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn machines(&mut self) -> Result<Vec<Machine>, ProviderError> {
        let living = self.living().map_err(|error| unsure("list", &error))?;
        Ok(living.iter().map(|(want, _)| self.machine(want)).collect())
    }
}

fn unsure(call: &str, error: &io::Error) -> ProviderError {
    ProviderError::Unsure {
        provider: LOCAL.into(),
        call: call.into(),
        why: error.to_string(),
    }
}

impl Provider for Local {
    fn name(&self) -> &str {
        LOCAL
    }

    fn notice(&self) -> Micros {
        self.stock.notice
    }

    fn offers(&mut self) -> Answer<'_, Vec<Sighting>> {
        let stock = self.stock;
        Box::pin(async move {
            Ok(vec![Sighting {
                pool: pool(),
                spot_price: Some(stock.spot_price),
                spot_available: Some(stock.most),
                on_demand_price: Some(stock.on_demand_price),
                on_demand_available: Some(stock.most),
            }])
        })
    }

    fn acquire<'a>(&'a mut self, want: &'a Want) -> Answer<'a, Machine> {
        Box::pin(async move {
            let running = self.machines()?;
            let own = running.iter().filter(|one| one.kind == want.kind).count();
            let known = running
                .iter()
                .any(|one| one.token.as_ref() == Some(&want.token));
            if !known && own as u32 >= self.stock.most {
                return Err(ProviderError::NoCapacity {
                    provider: LOCAL.into(),
                    why: format!("{own} machines of this kind run, its limit"),
                });
            }
            let started = self.start(want).await;
            started.map_err(|error| unsure("acquire", &error))
        })
    }

    /// Asked once, the process is asked to end; asked again, it is ended.
    fn release<'a>(&'a mut self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            if let Some((token, process)) = self.process(id) {
                if self.told.insert(token) {
                    process.terminate();
                } else {
                    process.kill();
                }
            }
            Ok(())
        })
    }

    fn list(&mut self) -> Answer<'_, Vec<Machine>> {
        Box::pin(async move { self.machines() })
    }

    fn signals(&mut self) -> Answer<'_, Vec<Signal>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// The pool of this machine.
#[must_use]
pub fn pool() -> Pool {
    Pool {
        provider: LOCAL.into(),
        region: String::new(),
        zone: LOCAL.into(),
        machine: "process".into(),
    }
}

#[cfg(test)]
mod tests;
