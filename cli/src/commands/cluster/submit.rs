//! `spotmux submit`: the jobs of a file, with the files they name, given to a cluster.

use std::path::Path;

use anyhow::Context;
use gpu_actor::peft::files;
use serde_json::{Value, json};
use shared::ids::EventNumber;
use shared::job::JobSpec;
use shared::life::JobState;
use shared::units::Bytes;
use shared::wire::request::{FileRef, Request, Submission};
use shared::wire::view::JobView;

use super::look;
use crate::adapter_folder;
use crate::args::SubmitArgs;
use crate::desk::{Desk, known, wait};
use crate::exit::{Exit, Failure, OrExit};
use crate::render;
use crate::shown::jobs;
use crate::store::hash;
use crate::training::job_file::Jobs;

/// A job with its files, each as it lies here.
#[derive(Debug)]
struct Ready {
    submission: Submission,
    name: String,
}

/// Runs the command: nothing is sent before every file of every job was read.
pub(crate) fn run(args: &SubmitArgs, desk: &Desk<'_>) -> Result<Exit, Failure> {
    let file = Jobs::read(&args.jobs)?;
    let after = if args.wait {
        wait::newest(desk)?
    } else {
        Default::default()
    };
    let mut accepted = send(&file, desk)?;
    for job in accepted.iter().filter(|job| job.state.is_final()) {
        desk.output.note(before(job));
    }
    if args.wait {
        let ids = ids(&accepted);
        desk.output.note(format!("accepted: {ids}"));
        until_ended(&mut accepted, after, desk)
            .map_err(|failure| failure.hint(format!("accepted before that: {ids}")))?;
    }
    for note in of_bases(&file, desk) {
        desk.output.note(note);
    }
    if !args.wait && accepted.len() > 1 {
        at_one_moment(&mut accepted, desk);
    }
    for warning in accepted.iter().flat_map(of_samples) {
        desk.output.note(warning);
    }
    let listed: Vec<Value> = accepted.iter().map(jobs::told).collect();
    desk.output.result(
        &json!({ "jobs": listed }),
        &jobs::table(&accepted, desk.now),
    )?;
    desk.output.next(&next(&accepted, args.wait));
    Ok(if args.wait {
        wait::exit_of(&accepted)
    } else {
        Exit::Done
    })
}

/// What is to be said of adapters that jobs start from: the cluster takes them by their shapes.
fn of_bases(file: &Jobs, desk: &Desk<'_>) -> Vec<String> {
    let jobs = file.file.jobs.iter();
    let starts = jobs.filter_map(|spec| Some((spec, file.folder.join(spec.init_from.as_ref()?))));
    let named = starts.filter(|(_, from)| adapter_folder::named_base(from).is_some());
    let named: Vec<_> = named.collect();
    if named.is_empty() {
        return Vec::new();
    }
    // The jobs are accepted whatever comes of the question.
    let Ok(cluster) = desk.status() else {
        return Vec::new();
    };
    let told = named.into_iter().filter_map(|(spec, from)| {
        let other = adapter_folder::other_base_by_name(&from, &cluster.model)?;
        Some(format!("job {}: warning: init_from: {other}", spec.name))
    });
    told.collect()
}

/// Waits for the end of all of them.
fn until_ended(
    accepted: &mut [JobView],
    after: EventNumber,
    desk: &Desk<'_>,
) -> Result<(), Failure> {
    wait::until(desk, after, || {
        for job in accepted.iter_mut().filter(|job| !job.state.is_final()) {
            *job = known::now(desk, job, after)?;
        }
        Ok(accepted.iter().all(|job| job.state.is_final()))
    })
}

/// Names of jobs, each with its id.
fn ids(jobs: &[JobView]) -> String {
    let each = jobs.iter().map(|job| format!("{} ({})", job.name, job.id));
    each.collect::<Vec<String>>().join(", ")
}

/// Where jobs are, all at one moment: each was told when it was accepted, and those before it may have begun since. They
/// are accepted whatever comes of the question: without an answer they stay as they were told.
fn at_one_moment(accepted: &mut [JobView], desk: &Desk<'_>) {
    let Ok(all) = look::all_jobs(desk) else {
        return;
    };
    for job in accepted {
        if let Some(now) = all.iter().find(|now| now.id == job.id) {
            job.state = now.state;
            (job.replica, job.queue_position) = (now.replica, now.queue_position);
        }
    }
}

/// What is useful now: of jobs that were waited for, of one that succeeded, and why another did not.
fn next(jobs: &[JobView], waited: bool) -> Vec<String> {
    if !waited {
        let first = jobs.first().map(|job| job.id);
        let follow = first.map(|id| format!("spotmux events -f --job {id}"));
        return std::iter::once("spotmux jobs".into())
            .chain(follow)
            .collect();
    }
    let well = jobs.iter().find(|job| job.state == JobState::Succeeded);
    let ill = jobs.iter().find(|job| job.state != JobState::Succeeded);
    let well = well.into_iter().flat_map(look::of_succeeded);
    well.chain(ill.map(|job| format!("spotmux job {}", job.id)))
        .collect()
}

/// What its owner is warned of: samples that are left out or cut.
fn of_samples(job: &JobView) -> impl Iterator<Item = String> {
    let odd = job.samples.iter().filter(|file| !file.is_whole());
    odd.map(|file| format!("job {}: warning: {file}", job.name))
}

/// What there is to say of a job that ended before it was submitted again.
fn before(job: &JobView) -> String {
    let (name, id, state) = (&job.name, job.id, job.state);
    format!(
        "job {name} is here already as {id}, {state}, with the same content: it is not trained again; change it, or give \
         it another name"
    )
}

/// Gives all jobs of a file to the cluster: nothing is sent before every file of every job was read.
///
/// # Errors
/// What cannot be read, and what the cluster refuses, with the jobs that were accepted before.
pub(crate) fn send(file: &Jobs, desk: &Desk<'_>) -> Result<Vec<JobView>, Failure> {
    let ready = prepared(file)?;
    let mut accepted: Vec<JobView> = Vec::new();
    for job in &ready {
        let placed = wait::over_restarts(desk, || place(job, &file.folder, desk))
            .map_err(|failure| told(failure, &job.name, &accepted))?;
        accepted.push(placed);
    }
    Ok(accepted)
}

/// Reads every file of every job.
///
/// # Errors
/// [`Exit::BadInput`] with everything that is wrong with every job, whatever the cluster's model is; [`Exit::NotFound`]
/// when files are absent and nothing else is wrong.
fn prepared(file: &Jobs) -> Result<Vec<Ready>, Failure> {
    let (mut ready, mut problems) = (Vec::new(), Vec::new());
    let mut absent = true;
    for spec in &file.file.jobs {
        let wrong = spec.problems_anywhere();
        absent &= wrong.is_empty();
        problems.extend(
            wrong
                .iter()
                .map(|wrong| format!("job {}: {wrong}", spec.name)),
        );
        match prepare(spec, &file.folder) {
            Ok(job) => ready.push(job),
            Err(failure) => {
                absent &= failure.exit == Exit::NotFound;
                problems.push(failure.message());
            }
        }
    }
    if problems.is_empty() {
        return Ok(ready);
    }
    let exit = match absent {
        true => Exit::NotFound,
        false => Exit::BadInput,
    };
    let message = format!(
        "{} cannot be submitted:\n{}",
        file.path.display(),
        problems.join("\n")
    );
    Err(Failure::new(exit, message).hint("nothing was sent"))
}

/// Which job it was, and which are accepted all the same.
fn told(failure: Failure, name: &str, accepted: &[JobView]) -> Failure {
    // A coordinator names the job itself where the job is what is wrong.
    let failure = match failure.message().starts_with(&format!("job {name}:")) {
        true => failure,
        false => Failure {
            error: failure.error.context(format!("job {name}")),
            ..failure
        },
    };
    match accepted.is_empty() {
        true => failure,
        false => failure.hint(format!("accepted before it: {}", ids(accepted))),
    }
}

/// Reads every file that a job names.
fn prepare(spec: &JobSpec, folder: &Path) -> Result<Ready, Failure> {
    let mut paths = vec![spec.data.train.clone()];
    paths.extend(spec.data.eval.clone());
    if let Some(from) = &spec.init_from {
        paths.push(format!("{from}/{}", files::CONFIG));
        let weights = [files::WEIGHTS, files::HUB_WEIGHTS];
        let there = weights
            .iter()
            .find(|name| folder.join(from).join(name).exists());
        paths.push(format!("{from}/{}", there.unwrap_or(&weights[0])));
    }
    let name = spec.name.to_string();
    let mut files = Vec::new();
    for path in paths {
        let (bytes, sha256) = hash::file(&folder.join(&path))
            .with_context(|| format!("job {name}: cannot read {}", folder.join(&path).display()))
            .or_exit(Exit::BadInput)?;
        files.push(FileRef {
            path,
            sha256,
            bytes: Bytes(bytes),
        });
    }
    let spec = serde_json::to_string(spec)
        .with_context(|| format!("job {name} cannot be written as JSON"))
        .or_exit(Exit::Internal)?;
    Ok(Ready {
        submission: Submission { spec, files },
        name,
    })
}

/// Sends what the cluster lacks, then the job.
fn place(job: &Ready, folder: &Path, desk: &Desk<'_>) -> Result<JobView, Failure> {
    for file in &job.submission.files {
        match desk.done(&Request::HasFile(file.clone())) {
            Ok(()) => {}
            Err(refused) if refused.exit == Exit::NotFound => {
                desk.output.note(format!(
                    "sending {} ({})",
                    file.path,
                    render::bytes(file.bytes.0)
                ));
                desk.control.upload(file, &folder.join(&file.path))?;
            }
            Err(refused) => return Err(refused),
        }
    }
    desk.job(&Request::Submit(job.submission.clone()))
}

#[cfg(test)]
mod tests;
