//! Machines that are processes of this one: each acquired machine is a gpu-actor, started and ended here.
//!
//! What was started stands in files, so that a market actor that comes back finds it: `TOKEN.json` with the request before the
//! process is started, and its number after. A process whose number was not written any more is found by the variable
//! [`TOKEN`] in its environment (PR-1).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use shared::ids::NodeName;
use shared::process::Process;
use shared::units::{MicroUsd, Micros};
use tokio::process::{Child, Command};

use super::{Answer, Machine, MachineState, Provider, ProviderError, Sighting, Signal, Want};
use crate::market::Pool;

/// Variable of a machine's process that names its request.
pub const TOKEN: &str = "SPOTMUX_MACHINE";

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
    children: BTreeMap<NodeName, Child>,
    told: BTreeSet<NodeName>,
}

/// What is kept of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    want: Want,
    process: Option<Process>,
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
            launch,
            stock,
            children: BTreeMap::new(),
            told: BTreeSet::new(),
        })
    }

    fn file(&self, token: &NodeName) -> PathBuf {
        self.launch.machines.join(format!("{token}.json"))
    }

    fn id_file(&self, token: &NodeName) -> PathBuf {
        self.launch.processes.join(format!("{token}.json"))
    }

    fn keep(&self, kept: &Kept) -> io::Result<()> {
        let token = &kept.want.token;
        write(&self.file(token), &serde_json::to_vec(kept)?)?;
        if let Some(process) = kept.process {
            write(&self.id_file(token), &serde_json::to_vec(&process)?)?;
        }
        Ok(())
    }

    fn forget(&mut self, token: &NodeName) {
        for path in [self.file(token), self.id_file(token)] {
            // It may be gone already.
            let _ = fs::remove_file(path);
        }
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
        for entry in fs::read_dir(&self.launch.machines)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let Ok(mut kept) = serde_json::from_slice::<Kept>(&fs::read(&path)?) else {
                continue;
            };
            let token = kept.want.token.clone();
            if kept.process.is_none() {
                kept.process = of_token(&token);
                if kept.process.is_some() {
                    self.keep(&kept)?;
                }
            }
            match kept.process.filter(|process| process.lives()) {
                Some(process) => living.push((kept.want, process)),
                None => self.forget(&token),
            }
        }
        living.sort_by(|a, b| a.0.token.cmp(&b.0.token));
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
        self.keep(&Kept {
            want: want.clone(),
            process: None,
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
            .open(self.launch.logs.join(format!("{token}.log")))?;
        let child = Command::new(&self.launch.program)
            .args(filled(&self.launch.start))
            .env(TOKEN, token.as_str())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(false)
            .spawn()?;
        let process = child.id().map(Process::of);
        self.children.insert(token.clone(), child);
        self.keep(&Kept {
            want: want.clone(),
            process,
        })?;
        Ok(self.machine(want))
    }

    fn machine(&self, want: &Want) -> Machine {
        Machine {
            id: want.token.to_string(),
            token: Some(want.token.clone()),
            kind: want.kind,
            state: if self.told.contains(&want.token) {
                MachineState::Ending
            } else {
                MachineState::Running
            },
            node: None,
        }
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

/// Written beside and renamed: a reader sees all of it or nothing.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("part");
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)
}

fn unsure(call: &str, error: &io::Error) -> ProviderError {
    ProviderError::Unsure {
        provider: LOCAL.into(),
        call: call.into(),
        why: error.to_string(),
    }
}

/// The process that was started for a token, whose number was not kept.
fn of_token(token: &NodeName) -> Option<Process> {
    let wanted = format!("{TOKEN}={token}");
    let entries = fs::read_dir("/proc").ok()?;
    let mut ids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = ids.find(|id| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    });
    found.map(Process::of)
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
mod tests {
    use super::*;
    use crate::provider::Kind;

    fn local(folder: &Path, start: &[&str]) -> Local {
        let launch = Launch {
            program: "/bin/sh".into(),
            prepare: vec!["-c".into(), "test {name} != bad".into()],
            start: start.iter().map(ToString::to_string).collect(),
            machines: folder.join("machines"),
            processes: folder.join("run"),
            logs: folder.join("logs"),
        };
        let stock = Stock {
            most: 2,
            spot_price: MicroUsd(1),
            on_demand_price: MicroUsd(2),
            notice: Micros(0),
        };
        Local::new(launch, stock).unwrap()
    }

    fn want(token: &str) -> Want {
        Want {
            token: NodeName::new(token).unwrap(),
            pool: pool(),
            kind: Kind::Spot,
        }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(future)
    }

    /// Lists until so many machines are shown.
    async fn until(local: &mut Local, count: usize) {
        for _ in 0..100_000 {
            if local.list().await.unwrap().len() == count {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("never {count} machines: {:?}", local.list().await);
    }

    #[test]
    fn a_machine_is_a_process_that_is_started_once_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let mut local = local(folder.path(), &["-c", "exec sleep 600"]);
            let first = local.acquire(&want("a")).await.unwrap();
            assert_eq!(local.acquire(&want("a")).await.unwrap(), first);
            assert_eq!(local.list().await.unwrap(), [first]);
            local.acquire(&want("b")).await.unwrap();
            let full = local.acquire(&want("c")).await.unwrap_err();
            assert!(full.is_certain(), "{full}");
            local.release("a").await.unwrap();
            until(&mut local, 1).await;
            local.release("a").await.unwrap();
            local.release("b").await.unwrap();
            until(&mut local, 0).await;
        });
    }

    #[test]
    fn one_that_comes_back_finds_its_machines_also_those_it_had_no_time_to_note() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let mut before = local(folder.path(), &["-c", "exec sleep 600"]);
            before.acquire(&want("a")).await.unwrap();
            before.acquire(&want("b")).await.unwrap();
            // As if it had ended between the start and the note.
            let lost = Kept {
                want: want("b"),
                process: None,
            };
            before.keep(&lost).unwrap();
            let mut after = local(folder.path(), &["-c", "exec sleep 600"]);
            let shown = after.list().await.unwrap();
            assert_eq!(shown.len(), 2, "{shown:?}");
            for id in ["a", "b"] {
                after.take_away(id);
            }
            // The one that started them waits for them.
            until(&mut before, 0).await;
            until(&mut after, 0).await;
        });
    }

    #[test]
    fn one_that_does_not_listen_is_ended_when_it_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let stubborn = "trap '' TERM; while :; do sleep 600 & wait; done";
            let mut local = local(folder.path(), &["-c", stubborn]);
            local.acquire(&want("a")).await.unwrap();
            local.release("a").await.unwrap();
            let shown = local.list().await.unwrap();
            assert_eq!(shown.len(), 1);
            assert_eq!(shown[0].state, MachineState::Ending);
            local.release("a").await.unwrap();
            until(&mut local, 0).await;
        });
    }

    #[test]
    fn what_cannot_be_prepared_is_not_started() {
        let folder = tempfile::tempdir().unwrap();
        run(async {
            let mut local = local(folder.path(), &["-c", "exec sleep 600"]);
            assert!(local.acquire(&want("bad")).await.is_err());
            assert_eq!(local.list().await.unwrap(), []);
        });
    }
}
