//! What processes of a cluster tell of themselves is scraped, and is what happened.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::run::{Cluster, Sandbox};
use shared::telemetry::names::{COORDINATOR, GPU_ACTOR, Series};

fn get(address: &str, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

/// The sum of a series over its labels.
fn value(text: &str, name: &str) -> f64 {
    let lines = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    });
    let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.sum()
}

/// Every line is a comment or a value; every series has its help and kind.
fn check(text: &str, all: &[Series]) {
    for line in text.lines().filter(|line| !line.is_empty()) {
        let comment = line.starts_with("# HELP ") || line.starts_with("# TYPE ");
        let number = line.rsplit(' ').next().unwrap().parse::<f64>();
        assert!(comment || number.is_ok(), "{line}");
    }
    for series in all {
        let (name, kind) = (series.name, series.kind.word());
        assert!(
            text.contains(&format!("# HELP {name} {}\n", series.help)),
            "{name}\n{text}"
        );
        assert!(
            text.contains(&format!("# TYPE {name} {kind}\n")),
            "{name}\n{text}"
        );
    }
    judge(text);
}

/// The judge of Prometheus itself, where it is installed.
fn judge(text: &str) {
    let mut judge = Command::new("promtool");
    judge
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let Ok(mut judge) = judge.stderr(Stdio::piped()).spawn() else {
        eprintln!("SKIPPED: promtool is not installed");
        return;
    };
    judge
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let judged = judge.wait_with_output().unwrap();
    assert!(
        judged.status.success(),
        "{}",
        String::from_utf8_lossy(&judged.stderr)
    );
}

/// Ports that the cluster's file names, as `key = "ADDRESS"`.
fn addresses(sandbox: &Sandbox, key: &str) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path().join("cluster.toml")).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    lines
        .map(|address| address.trim_matches('"').to_owned())
        .collect()
}

#[test]
fn all_series_are_told_with_help_and_count_what_happened() {
    let sandbox = Sandbox::new(1);
    let mut cluster = Cluster::start(&sandbox, 2, 2);
    cluster.submit();
    cluster.adapters();
    let coordinator = addresses(&sandbox, "metrics")[0].clone();
    let text = cluster.until("the end of the job is measured", |_| {
        let (status, text) = get(&coordinator, "/metrics")?;
        assert_eq!(status, "HTTP/1.1 200 OK");
        text.contains("\nspotmux_jobs{state=\"succeeded\"} 1\n")
            .then_some(text)
    });
    check(&text, COORDINATOR);
    assert!(
        text.contains("spotmux_build_info{role=\"coordinator\""),
        "{text}"
    );
    assert!(
        text.contains("\nspotmux_nodes{health=\"alive\"} 2\n"),
        "{text}"
    );
    assert!(value(&text, "spotmux_events_total") > 30.0, "{text}");
    assert!(value(&text, "spotmux_notices_total") > 30.0, "{text}");
    assert!(
        value(&text, "spotmux_journal_append_seconds_count") > 1.0,
        "{text}"
    );
    assert!(value(&text, "spotmux_moves_total") >= 1.0, "{text}");
    let mut steps = 0.0;
    // The first is the coordinator's own.
    for node in &addresses(&sandbox, "listen")[1..] {
        let (status, text) = cluster.until("a node answers", |_| get(node, "/metrics"));
        assert_eq!(status, "HTTP/1.1 200 OK");
        check(&text, GPU_ACTOR);
        assert!(
            value(&text, "spotmux_device_busy_seconds_sum") > 0.0,
            "{text}"
        );
        assert!(
            value(&text, "spotmux_chunks_sent_bytes_total") > 0.0,
            "{text}"
        );
        assert!(
            value(&text, "spotmux_chunks_received_bytes_total") > 0.0,
            "{text}"
        );
        assert!(
            (value(&text, "spotmux_activations_held_bytes") - 0.0).abs() < 0.5,
            "{text}"
        );
        steps += value(&text, "spotmux_steps_total");
        let (status, body) = cluster.until("a node is well", |_| get(node, "/healthz"));
        assert_eq!(
            (status.as_str(), body.as_str()),
            ("HTTP/1.1 200 OK", "ok\n")
        );
    }
    assert!((steps - 30.0).abs() < 0.5, "{steps} steps");
    let (status, _) = get(&coordinator, "/").unwrap();
    assert_eq!(status, "HTTP/1.1 404 Not Found");
}
