//! The demo's questions asked of the cluster, once its jobs have ended.

use serde::Serialize;
use shared::ids::JobId;
use shared::wire::request::{JobRef, Reply, Request, SampleRequest};

use super::kit::Probe;
use crate::control::{Flow, unfitting};
use crate::desk::Desk;
use crate::exit::Failure;

/// What a program is told of a question.
#[derive(Debug, Serialize)]
pub(crate) struct Told<'a> {
    pub(crate) event: &'static str,
    pub(crate) job: &'a str,
    pub(crate) when: &'static str,
    pub(crate) text: &'a str,
}

/// The answer of each job to its question, greedily, so that it is the same every time; a job that did not succeed has
/// none. Jobs are in the order of the probes.
///
/// # Errors
/// What the cluster refuses, and [`crate::exit::Exit::Interrupted`].
pub(crate) fn ask(desk: &Desk<'_>, jobs: &[Option<JobId>]) -> Result<Vec<String>, Failure> {
    let probes = Probe::all();
    let asked = probes.iter().zip(jobs).map(|(probe, job)| match job {
        None => Ok(String::new()),
        Some(job) => one(desk, probe, *job),
    });
    asked.collect()
}

fn one(desk: &Desk<'_>, probe: &Probe, job: JobId) -> Result<String, Failure> {
    let request = Request::Sample(SampleRequest {
        job: Some(JobRef::Id(job)),
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
        when: "after",
        text: &text,
    });
    Ok(text)
}
