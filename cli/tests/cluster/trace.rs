//! The trace of a submission is followed through the logs of all processes; that of a step shows what went on at once.

use std::fs;

use serde_json::Value;

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

/// Whether something that a link carries is under way on a node while its device is at a pass.
fn overlaps(events: &[Value]) -> bool {
    let span = |event: &Value| {
        let (start, took) = (event["ts"].as_u64()?, event["dur"].as_u64()?);
        Some((event["pid"].clone(), start, start + took))
    };
    let of = |fits: &dyn Fn(&str, &str) -> bool| -> Vec<(Value, u64, u64)> {
        let spans = events.iter().filter(|event| {
            let (lane, name) = (event["cat"].as_str(), event["name"].as_str());
            event["ph"] == "X" && fits(lane.unwrap_or_default(), name.unwrap_or_default())
        });
        spans.filter_map(span).collect()
    };
    let passes = of(&|lane, name| lane == "device" && matches!(name, "forward" | "backward"));
    let transfers = of(&|lane, _| lane.starts_with("link out") || lane.starts_with("link in"));
    let both = |(node, start, end): &(Value, u64, u64)| {
        let mut passes = passes.iter().filter(|(other, ..)| other == node);
        passes.any(|(_, from, to)| start.max(from) < end.min(to))
    };
    transfers.iter().any(both)
}

/// And jobs train as the coordinator arranged them.
#[test]
fn what_links_carry_is_under_way_while_devices_compute() {
    let sandbox = Sandbox::new(8);
    let mut cluster = Cluster::start(&sandbox, 2, 2);
    cluster.submit();
    cluster.until("a transfer beside a pass", |cluster| {
        cluster.json(&["trace", "-o", "trace.json"])?;
        let text = fs::read_to_string(cluster.sandbox.path().join("trace.json")).ok()?;
        let trace: Value = serde_json::from_str(&text).unwrap();
        overlaps(trace["traceEvents"].as_array().unwrap()).then_some(())
    });
    cluster.adapters();
    let lead = cluster.holder(0).unwrap();
    let log = sandbox.path().join(format!(".spotmux/logs/{lead}.log"));
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("jobs arranged"), "{log}");
}
