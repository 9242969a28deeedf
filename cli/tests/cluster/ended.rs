//! The end of a cluster in order, and not quite: what is told to be durable is, and the next start goes on from there.

use serde_json::Value;

use super::run::{Cluster, Places, Sandbox, assert_same};

/// Ends a cluster: its exit code, and what it told.
fn down(cluster: &Cluster<'_>) -> (Option<i32>, Value) {
    let ran = cluster.sandbox.spotmux(&["down", "--yes", "--json"]);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let last = text.lines().last().unwrap_or_default();
    let told = serde_json::from_str(last).unwrap_or_else(|_| panic!("{ran:?}"));
    (ran.status.code(), told)
}

/// Kinds of what happened to nodes and replicas, in their order.
fn troubles(cluster: &Cluster<'_>) -> Vec<String> {
    let events = cluster.events().into_iter();
    let kinds = events.filter_map(|event| event["event"].as_str().map(ToOwned::to_owned));
    kinds
        .filter(|kind| ["node_lost", "node_left", "replica_broken"].contains(&kind.as_str()))
        .collect()
}

#[test]
fn after_an_end_in_order_nobody_was_lost_and_no_step_is_taken_twice() {
    let sandbox = Sandbox::new(3);
    sandbox.without_checkpoints();
    let wanted = sandbox.alone();
    let places = Places::free(3);
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    cluster.submit();
    cluster.until_step(20);
    let (code, told) = down(&cluster);
    drop(cluster);
    assert_eq!(code, Some(0), "{told}");
    let jobs = told["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 3, "{told}");
    for job in jobs {
        assert_eq!(
            (&job["lost_steps"], &job["step"]),
            (&0.into(), &job["durable_step"])
        );
    }
    let durable = jobs.iter().filter_map(|job| job["durable_step"].as_u64());
    assert!(durable.sum::<u64>() >= 20, "{told}");
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    assert_eq!(troubles(&cluster), ["node_left"; 3]);
    assert_same(&cluster.adapters(), &wanted);
    cluster.assert_no_step_twice(3);
}

#[test]
fn what_a_killed_up_left_is_ended_in_order_too() {
    let sandbox = Sandbox::new(2);
    sandbox.without_checkpoints();
    let places = Places::free(2);
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    cluster.submit();
    cluster.until_step(8);
    assert!(cluster.signal("up", "-KILL"));
    let (code, told) = down(&cluster);
    assert_eq!(code, Some(0), "{told}");
    for job in told["jobs"].as_array().unwrap() {
        assert_eq!(job["lost_steps"], 0, "{told}");
    }
}

#[test]
fn states_of_a_node_that_is_stopped_are_not_called_durable() {
    let sandbox = Sandbox::new(3);
    sandbox.without_checkpoints();
    let wanted = sandbox.alone();
    let places = Places::free(2);
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    cluster.submit();
    cluster.until_step(20);
    let holder = cluster.holder(1).unwrap();
    assert!(cluster.signal(&holder, "-STOP"));
    let (code, told) = down(&cluster);
    drop(cluster);
    assert_eq!(code, Some(14), "{told}");
    let jobs = told["jobs"].as_array().unwrap();
    let lost: u64 = jobs
        .iter()
        .filter_map(|job| job["lost_steps"].as_u64())
        .sum();
    assert!(lost > 0, "{told}");
    for job in jobs {
        let [step, durable, lost] =
            ["step", "durable_step", "lost_steps"].map(|key| job[key].as_u64().unwrap());
        assert_eq!(step - durable, lost, "{told}");
    }
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    assert!(troubles(&cluster).contains(&"node_lost".to_owned()));
    assert_same(&cluster.adapters(), &wanted);
}

#[test]
fn a_drain_outlives_the_cluster_and_the_next_start_says_so_at_once() {
    let sandbox = Sandbox::new(2);
    let wanted = sandbox.alone();
    let places = Places::free(2);
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    cluster.submit();
    cluster.until_step(6);
    let refused = sandbox.spotmux(&["drain", "n1", "--yes"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(11), "{said}");
    assert!(
        said.contains("without n1") && said.contains("--force"),
        "{said}"
    );
    let drained = sandbox.spotmux(&["drain", "n1", "--yes", "--force", "--wait"]);
    assert!(drained.status.success(), "{drained:?}");
    let (code, told) = down(&cluster);
    drop(cluster);
    assert_eq!(code, Some(0), "{told}");
    let mut cluster = Cluster::up(&sandbox, 2, &places);
    let out = std::fs::read_to_string(sandbox.path().join("up.out")).unwrap();
    assert!(
        out.contains("`spotmux drain n1 --undo` gives it back"),
        "{out}"
    );
    let undone = sandbox.spotmux(&["drain", "n1", "--undo"]);
    assert!(undone.status.success(), "{undone:?}");
    assert_same(&cluster.adapters(), &wanted);
}
