//! `spotmux submit`: the jobs of a file, with the files they name, given to a cluster.

use std::path::Path;

use anyhow::Context;
use gpu_actor::peft::files;
use serde_json::{Value, json};
use shared::job::JobSpec;
use shared::life::JobState;
use shared::units::Bytes;
use shared::wire::request::{FileRef, JobRef, Request, Submission};
use shared::wire::view::JobView;

use super::look;
use crate::args::SubmitArgs;
use crate::desk::{Desk, wait};
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
        wait::until(desk, after, || {
            for job in accepted.iter_mut().filter(|job| !job.state.is_final()) {
                *job = desk.job(&Request::Job(JobRef::Id(job.id)))?;
            }
            Ok(accepted.iter().all(|job| job.state.is_final()))
        })?;
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
        let placed = place(job, &file.folder, desk)
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
    let names: Vec<String> = accepted
        .iter()
        .map(|job| format!("{} ({})", job.name, job.id))
        .collect();
    // A coordinator names the job itself where the job is what is wrong.
    let failure = match failure.message().starts_with(&format!("job {name}:")) {
        true => failure,
        false => Failure {
            error: failure.error.context(format!("job {name}")),
            ..failure
        },
    };
    match names.is_empty() {
        true => failure,
        false => failure.hint(format!("accepted before it: {}", names.join(", "))),
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use shared::wire::request::{RefusalCode, Reply};

    use super::*;
    use crate::args::ClusterArgs;
    use crate::control::scripted::{Scripted, refused};
    use crate::desk::tests::at;
    use crate::shown::samples;

    const JOBS: &str = "\
model = 'm'
[[job]]
name = 'one'
adapter = { method = 'ia3' }
data = { train = 'a.jsonl', eval = 'b.jsonl' }
[[job]]
name = 'two'
adapter = { method = 'ia3' }
data = { train = 'a.jsonl' }
init_from = 'old'
";

    fn folder() -> (tempfile::TempDir, SubmitArgs) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("jobs.toml", JOBS);
        write("a.jsonl", "aaa");
        write("b.jsonl", "bb");
        write("old/adapter_config.json", "{}");
        write("old/adapter_model.safetensors", "w");
        let jobs = folder.path().join("jobs.toml");
        let args = SubmitArgs {
            jobs,
            wait: false,
            cluster: ClusterArgs::default(),
        };
        (folder, args)
    }

    fn job(number: u64) -> Vec<Reply> {
        vec![Reply::Job(Box::new(samples::job(
            number,
            "one",
            JobState::Queued,
        )))]
    }

    #[test]
    fn only_what_is_not_there_is_sent_and_each_job_names_its_files() {
        let (_folder, args) = folder();
        let control = Scripted::new(|request, _| match request {
            Request::HasFile(file) if file.path == "b.jsonl" => vec![Reply::Done],
            Request::HasFile(_) => refused(RefusalCode::NotFound, "no such file"),
            Request::PutFile(_) => vec![Reply::Done],
            Request::Submit(_) => job(3),
            // What is asked after all were accepted fails none of them.
            Request::Jobs => refused(RefusalCode::Internal, "it starts"),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            at(&control, None, |desk| run(&args, desk)).unwrap(),
            Exit::Done
        );
        let sent: Vec<Vec<u8>> = control
            .uploaded
            .borrow()
            .iter()
            .map(|sent| sent.1.clone())
            .collect();
        assert_eq!(sent, [&b"aaa"[..], b"aaa", b"{}", b"w"]);
        let asked = control.asked.borrow();
        let submitted: Vec<&Submission> = asked
            .iter()
            .filter_map(|request| match request {
                Request::Submit(submission) => Some(submission),
                _ => None,
            })
            .collect();
        let paths = |submission: &Submission| -> Vec<String> {
            submission
                .files
                .iter()
                .map(|file| file.path.clone())
                .collect()
        };
        assert_eq!(paths(submitted[0]), ["a.jsonl", "b.jsonl"]);
        let from = [
            "a.jsonl",
            "old/adapter_config.json",
            "old/adapter_model.safetensors",
        ];
        assert_eq!(paths(submitted[1]), from);
        let spec: JobSpec = serde_json::from_str(&submitted[1].spec).unwrap();
        assert_eq!(spec.name.as_str(), "two");
    }

    #[test]
    fn jobs_that_are_accepted_are_shown_at_one_moment_or_as_they_were_told() {
        let (queued, trains) = (JobState::Queued, JobState::Running);
        let shown = |answer: Vec<Reply>| {
            let control = Scripted::new(move |request, _| match request {
                Request::Jobs => answer.clone(),
                other => panic!("{other:?}"),
            });
            let mut accepted = [3, 4].map(|number| samples::job(number, "one", queued));
            at(&control, None, |desk| at_one_moment(&mut accepted, desk));
            assert_eq!(*control.asked.borrow(), [Request::Jobs]);
            accepted.map(|job| (job.id, job.state))
        };
        let now = vec![samples::job(4, "one", trains), samples::job(9, "x", trains)];
        let ids = [3, 4].map(|number| samples::job(number, "one", queued).id);
        let told = ids.map(|id| (id, queued));
        assert_eq!(shown(vec![Reply::Jobs(now)]), [told[0], (ids[1], trains)]);
        assert_eq!(shown(refused(RefusalCode::Internal, "too long")), told);
    }

    #[test]
    fn what_is_wrong_with_all_jobs_is_told_before_anything_is_sent() {
        let (folder, args) = folder();
        let jobs = format!(
            "{}optimizer = {{ learning_rate = nan }}\n[[job]]\nname = 'j7'\nadapter = {{ method = 'lora', rank = 0 }}\n\
             data = {{ train = 'absent.jsonl' }}\n",
            JOBS
        );
        fs::write(&args.jobs, jobs).unwrap();
        let control = Scripted::new(|request, _| panic!("{request:?}"));
        let failure = at(&control, None, |desk| run(&args, desk)).unwrap_err();
        let message = failure.message();
        for told in [
            "job two: optimizer.learning_rate: NaN is not a finite number above 0",
            "job j7: name: j7 is how a cluster numbers jobs",
            "job j7: adapter.rank: rank is 0",
            "job j7: cannot read",
        ] {
            assert!(message.contains(told), "{message}");
        }
        assert_eq!(failure.exit, Exit::BadInput);
        drop(folder);
    }

    #[test]
    fn what_is_next_fits_how_jobs_ended() {
        let (well, ill) = (JobState::Succeeded, JobState::Failed);
        let jobs = |states: &[JobState]| -> Vec<JobView> {
            let numbered = (3..).zip(states);
            numbered
                .map(|(id, state)| samples::job(id, "a", *state))
                .collect()
        };
        assert_eq!(next(&jobs(&[ill]), true), ["spotmux job j3"]);
        let both = next(&jobs(&[ill, well]), true);
        assert_eq!(both[0], "spotmux fetch j4 a");
        assert_eq!(both.last().unwrap(), "spotmux job j3");
        assert!(
            next(&jobs(&[well]), true)
                .iter()
                .all(|next| !next.contains("spotmux job "))
        );
        assert_eq!(next(&jobs(&[ill]), false)[0], "spotmux jobs");
    }

    #[test]
    fn a_job_that_ended_before_is_not_taken_for_a_new_one() {
        let failed = samples::job(3, "one", JobState::Failed);
        let said = before(&failed);
        assert!(
            said.contains("as j3, failed") && said.contains("another name"),
            "{said}"
        );
    }

    #[test]
    fn nothing_is_sent_when_a_file_is_absent() {
        let (folder, args) = folder();
        fs::remove_file(folder.path().join("old/adapter_model.safetensors")).unwrap();
        let control = Scripted::new(|request, _| panic!("{request:?}"));
        let failure = at(&control, None, |desk| run(&args, desk)).unwrap_err();
        assert_eq!(failure.exit, Exit::NotFound);
        assert!(
            failure.message().contains("job two: cannot read"),
            "{}",
            failure.message()
        );
    }

    #[test]
    fn a_refused_job_is_named_with_those_before_it() {
        let (_folder, args) = folder();
        let control = Scripted::new(|request, _| match request {
            Request::HasFile(_) => vec![Reply::Done],
            Request::Submit(submission) if submission.spec.contains("\"two\"") => {
                refused(RefusalCode::Busy, "64 jobs are the limit")
            }
            _ => job(3),
        });
        let failure = at(&control, None, |desk| run(&args, desk)).unwrap_err();
        assert_eq!(failure.exit, Exit::Busy);
        assert_eq!(failure.message(), "job two: 64 jobs are the limit");
        assert_eq!(failure.hints, ["accepted before it: one (j3)"]);
    }
}
