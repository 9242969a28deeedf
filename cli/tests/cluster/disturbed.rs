//! Stages move, nodes and the coordinator are killed: the same bytes.

use shared::random::{Domain, Stream};

use super::run::{Cluster, Sandbox, assert_same};

/// Steps of all eight jobs together.
const STEPS: u64 = 420;

#[test]
fn a_stage_that_moves_changes_no_bit() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 3);
    cluster.submit();
    for (stage, at) in [(0, 60), (1, 160), (0, 260)] {
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
        cluster.until_step(20 + kill * (STEPS - 80) / 10);
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
    cluster.submit();
    for at in [40, 150, 250] {
        cluster.until_step(at);
        assert!(cluster.kill("coordinator"));
    }
    let adapters = cluster.adapters();
    let recoveries = cluster.until("the jobs", |cluster| {
        let jobs = cluster.jobs()?;
        jobs.iter()
            .map(|job| job["recoveries"].as_u64())
            .sum::<Option<u64>>()
    });
    assert_eq!(recoveries, 0, "stages trained on meanwhile");
    assert_same(&adapters, &wanted);
}
