//! Stages move, nodes and the coordinator are killed: the same bytes.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use shared::random::{Domain, Stream};

use super::run::{Cluster, Sandbox, assert_same};

/// Steps of all eight jobs together.
const STEPS: u64 = 210;

#[test]
fn a_stage_that_moves_changes_no_bit() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 3);
    cluster.submit();
    for (stage, at) in [(0, 30), (1, 80), (0, 130)] {
        cluster.until_step(at);
        let holder = cluster.holder(stage).unwrap();
        let asked = cluster.sandbox.spotmux(&["migrate", &holder, "--yes"]);
        assert!(asked.status.success(), "{asked:?}");
        cluster.until("the stage has moved", |cluster| {
            let now = cluster.holder(stage)?;
            (now != holder).then_some(())
        });
    }
    assert_same(&cluster.adapters(), &wanted);
}

#[test]
fn nodes_killed_at_ten_points_change_no_bit() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 4);
    cluster.submit();
    let dice = Stream::new(7, Domain::Sample, [0; 3]);
    for kill in 0..10 {
        cluster.until_step(10 + kill * (STEPS - 50) / 10);
        let stage = dice.below(kill as u32, 2) as usize;
        let holder = cluster.until("a plan", |cluster| cluster.holder(stage));
        cluster.kill(&holder);
    }
    assert_same(&cluster.adapters(), &wanted);
}

#[test]
fn a_coordinator_that_is_killed_changes_no_bit_and_nothing_starts_anew() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 2);
    // Who follows goes on over each restart: that it ends would end every wait here.
    let follow = sandbox.command(&["events", "-f", "--json"]);
    cluster.add("follow", follow);
    cluster.submit();
    for at in [20, 75, 125] {
        cluster.until_step(at);
        assert!(cluster.kill("coordinator"));
    }
    let adapters = cluster.adapters();
    let told = cluster.until("all ends are told to who follows", |cluster| {
        let told = fs::read_to_string(cluster.sandbox.path().join("follow.out")).ok()?;
        (told.matches("\"job_succeeded\"").count() == 8).then_some(told)
    });
    let events = told
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let numbers: Vec<String> = events.map(|event| event["number"].to_string()).collect();
    let once: BTreeSet<&String> = numbers.iter().collect();
    assert_eq!(once.len(), numbers.len(), "each is told once");
    let recoveries = cluster.until("the jobs", |cluster| {
        let jobs = cluster.jobs()?;
        jobs.iter()
            .map(|job| job["recoveries"].as_u64())
            .sum::<Option<u64>>()
    });
    assert_eq!(recoveries, 0, "stages trained on meanwhile");
    assert_same(&adapters, &wanted);
}
