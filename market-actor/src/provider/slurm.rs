//! Machines of a Slurm cluster: each is a batch job of one node that runs a gpu-actor.
//!
//! A job's name is the token, its comment the cluster ([`super::known_as`]): `squeue --me` finds what an `sbatch` made whose answer was lost (PR-1). Spot is a
//! partition whose jobs are preempted for others; `--signal=B:TERM@n` and the partition's `GraceTime` are the notice, which the
//! gpu-actor hears as SIGTERM. A job that waits in the queue is a machine that boots: custody gives it back when it takes too long.

pub mod words;

use std::path::PathBuf;
use std::process::Stdio;

use shared::units::{MicroUsd, Micros};
use tokio::process::Command;

use super::{Answer, Kind, Machine, MachineState, Provider, ProviderError, Sighting, Signal, Want};
use crate::market::Pool;
use words::{COLUMNS, Partitions, SLURM, STATES};

/// How its commands are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Folder of `sbatch`, `squeue`, `scancel` and `sinfo`; empty for those on the path.
    pub commands: PathBuf,
    /// Where jobs go.
    pub partitions: Partitions,
    /// The cluster, as [`super::known_as`] tells it apart.
    pub cluster: String,
    /// What a job runs; `{name}` is its token.
    pub command: String,
    /// Folder of the jobs' output, on their nodes.
    pub logs: PathBuf,
    /// Of a machine for an hour, by kind.
    pub spot_price: MicroUsd,
    /// Of one that is not preempted.
    pub on_demand_price: MicroUsd,
    /// How long before its end a job is told.
    pub notice: Micros,
}

/// The provider.
#[derive(Debug)]
pub struct Slurm {
    controller: Controller,
}

impl Slurm {
    /// One that calls so.
    #[must_use]
    pub const fn new(controller: Controller) -> Self {
        Self { controller }
    }

    /// What a command prints.
    async fn call(&self, name: &str, arguments: &[String]) -> Result<String, ProviderError> {
        let folder = &self.controller.commands;
        let program = if folder.as_os_str().is_empty() {
            PathBuf::from(name)
        } else {
            folder.join(name)
        };
        let output = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            // A call that is given up must not go on.
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| words::failed(name, &error.to_string()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(words::failed(
            name,
            &String::from_utf8_lossy(&output.stderr),
        ))
    }

    async fn jobs(&self, token: Option<&str>) -> Result<Vec<Machine>, ProviderError> {
        let mut arguments = vec![
            "--noheader".to_owned(),
            // What another user submitted cannot be ended from here.
            "--me".to_owned(),
            format!("--states={STATES}"),
            format!("--format={COLUMNS}"),
        ];
        if let Some(token) = token {
            arguments.push(format!("--name={token}"));
        }
        let printed = self.call("squeue", &arguments).await?;
        let own = &self.controller;
        Ok(words::machines(&printed, &own.partitions, &own.cluster))
    }

    /// Machines of a kind that it would give in all: idle nodes, and those held.
    async fn there(&self, kind: Kind, held: &[Machine]) -> Result<u32, ProviderError> {
        let partition = self.controller.partitions.of(kind);
        let arguments = [
            "--noheader".to_owned(),
            format!("--partition={partition}"),
            "--format=%t|%D".to_owned(),
        ];
        let idle = words::idle(&self.call("sinfo", &arguments).await?);
        let own = held
            .iter()
            .filter(|one| one.kind == kind && one.state == MachineState::Running);
        Ok(idle.saturating_add(own.count() as u32))
    }
}

impl Provider for Slurm {
    fn name(&self) -> &str {
        SLURM
    }

    fn notice(&self) -> Micros {
        self.controller.notice
    }

    fn offers(&mut self) -> Answer<'_, Vec<Sighting>> {
        Box::pin(async move {
            let held = self.jobs(None).await?;
            let spot = self.there(Kind::Spot, &held).await?;
            let on_demand = self.there(Kind::OnDemand, &held).await?;
            Ok(vec![Sighting {
                pool: Pool {
                    provider: SLURM.into(),
                    region: String::new(),
                    zone: self.controller.partitions.spot.clone(),
                    machine: "node".into(),
                },
                spot_price: Some(self.controller.spot_price),
                spot_available: Some(spot),
                on_demand_price: Some(self.controller.on_demand_price),
                on_demand_available: Some(on_demand),
            }])
        })
    }

    fn acquire<'a>(&'a mut self, want: &'a Want) -> Answer<'a, Machine> {
        Box::pin(async move {
            let known = self.jobs(Some(want.token.as_str())).await?;
            if let Some(machine) = known.into_iter().next() {
                return Ok(machine);
            }
            let own = &self.controller;
            let log = own.logs.join(format!("{}.log", want.token));
            let arguments = words::submit(
                want,
                &own.partitions,
                &own.cluster,
                &log.display().to_string(),
                own.notice.0.div_ceil(1_000_000),
                &own.command.replace("{name}", want.token.as_str()),
            );
            let printed = self.call("sbatch", &arguments).await?;
            let Some(id) = words::submitted(&printed) else {
                return Err(words::failed("sbatch", &printed));
            };
            Ok(Machine {
                id,
                token: Some(want.token.clone()),
                kind: want.kind,
                state: MachineState::Starting,
                node: None,
            })
        })
    }

    fn release<'a>(&'a mut self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            match self.call("scancel", &[id.to_owned()]).await {
                Err(error) if words::is_gone(&error.to_string()) => Ok(()),
                other => other.map(|_| ()),
            }
        })
    }

    fn list(&mut self) -> Answer<'_, Vec<Machine>> {
        Box::pin(async move { self.jobs(None).await })
    }

    fn signals(&mut self) -> Answer<'_, Vec<Signal>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use shared::ids::NodeName;

    use super::*;

    /// Commands that keep jobs in a file, one a line as `squeue` prints them.
    fn stand_in(folder: &Path) {
        let jobs = folder.join("jobs");
        fs::write(&jobs, "").unwrap();
        let jobs = jobs.display();
        let scripts = [
            (
                "sbatch",
                format!(
                    "for word; do case $word in --job-name=*) name=${{word#*=}};; --comment=*) comment=${{word#*=}};; \
                     --partition=*) partition=${{word#*=}};; esac; done\n\
                     if [ $partition = none ]; then echo 'sbatch: error: invalid partition specified' >&2; exit 1; fi\n\
                     id=$(($(wc -l < {jobs}) + 1)); echo \"$id|$name|RUNNING|$comment|$partition\" >> {jobs}\n\
                     if [ -e {jobs}.mute ]; then echo 'sbatch: error: Socket timed out' >&2; exit 1; fi\n\
                     echo $id"
                ),
            ),
            (
                "squeue",
                format!(
                    "own=none; for word; do case $word in --name=*) name=${{word#*=}};; --me) own=;; esac; done\n\
                     grep \"$own|$name\" {jobs} || true"
                ),
            ),
            (
                "scancel",
                format!(
                    "if ! grep -q \"^$1|\" {jobs}; then echo 'scancel: error: Invalid job id specified' >&2; exit 1; fi\n\
                     sed -i \"/^$1|/d\" {jobs}"
                ),
            ),
            ("sinfo", "echo 'idle|2'".to_owned()),
        ];
        for (name, script) in scripts {
            let path = folder.join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn slurm(folder: &Path) -> Slurm {
        Slurm::new(Controller {
            commands: folder.to_owned(),
            partitions: Partitions {
                spot: "spot".into(),
                on_demand: "none".into(),
            },
            cluster: "local".into(),
            command: "spotmux gpu-actor --name {name}".into(),
            logs: folder.to_owned(),
            spot_price: MicroUsd(1),
            on_demand_price: MicroUsd(2),
            notice: Micros(60_000_000),
        })
    }

    fn want(token: &str, kind: Kind) -> Want {
        Want {
            token: NodeName::new(token).unwrap(),
            pool: Pool {
                provider: SLURM.into(),
                region: String::new(),
                zone: String::new(),
                machine: String::new(),
            },
            kind,
        }
    }

    #[test]
    fn a_job_is_submitted_once_even_when_its_answer_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        stand_in(folder.path());
        let mute = folder.path().join("jobs.mute");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let mut slurm = slurm(folder.path());
            fs::write(&mute, "").unwrap();
            let lost = slurm.acquire(&want("m-1", Kind::Spot)).await.unwrap_err();
            assert!(!lost.is_certain(), "{lost}");
            fs::remove_file(&mute).unwrap();
            let found = slurm.acquire(&want("m-1", Kind::Spot)).await.unwrap();
            assert_eq!(slurm.list().await.unwrap(), std::slice::from_ref(&found));
            let offers = slurm.offers().await.unwrap();
            assert_eq!(offers[0].spot_available, Some(3), "two idle, one held");
            let refused = slurm
                .acquire(&want("m-2", Kind::OnDemand))
                .await
                .unwrap_err();
            assert!(refused.is_certain(), "{refused}");
            for _ in 0..2 {
                slurm.release(&found.id).await.unwrap();
            }
            assert_eq!(slurm.list().await.unwrap(), []);
        });
    }
}
