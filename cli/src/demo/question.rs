//! The demo's questions asked of the cluster: of the bare backbone before its jobs, and with their adapters behind them.

use serde::Serialize;
use shared::ids::JobId;
use shared::wire::request::{JobRef, Reply, Request, SampleRequest};

use super::kit::Probe;
use crate::control::{Flow, unfitting};
use crate::desk::Desk;
use crate::exit::Failure;

/// Answers in the order of the probes.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    /// Of the bare model.
    pub(crate) before: Vec<String>,
    /// With each job's adapter.
    pub(crate) after: Vec<String>,
}

/// What a program is told of a question.
#[derive(Debug, Serialize)]
pub(crate) struct Told<'a> {
    pub(crate) event: &'static str,
    pub(crate) job: &'a str,
    pub(crate) when: &'static str,
    pub(crate) text: &'a str,
}

/// The answer of the bare backbone to each job's question, as [`after`] asks.
///
/// # Errors
/// As [`after`].
pub(crate) fn before(desk: &Desk<'_>) -> Result<Vec<String>, Failure> {
    let probes = Probe::all();
    probes.iter().map(|probe| one(desk, probe, None)).collect()
}

/// The answer of each job to its question, greedily, so that it is the same every time; a job that did not succeed has
/// none. Jobs are in the order of the probes.
///
/// # Errors
/// What the cluster refuses, and [`crate::exit::Exit::Interrupted`].
pub(crate) fn after(desk: &Desk<'_>, jobs: &[Option<JobId>]) -> Result<Vec<String>, Failure> {
    let probes = Probe::all();
    let asked = probes.iter().zip(jobs).map(|(probe, job)| match job {
        None => Ok(String::new()),
        Some(job) => one(desk, probe, Some(*job)),
    });
    asked.collect()
}

fn one(desk: &Desk<'_>, probe: &Probe, job: Option<JobId>) -> Result<String, Failure> {
    let request = Request::Sample(SampleRequest {
        job: job.map(JobRef::Id),
        system: probe.system.clone(),
        prompt: probe.ask.clone(),
        raw: probe.raw,
        max_tokens: u32::try_from(probe.limit).unwrap_or(u32::MAX),
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        seed: 0,
    });
    let mut text = String::new();
    desk.control.stream(&request, &mut |reply| {
        desk.interrupt.check()?;
        match reply {
            Reply::Piece(piece) => text.push_str(&piece),
            Reply::Done => return Ok(Flow::Enough),
            other => return Err(unfitting(&other)),
        }
        Ok(Flow::More)
    })?;
    desk.output.event(&Told {
        event: "answer",
        job: &probe.job,
        when: if job.is_some() { "after" } else { "before" },
        text: &text,
    });
    Ok(text)
}
