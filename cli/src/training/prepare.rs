//! Each job with its data, its values and its earlier state, or everything that is wrong with all of them at once.

use std::path::Path;

use data::dataset::LoadError;
use gpu_actor::train::prepare::{self, PrepareError, Surroundings};
use gpu_actor::train::progress::{self, Progress};
use gpu_actor::train::store;
use kernels::cpu::Cpu;
use shared::job::{DataSpec, JobSpec, Overlong};

use super::accounting;
use super::job_file::Jobs;
use super::lock::Lock;
use super::place::Place;
use super::proof;
use super::record::Record;
use crate::adapter_folder;
use crate::backbone::Backbone;
use crate::exit::{self, Exit, Failure};
use crate::render::{self, Output};

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
    /// Whether its adapter is written already, and sound.
    pub(crate) done: bool,
    /// Whether a damaged adapter of this job must make room.
    pub(super) damaged: bool,
    /// How far an earlier run came.
    pub(super) progress: Progress,
    /// Whether its folder was there when it was looked at.
    pub(super) known: bool,
    /// What its owner is warned of before it trains.
    pub(crate) warnings: Vec<String>,
    /// Keeps other runs away.
    pub(super) lock: Option<Lock>,
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
        self.progress.step
    }

    /// How far an earlier run came.
    pub(crate) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Tokens of the longest row, virtual ones included.
    pub(crate) fn longest_row(&self) -> usize {
        let data = &self.ready.data;
        let rows = data.train.iter().chain(&data.eval);
        rows.map(|row| row.ids.len()).max().unwrap_or(0) + self.spec().adapter.virtual_tokens()
    }
}

/// Prepares all jobs of a file; nothing is written. With `only_looks`, a run that is under way is not in the way.
///
/// # Errors
/// [`Exit::BadInput`] with every problem of every job; [`Exit::NotFound`] when files are absent and nothing else is
/// wrong.
pub(crate) fn prepare(
    jobs: &Jobs,
    backbone: &Backbone,
    cpu: &Cpu,
    only_looks: bool,
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
    let mut absent = true;
    for spec in &jobs.file.jobs {
        match one(spec, &around, jobs, only_looks, output) {
            Ok(job) => prepared.push(job),
            Err(found) => {
                absent &= found.exit == Exit::NotFound;
                problems.extend(found.sentences);
            }
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
    let exit = if absent {
        Exit::NotFound
    } else {
        Exit::BadInput
    };
    Err(Failure::new(exit, message).hint("nothing was trained and nothing was written"))
}

fn one(
    spec: &JobSpec,
    around: &Surroundings<'_>,
    jobs: &Jobs,
    only_looks: bool,
    output: &Output,
) -> Result<Prepared, Problems> {
    let place = Place::new(&jobs.output, &spec.name);
    let refused = |why: String| Problems {
        exit: Exit::BadInput,
        sentences: vec![format!("job {}: {why}", spec.name)],
    };
    let context = around.model.shape.max_positions;
    let known = place.exists();
    // Before anything there is read: what is read stays true.
    let lock = match only_looks {
        true => None,
        false => place.lock().map_err(|error| refused(error.to_string()))?,
    };
    let wrong = |error: PrepareError| {
        let mut sentences = told(&error, spec, jobs, context);
        if let (Some(last), Some(remedy)) = (sentences.last_mut(), exit::remedy(&error)) {
            last.push_str(&format!(": {remedy}"));
        }
        Problems {
            exit: exit::of_input(&error),
            sentences,
        }
    };
    let start = start_of_results(spec, around, &place);
    let mut ready = prepare::prepare(spec, around, start.as_deref()).map_err(wrong)?;
    if let Some(from) = &spec.init_from {
        proof::prove(&around.folder.join(from))
            .map_err(|failure| refused(format!("init_from: {}", failure.message())))?;
    }
    let adapter = place.adapter();
    let there = adapter.symlink_metadata().is_ok();
    let hash = ready.identity.hash();
    let (record, torn) = match Record::read(&adapter) {
        Ok(record) => (record, None),
        Err(torn) => (None, Some(torn)),
    };
    let record = record.filter(|record| record.job_sha256.as_deref() == Some(&*hash));
    let damage = record.as_ref().and_then(|record| record.damage(&adapter));
    // Of a torn one the job's checkpoints must tell whose it is.
    let damage = damage.or(torn);
    let done = there && record.is_some() && damage.is_none();
    if !done {
        // A sound adapter of the job needs no checkpoints, whoever wrote them.
        ready.look_for_state(&place.checkpoints()).map_err(wrong)?;
        place.metrics_are_text().map_err(refused)?;
    }
    if start.is_some() && !done && ready.state.is_none() {
        let from = spec.init_from.as_deref().unwrap_or_default();
        return Err(refused(format!(
            "init_from: no adapter is at {from} any more, and no checkpoint is left to go on from: put it back"
        )));
    }
    let rows = ready.data.train.len();
    let total = progress::total_steps(&spec.train, rows);
    let warnings = note(&ready, total, around, jobs, output);
    if ready.data.eval.is_empty() && spec.eval.patience.is_some() {
        return Err(refused(nothing_to_judge_by(spec, rows)));
    }
    let shown = adapter.display();
    if there && record.is_none() && damage.is_none() {
        return Err(refused(format!(
            "{shown} is there already, and not from this job: choose another output folder, or remove it"
        )));
    }
    match (&damage, &ready.state) {
        (Some(damage), None) => {
            return Err(refused(format!(
                "{shown} is damaged ({damage}), and no checkpoint is left to write it from: remove it to train again"
            )));
        }
        (Some(damage), Some(_)) => output.note(format!(
            "job {}: {shown} is damaged ({damage}): it is set aside and written anew from the newest checkpoint",
            spec.name
        )),
        (None, _) => {}
    }
    let written = record.as_ref().filter(|_| done).map(Record::progress);
    let saved = ready.state.as_ref().map(|state| state.progress.clone());
    let progress = written.or(saved).unwrap_or_default();
    if done {
        // Its rows are told and counted; its values are in the adapter.
        ready.values = Vec::new();
    }
    Ok(Prepared {
        ready,
        warnings,
        total,
        place,
        done,
        damaged: damage.is_some(),
        progress,
        known,
        lock,
    })
}

/// Notes what is worth knowing of a job that can be trained, for so many steps in all; gives the warnings of its data.
fn note(
    ready: &prepare::Prepared,
    total: u64,
    around: &Surroundings<'_>,
    jobs: &Jobs,
    output: &Output,
) -> Vec<String> {
    let spec = &ready.identity.spec;
    for skipped in &ready.skipped {
        output.note(format!(
            "job {}: skipped a checkpoint: {skipped}",
            spec.name
        ));
    }
    if let Some(other) = base_of_start(spec, around) {
        output.note(format!("job {}: init_from: {other}", spec.name));
    }
    let (rows, held_out) = (ready.data.train.len(), ready.data.eval.len());
    for remark in spec.remarks(rows, held_out, total) {
        output.note(format!("job {}: {remark}", spec.name));
    }
    let files = ready.data.samples(&spec.data);
    let warnings = accounting::warnings(&files, |file| {
        let path = jobs.folder.join(file).display().to_string();
        whole_check(&path, spec, jobs, around.model.shape.max_positions)
    });
    for warning in &warnings {
        output.note(format!("job {}: {warning}", spec.name));
    }
    warnings
}

/// The hash of the values that a job started from, by its own results, where the adapter that it started from is gone.
fn start_of_results(spec: &JobSpec, around: &Surroundings<'_>, place: &Place) -> Option<String> {
    let from = around.folder.join(spec.init_from.as_ref()?);
    if !prepare::is_gone(&from) {
        return None;
    }
    let adapter = place.adapter();
    let recorded = Record::read(&adapter).ok().flatten();
    let saved = || store::open(adapter.parent()?, None).ok().flatten();
    recorded
        .and_then(|record| record.start_sha256)
        .or_else(|| saved()?.identity.start)
}

/// What is to be said of the base model that the adapter names which a job starts from.
fn base_of_start(spec: &JobSpec, around: &Surroundings<'_>) -> Option<String> {
    let folder = around.folder.join(spec.init_from.as_ref()?);
    let base = adapter_folder::base_of(&folder);
    let own = around.model.name.as_deref();
    let compared = adapter_folder::compare_with(&base, own, || around.backbone.to_owned());
    compared.noted().map(str::to_owned)
}

/// Why early stopping has no row to look at, and what gives it one.
fn nothing_to_judge_by(spec: &JobSpec, rows: usize) -> String {
    let data = &spec.data;
    let remedy = match (&data.eval, data.eval_split > 0.0) {
        (Some(file), _) => format!("{file} gave none: put rows into it that can be measured"),
        (None, true) => format!(
            "data.eval_split holds out none where {rows} is all there is: give more rows, or a file data.eval"
        ),
        (None, false) => "give data.eval or data.eval_split".to_owned(),
    };
    format!("eval.patience: no row is held out to judge by: {remedy}")
}

/// The command that lists all that is wrong with a file of samples of a job, named from here, as the job reads it.
///
/// `context` is what the model takes: virtual tokens of the job are taken off, of which the command knows nothing.
fn whole_check(name: &str, spec: &JobSpec, jobs: &Jobs, context: usize) -> String {
    let data = &spec.data;
    let mut command = format!(
        "spotmux data check {} --model {}",
        render::shell_word(name),
        render::shell_word(&jobs.model_from_here())
    );
    let virtual_tokens = spec.adapter.virtual_tokens();
    let left = (virtual_tokens > 0).then(|| context.saturating_sub(virtual_tokens));
    if let Some(length) = data.max_length.or(left) {
        command.push_str(&format!(" --max-length {length}"));
    }
    match data.overlong {
        Overlong::Drop => {}
        Overlong::Truncate => command.push_str(" --overlong truncate"),
        Overlong::Error => command.push_str(" --overlong error"),
    }
    if data.train_on_inputs {
        command.push_str(" --train-on-inputs");
    }
    if data.max_dropped != DataSpec::MAX_DROPPED {
        command.push_str(&format!(" --max-dropped {}", data.max_dropped));
    }
    command
}

/// Everything wrong with one job.
struct Problems {
    exit: Exit,
    sentences: Vec<String>,
}

/// What is wrong with a job; of a data set the first problems, one sentence each.
fn told(error: &PrepareError, spec: &JobSpec, jobs: &Jobs, context: usize) -> Vec<String> {
    if let (PrepareError::InitFrom { .. }, Some(from)) = (error, &spec.init_from) {
        let inner = adapter_folder::inner(&jobs.folder.join(from));
        let remedy = inner.map_or_else(String::new, |_| {
            let inside = Path::new(from).join("adapter").display().to_string();
            format!(
                ": this is the folder of a job, its adapter lies inside: init_from = {}",
                render::toml_text(&inside)
            )
        });
        return vec![format!("{error}{remedy}")];
    }
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
            "job {job}: {name}: and {more} more; all of them: {}",
            whole_check(name, spec, jobs, context)
        ));
    }
    told
}
