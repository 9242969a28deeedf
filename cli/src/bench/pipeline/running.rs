//! A cluster of processes at work, and what its events and traces tell.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, anyhow};
use serde_json::Value;
use shared::ids::{EventNumber, JobId, NodeName};
use shared::process::Process;
use shared::wire::request::{JobRef, Reply, Request};
use shared::wire::view::{ClusterView, EventView, SpanView};

use super::site::{Load, Site};
use crate::args::ClusterArgs;
use crate::cluster_file;
use crate::control::quic::Quic;
use crate::control::{Control, Flow, unfitting};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;

/// Events that end a job otherwise than it should.
const BROKEN: [&str; 3] = ["job_failed", "job_refused", "job_cancelled"];

/// The cluster; ended when dropped.
pub(crate) struct Running<'a> {
    site: &'a Site<'a>,
    up: Child,
    control: Quic,
    config: String,
    /// All up to here were looked at.
    seen: EventNumber,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        Process::of(self.up.id()).terminate();
        // The one who watches ends all others first, and has its own patience.
        let _ = self.up.wait();
    }
}

impl<'a> Running<'a> {
    /// Starts so many nodes, of which so many hold a stage, and waits until they serve.
    ///
    /// # Errors
    /// Why they do not.
    pub(crate) fn start(
        site: &'a Site<'a>,
        stages: usize,
        nodes: usize,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let path = site.cluster(stages, nodes)?;
        let config = path.display().to_string();
        let log = site.path().join(format!("up-{stages}.log"));
        let log = File::create(log).or_exit(Exit::Internal)?;
        let mut up = site
            .command(&["up", "--json", "--config", &config])?
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start the cluster")
            .or_exit(Exit::Internal)?;
        let control = ready(&mut up).and_then(|()| {
            let cluster = ClusterArgs {
                config: Some(path),
                set: Vec::new(),
            };
            let mut settings = site.settings().clone();
            settings.over.clear();
            Quic::connect(&cluster_file::load(&cluster, &settings)?, interrupt)
        });
        match control {
            Ok(control) => Ok(Self {
                site,
                up,
                control,
                config,
                seen: EventNumber(0),
            }),
            Err(failure) => {
                Process::of(up.id()).terminate();
                let _ = up.wait();
                Err(failure)
            }
        }
    }

    /// Gives it jobs; their ids.
    ///
    /// # Errors
    /// When one is refused.
    pub(crate) fn submit(&self, load: Load<'_>) -> Result<Vec<JobId>, Failure> {
        let file = self.site.jobs(load)?;
        self.site
            .program(&["submit", &file, "--quiet", "--config", &self.config])?;
        let prefix = format!("{}-", load.name);
        match self.control.request(&Request::Jobs)? {
            Reply::Jobs(jobs) => Ok(jobs
                .iter()
                .filter(|job| job.name.as_str().starts_with(&prefix))
                .map(|job| job.id)
                .collect()),
            other => Err(unfitting(&other)),
        }
    }

    /// Follows what happens to these jobs and to the plan, until all that came is enough.
    ///
    /// # Errors
    /// When a job breaks, or the connection.
    pub(crate) fn follow(
        &mut self,
        jobs: &[JobId],
        mut enough: impl FnMut(&[EventView]) -> bool,
    ) -> Result<Vec<EventView>, Failure> {
        let mut events: Vec<EventView> = Vec::new();
        let request = Request::Events {
            job: None,
            after: self.seen,
            follow: true,
        };
        let seen = &mut self.seen;
        self.control.stream(&request, &mut |reply| {
            let Reply::Events(more) = reply else {
                return Err(unfitting(&reply));
            };
            for event in more {
                *seen = (*seen).max(event.number);
                let own = event.job.is_none_or(|job| jobs.contains(&job));
                if own && event.job.is_some() && BROKEN.contains(&event.kind.as_str()) {
                    return Err(anyhow!("{}: {}", event.kind, event.message))
                        .or_exit(Exit::Internal);
                }
                if own {
                    events.push(event);
                }
            }
            Ok(if enough(&events) {
                Flow::Enough
            } else {
                Flow::More
            })
        })?;
        Ok(events)
    }

    /// Follows these jobs to their end.
    ///
    /// # Errors
    /// As [`Self::follow`].
    pub(crate) fn until_ended(&mut self, jobs: &[JobId]) -> Result<Vec<EventView>, Failure> {
        self.follow(jobs, |events| {
            let ended = events.iter().filter(|event| event.kind == "job_succeeded");
            ended.count() == jobs.len()
        })
    }

    /// What all stages did for the steps of these jobs, from the second on.
    ///
    /// # Errors
    /// When the connection breaks.
    pub(crate) fn spans(&self, jobs: &[JobId], steps: u64) -> Result<Vec<SpanView>, Failure> {
        let mut all = Vec::new();
        for &job in jobs {
            for step in 2..=steps {
                let request = Request::Trace {
                    job: Some(JobRef::Id(job)),
                    step: Some(step),
                };
                match self.control.request(&request)? {
                    Reply::Spans(spans) => all.extend(spans),
                    other => return Err(unfitting(&other)),
                }
            }
        }
        Ok(all)
    }

    /// Moves the last stage to any other node.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) fn migrate(&self) -> Result<(), Failure> {
        let status = self.status()?;
        let seats = status.plan.replicas.first().map(|replica| &replica.seats);
        let from: NodeName = seats
            .and_then(|seats| seats.last())
            .map(|seat| seat.node.clone())
            .context("no replica is placed")
            .or_exit(Exit::Internal)?;
        match self.control.request(&Request::Migrate { from, to: None })? {
            Reply::Done => Ok(()),
            other => Err(unfitting(&other)),
        }
    }

    fn status(&self) -> Result<ClusterView, Failure> {
        match self.control.request(&Request::Status)? {
            Reply::Cluster(cluster) => Ok(cluster),
            other => Err(unfitting(&other)),
        }
    }
}

/// Waits until the one who watches says that all serve.
fn ready(up: &mut Child) -> Result<(), Failure> {
    let lines = up.stdout.take().map(BufReader::new);
    for line in lines.into_iter().flat_map(BufRead::lines) {
        let told: Value = serde_json::from_str(&line?).unwrap_or_default();
        if told["event"] == "ready" {
            return Ok(());
        }
        if let Some(message) = told["message"].as_str() {
            return Err(anyhow!("the cluster does not start: {message}")).or_exit(Exit::Internal);
        }
    }
    Err(anyhow!("the cluster ended before it was ready")).or_exit(Exit::Internal)
}
