//! The trace of a submission is followed through the logs of all processes.

use std::fs;

use super::run::{Cluster, Sandbox};

#[test]
fn a_job_is_followed_from_its_submission_to_its_steps_by_one_word() {
    let sandbox = Sandbox::new(1);
    let log = "[telemetry]\nlog = \"info,gpu_actor=debug\"\n";
    let mut cluster = Cluster::start_with(&sandbox, 2, 2, log);
    cluster.submit();
    cluster.adapters();
    let jobs = cluster.jobs().unwrap();
    let id = jobs[0]["id"].as_str().unwrap();
    let shown = cluster.json(&["job", id]).unwrap();
    let shown = shown.get("job").unwrap_or(&shown);
    let trace = shown["trace"].as_str().unwrap().to_owned();
    assert_eq!(trace.len(), 32, "{shown}");
    let mut found = String::new();
    for entry in fs::read_dir(sandbox.path().join(".spotmux/logs")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.contains(&trace)) {
            found.push_str(line);
            found.push('\n');
        }
    }
    for word in [
        "job submitted",
        "job prepared",
        "job placed",
        "job admitted",
        "state durable",
        "adapter exported",
        "job ended",
    ] {
        assert!(
            found.contains(word),
            "{word} is not in\n{found}\n{}",
            cluster.logs()
        );
    }
    let steps = found.lines().filter(|line| line.contains("step taken"));
    assert_eq!(steps.count(), 30, "{found}");
}
