//! What owners ask of jobs: a change, nothing to do, or a refusal.

use shared::ids::{JobId, JobName};
use shared::job::{JobSpec, MAX_PATH, MAX_SPEC};
use shared::life::JobState;
use shared::model::ModelShape;
use shared::wire::request::{Refusal, RefusalCode, Submission};

use super::{Job, Ledger};
use crate::record::{Accepted, Change};

/// Files that a job brings, at most: samples to train on and to hold out, and the two of an adapter to start from.
const MAX_FILES: usize = 4;

/// Bytes of the path of such a file: of its folder and its name.
const MAX_FILE: usize = 2 * MAX_PATH;

/// What becomes of a submission.
#[derive(Clone, Debug, PartialEq)]
pub enum Submitted {
    /// The same job is here already.
    Known(JobId),
    /// A new one.
    New(JobId, Box<Accepted>),
}

fn refuse<T>(code: RefusalCode, message: String) -> Result<T, Refusal> {
    Err(Refusal { code, message })
}

impl Ledger {
    /// Accepts a job once. A job that ended gives its name to other content, and one that was cancelled to any: artifacts
    /// are kept by id.
    ///
    /// # Errors
    /// `Invalid` when the specification does not hold, `Conflict` when a job that has not ended has its name, `Busy` when
    /// `most` jobs have not ended.
    pub fn submit(
        &self,
        submission: &Submission,
        trace: &str,
        shape: &ModelShape,
        most: u32,
    ) -> Result<Submitted, Refusal> {
        let (spec, name) = read(submission, shape)?;
        let mut files = submission.files.clone();
        files.sort();
        let submission = Submission {
            spec: submission.spec.clone(),
            files,
        };
        let written = serde_json::to_string(&spec).map_err(|error| Refusal {
            code: RefusalCode::Internal,
            message: format!("the specification cannot be written again: {error}"),
        })?;
        no_longer(&written)?;
        if let Some(there) = self.names.get(&name).and_then(|id| self.jobs.get(id)) {
            let same = there.spec == written && there.submission.files == submission.files;
            // The same again may be a client that did not hear the answer: it is no other job, unless its owner ended it.
            if same && there.state != JobState::Cancelled {
                return Ok(Submitted::Known(there.id));
            }
            if !there.state.is_final() {
                return refuse(
                    RefusalCode::Conflict,
                    format!(
                        "job {name} is here already as {}, {}, with another specification or other files: give the new \
                         one another name, or cancel that one first (spotmux cancel {})",
                        there.id, there.state, there.id
                    ),
                );
            }
        }
        if self.live() >= most as usize {
            return refuse(
                RefusalCode::Busy,
                format!(
                    "{most} jobs have not ended, the most of `limits.jobs`: submit again when one has, or raise it"
                ),
            );
        }
        let known = self.jobs.keys().next_back().copied();
        let job = known.max(self.last).map_or(JobId(1), |last| last.next());
        let accepted = Box::new(Accepted {
            name,
            method: spec.adapter.in_words(),
            spec: written,
            submission,
            trace: trace.into(),
            replicas: spec.replicas,
            served_from: 0,
        });
        Ok(Submitted::New(job, accepted))
    }

    /// Halts a job.
    ///
    /// # Errors
    /// `Conflict` when its state does not allow it.
    pub fn pause(&self, job: &Job) -> Result<Option<Change>, Refusal> {
        match job.state {
            JobState::Paused => Ok(None),
            JobState::Queued
            | JobState::Provisioning
            | JobState::Running
            | JobState::Recovering => Ok(Some(Change::PauseAsked { job: job.id })),
            _ => illegal(job, "paused"),
        }
    }

    /// Goes on with a job.
    ///
    /// # Errors
    /// `Conflict` when its state does not allow it.
    pub fn resume(&self, job: &Job) -> Result<Option<Change>, Refusal> {
        match job.state {
            JobState::Paused => Ok(Some(Change::ResumeAsked { job: job.id })),
            JobState::Queued
            | JobState::Provisioning
            | JobState::Running
            | JobState::Recovering => Ok(None),
            _ => illegal(job, "resumed"),
        }
    }

    /// Ends a job; again is no error.
    ///
    /// # Errors
    /// `Conflict` when it ended otherwise.
    pub fn cancel(&self, job: &Job) -> Result<Option<Change>, Refusal> {
        match job.state {
            JobState::Cancelling | JobState::Cancelled => Ok(None),
            JobState::Succeeded | JobState::Failed => illegal(job, "cancelled"),
            _ => Ok(Some(Change::CancelAsked { job: job.id })),
        }
    }
}

fn illegal<T>(job: &Job, what: &str) -> Result<T, Refusal> {
    refuse(
        RefusalCode::Conflict,
        format!(
            "job {} ({}) is {}: it cannot be {what}",
            job.name, job.id, job.state
        ),
    )
}

/// A specification travels in every order for its job, and is kept for ever.
fn no_longer(spec: &str) -> Result<(), Refusal> {
    let bytes = spec.len();
    if bytes <= MAX_SPEC {
        return Ok(());
    }
    let message = format!("the specification has {bytes} bytes: use at most {MAX_SPEC}");
    refuse(RefusalCode::Invalid, message)
}

/// Reads a specification and lists everything wrong with it at once.
fn read(submission: &Submission, shape: &ModelShape) -> Result<(JobSpec, JobName), Refusal> {
    let invalid = |message| Refusal {
        code: RefusalCode::Invalid,
        message,
    };
    no_longer(&submission.spec)?;
    let files = submission.files.len();
    if files > MAX_FILES {
        let message = format!("{files} files come with the job: name at most {MAX_FILES}");
        return Err(invalid(message));
    }
    let value = shared::strict_json::parse(&submission.spec)
        .map_err(|error| invalid(format!("the specification is not JSON: {error}")))?;
    let spec: JobSpec = serde_json::from_value(value)
        .map_err(|error| invalid(format!("the specification is not one of a job: {error}")))?;
    let mut problems: Vec<String> = spec
        .problems(shape)
        .iter()
        .map(ToString::to_string)
        .collect();
    let named = [Some(&spec.data.train), spec.data.eval.as_ref()];
    for file in &submission.files {
        let (path, hash) = (file.path.len(), file.sha256.len());
        if path > MAX_FILE || hash > 64 {
            problems.push(format!(
                "files: a path has {path} bytes and its sha256 {hash} digits: use at most {MAX_FILE} and 64"
            ));
        }
    }
    for path in named.into_iter().flatten() {
        if !submission.files.iter().any(|file| file.path == *path) {
            problems.push(format!(
                "data: {path} was not uploaded: upload it and name it in `files`"
            ));
        }
    }
    if !problems.is_empty() {
        return Err(invalid(format!(
            "job {}: {}",
            spec.name,
            problems.join("; ")
        )));
    }
    let name = spec.name.clone();
    Ok((spec, name))
}
