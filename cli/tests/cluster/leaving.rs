//! Nodes that are asked to end: their stages move, no step is taken twice, and the same bytes.

use super::run::{Cluster, Sandbox, assert_same};

/// Has the node of a stage end, and waits until it is gone.
fn leave(cluster: &mut Cluster<'_>, stage: usize) -> String {
    let holder = cluster.until("a plan", |cluster| cluster.holder(stage));
    let left = |cluster: &Cluster<'_>| cluster.happened("node_left", &holder);
    assert!(!left(cluster));
    assert!(cluster.signal(&holder, "-TERM"));
    cluster.until("the node leaves", |cluster| left(cluster).then_some(()));
    holder
}

#[test]
fn a_node_that_is_asked_to_end_costs_no_step_and_no_bit() {
    let sandbox = Sandbox::new(8);
    sandbox.without_checkpoints();
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 3);
    cluster.submit();
    for (stage, at) in [(0, 30), (1, 100)] {
        cluster.until_step(at);
        let holder = leave(&mut cluster, stage);
        assert_ne!(cluster.holder(stage).as_deref(), Some(holder.as_str()));
    }
    assert_same(&cluster.adapters(), &wanted);
    cluster.assert_no_step_twice(8);
    let bad = |event: &serde_json::Value| {
        let kind = event["event"].as_str().unwrap_or_default();
        matches!(kind, "node_lost" | "replica_broken")
    };
    let bad: Vec<_> = cluster.events().into_iter().filter(bad).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn without_another_node_jobs_wait_with_what_they_learned_for_one() {
    let sandbox = Sandbox::new(3);
    sandbox.without_checkpoints();
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 1, 1);
    cluster.submit();
    cluster.until_step(20);
    // Whoever watches starts it again: as another process, which holds nothing.
    leave(&mut cluster, 0);
    assert_same(&cluster.adapters(), &wanted);
    cluster.assert_no_step_twice(3);
}
