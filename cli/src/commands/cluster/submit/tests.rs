#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use shared::wire::request::{RefusalCode, Reply};
use shared::wire::view::Level;

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
fn a_wait_goes_on_over_a_restart_and_knows_the_end_of_a_job_that_is_let_go_of() {
    let (_folder, mut args) = folder();
    args.wait = true;
    let control = Scripted::new(|request, before| match request {
        Request::HasFile(_) => vec![Reply::Done],
        Request::Submit(_) => job(3),
        Request::Job(_) if before < 14 => refused(RefusalCode::Busy, "it is ending"),
        Request::Job(_) => refused(RefusalCode::NotFound, "no job j3 is known here"),
        Request::Events { follow: true, .. } if before < 14 => {
            refused(RefusalCode::Busy, "it is ending")
        }
        Request::Events { follow: true, .. } => {
            let step = samples::event(8, Level::Info, "step", "");
            vec![Reply::Events(vec![step])]
        }
        Request::Status => vec![Reply::Cluster(samples::cluster())],
        Request::Events { after, .. } if before > 14 && after.0 == 7 => {
            let well = samples::event(8, Level::Info, "job_succeeded", "");
            vec![Reply::Events(vec![well]), Reply::Done]
        }
        Request::Events { .. } => vec![Reply::Done],
        other => panic!("{other:?}"),
    });
    let exit = at(&control, None, |desk| run(&args, desk));
    assert_eq!(exit.unwrap(), Exit::Done);
    assert!(control.again.get() > 0);
}

#[test]
fn a_wait_that_fails_names_the_jobs_that_go_on() {
    let (_folder, mut args) = folder();
    args.wait = true;
    let control = Scripted::new(|request, _| match request {
        Request::HasFile(_) => vec![Reply::Done],
        Request::Submit(_) | Request::Job(_) => job(3),
        Request::Status => vec![Reply::Cluster(samples::cluster())],
        _ => refused(RefusalCode::Forbidden, "the certificate ended"),
    });
    let failure = at(&control, None, |desk| run(&args, desk)).unwrap_err();
    assert_eq!(failure.exit, Exit::Forbidden);
    assert_eq!(failure.hints, ["accepted before that: one (j3), one (j3)"]);
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
