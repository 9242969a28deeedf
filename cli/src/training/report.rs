//! What came of a run, job by job.

use gpu_actor::train::progress::Progress;
use gpu_actor::train::store;
use serde::Serialize;

use super::prepare::Prepared;
use super::run::Run;
use crate::render::{self, Align, Table};

/// A checkpoint to go on from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LastGood {
    /// Its step.
    pub(crate) step: u64,
    /// Its folder.
    pub(crate) checkpoint: String,
}

/// One job's outcome.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobReport {
    /// Its name.
    pub(crate) job: String,
    /// Its method in a few words.
    pub(crate) method: String,
    /// `finished`, `quarantined` or `interrupted`.
    pub(crate) state: &'static str,
    /// Why it was set aside.
    pub(crate) reason: Option<String>,
    /// The newest checkpoint of one that was set aside with which loss and gradient were finite.
    pub(crate) last_good: Option<LastGood>,
    /// Optimizer steps taken.
    pub(crate) step: u64,
    /// Steps in all.
    pub(crate) total: u64,
    /// Tokens trained on, over all steps.
    pub(crate) tokens: u64,
    /// Training loss of the first step and of the last.
    pub(crate) loss: [Option<f64>; 2],
    /// Held-out loss at the start and at the end.
    pub(crate) held_out: [Option<f64>; 2],
    /// Bytes of the adapter's values.
    pub(crate) adapter_bytes: u64,
    /// Folder of the adapter.
    pub(crate) adapter: String,
}

impl JobReport {
    /// The falling loss that tells most: held-out where there is one.
    pub(crate) fn fall(&self) -> [Option<f64>; 2] {
        if self.held_out[1].is_some() {
            self.held_out
        } else {
            self.loss
        }
    }
}

/// Reports of all jobs, in the order of the file.
pub(crate) fn of(run: &Run) -> Vec<JobReport> {
    run.jobs.iter().map(|job| one(run, job)).collect()
}

fn one(run: &Run, job: &Prepared) -> JobReport {
    let running = run
        .session
        .progress(&job.spec().name)
        .map(|(progress, _)| progress.clone());
    let progress: Progress = running.unwrap_or_else(|| job.progress());
    let reason = run.set_aside(&job.spec().name).map(str::to_owned);
    let last_good = reason.as_ref().and_then(|_| last_good(run, job));
    JobReport {
        last_good,
        ..came(job, &progress, reason)
    }
}

/// The newest proven checkpoint; one of no step has nothing of the training.
fn last_good(run: &Run, job: &Prepared) -> Option<LastGood> {
    let proof = run.session.proof(&job.spec().name)?;
    let found = store::newest_proven(&job.place.checkpoints(), proof).ok()?;
    let (step, path) = found.filter(|(step, _)| *step > 0)?;
    Some(LastGood {
        step,
        checkpoint: path.display().to_string(),
    })
}

/// What a job that came so far leaves.
pub(crate) fn came(job: &Prepared, progress: &Progress, reason: Option<String>) -> JobReport {
    let adapter = job.place.adapter();
    let state = match (&reason, adapter.exists()) {
        (Some(_), _) => "quarantined",
        (None, true) => "finished",
        (None, false) => "interrupted",
    };
    JobReport {
        job: job.name().into(),
        method: job.spec().adapter.in_words(),
        state,
        reason,
        last_good: None,
        step: progress.step,
        total: job.total,
        tokens: progress.tokens,
        loss: [progress.first_loss, progress.last_loss],
        held_out: [progress.first_eval, progress.last_eval],
        adapter_bytes: job.ready.layout.len as u64 * 4,
        adapter: adapter.display().to_string(),
    }
}

/// The reports as a table.
pub(crate) fn table(reports: &[JobReport]) -> String {
    let (l, r) = (Align::Left, Align::Right);
    let heads = [
        ("job", l),
        ("method", l),
        ("steps", r),
        ("tokens", r),
        ("loss", r),
        ("held-out", r),
        ("adapter", r),
        ("state", l),
    ];
    let mut table = Table::new(&heads);
    for report in reports {
        table.row([
            report.job.clone(),
            report.method.clone(),
            format!("{}/{}", report.step, report.total),
            render::count(report.tokens),
            arrow(report.loss),
            arrow(report.held_out),
            render::bytes(report.adapter_bytes),
            report.state.to_owned(),
        ]);
    }
    table.text()
}

/// Two numbers as `2.13 -> 0.41`, or a dash.
pub(crate) fn arrow([first, last]: [Option<f64>; 2]) -> String {
    match (first, last) {
        (Some(first), Some(last)) => format!("{first:.2} -> {last:.2}"),
        _ => "-".into(),
    }
}
