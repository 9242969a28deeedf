//! Each job with its data, its values and its earlier state, or everything that is wrong with all of them at once.

use data::dataset::LoadError;
use gpu_actor::train::prepare::{self, PrepareError, Surroundings};
use gpu_actor::train::progress;
use kernels::cpu::Cpu;
use shared::job::JobSpec;

use super::job_file::Jobs;
use super::place::Place;
use crate::backbone::Backbone;
use crate::exit::{Exit, Failure};
use crate::render::Output;

/// Problems of one data set that are told; the rest is counted.
const TOLD_OF_A_FILE: usize = 10;

/// A job that can run.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// What the engine needs of it.
    pub(crate) ready: prepare::Prepared,
    /// Optimizer steps in all.
    pub(crate) total: u64,
    /// Where its results go.
    pub(crate) place: Place,
    /// Whether its adapter is written already.
    pub(crate) done: bool,
}

impl Prepared {
    /// What is asked for.
    pub(crate) fn spec(&self) -> &JobSpec {
        &self.ready.spec
    }

    /// Its name as text.
    pub(crate) fn name(&self) -> &str {
        self.ready.spec.name.as_str()
    }

    /// Steps taken by an earlier run.
    pub(crate) fn steps_taken(&self) -> u64 {
        self.ready
            .state
            .as_ref()
            .map_or(0, |state| state.progress.step)
    }

    /// Tokens of the longest row, virtual ones included.
    pub(crate) fn longest_row(&self) -> usize {
        let data = &self.ready.data;
        let rows = data.train.iter().chain(&data.eval);
        rows.map(|row| row.ids.len()).max().unwrap_or(0) + self.ready.layout.virtual_tokens()
    }
}

/// Prepares all jobs of a file; nothing is written.
///
/// # Errors
/// [`Exit::BadInput`] with every problem of every job.
pub(crate) fn prepare(
    jobs: &Jobs,
    backbone: &Backbone,
    cpu: &Cpu,
    output: &Output,
) -> Result<Vec<Prepared>, Failure> {
    let hash = backbone.model.content_hash();
    let around = Surroundings {
        model: &backbone.model,
        backbone: &hash,
        tokenizer: &backbone.language.tokenizer,
        template: &backbone.language.template,
        cpu,
        folder: &jobs.folder,
    };
    let (mut prepared, mut problems) = (Vec::new(), Vec::new());
    for spec in &jobs.file.jobs {
        match one(spec, &around, jobs, output) {
            Ok(job) => prepared.push(job),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() {
        return Ok(prepared);
    }
    let message = format!(
        "{} cannot be trained:\n{}",
        jobs.path.display(),
        problems.join("\n")
    );
    Err(Failure::new(Exit::BadInput, message).hint("nothing was trained and nothing was written"))
}

fn one(
    spec: &JobSpec,
    around: &Surroundings<'_>,
    jobs: &Jobs,
    output: &Output,
) -> Result<Prepared, Vec<String>> {
    let place = Place::new(&jobs.output, &spec.name);
    let ready =
        prepare::prepare(spec, around, Some(&place.checkpoints())).map_err(|error| told(&error))?;
    for skipped in &ready.skipped {
        output.note(format!(
            "job {}: skipped a checkpoint: {skipped}",
            spec.name
        ));
    }
    let (rows, held_out) = (ready.data.train.len(), ready.data.eval.len());
    for remark in spec.remarks(rows, held_out) {
        output.note(format!("job {}: {remark}", spec.name));
    }
    if ready.data.eval.is_empty() && spec.eval.patience.is_some() {
        return Err(vec![format!(
            "job {}: eval.patience: no row is held out to judge by: give data.eval or data.eval_split",
            spec.name
        )]);
    }
    let written = place.adapter().exists();
    let done = written
        && ready
            .state
            .as_ref()
            .is_some_and(|state| place.adapter_step() == Some(state.progress.step));
    if written && !done {
        return Err(vec![format!(
            "job {}: {} is there already, and not from this job: choose another output folder, or remove it",
            spec.name,
            place.adapter().display()
        )]);
    }
    let total = progress::total_steps(&spec.train, ready.data.train.len());
    Ok(Prepared {
        ready,
        total,
        place,
        done,
    })
}

/// What is wrong with a job; of a data set the first problems, one sentence each.
fn told(error: &PrepareError) -> Vec<String> {
    let PrepareError::Data { job, source } = error else {
        return vec![error.to_string()];
    };
    let LoadError::Rejected { name, report } = source.as_ref() else {
        return vec![error.to_string()];
    };
    let listed = report.errors.listed.iter().take(TOLD_OF_A_FILE);
    let mut told: Vec<String> = listed
        .map(|problem| format!("job {job}: {name}: {problem}"))
        .collect();
    let more = report.errors.count().saturating_sub(told.len() as u64);
    if more > 0 {
        told.push(format!(
            "job {job}: {name}: and {more} more; all of them: spotmux data check {name}"
        ));
    }
    told
}
