//! Several copies of the backbone: each trains jobs of its own, or they share the steps of one. The same bytes.

use serde_json::Value;

use super::run::{Cluster, Places, Sandbox, assert_same};

/// A cluster of two replicas and so many nodes.
fn two(sandbox: &Sandbox, stages: usize, nodes: usize) -> Cluster<'_> {
    let places = Places {
        replicas: 2,
        ..Places::free(nodes)
    };
    Cluster::up(sandbox, stages, &places)
}

/// Numbers of the replicas that share steps of each job that is shared.
fn sharing(cluster: &Cluster<'_>) -> Option<Vec<Value>> {
    let status = cluster.json(&["status"])?;
    let shared = status["plan"]["sharing"].as_array()?;
    Some(shared.iter().map(|job| job["replicas"].clone()).collect())
}

/// Waits until all jobs of the plan are shared by two replicas.
fn until_shared(cluster: &mut Cluster<'_>, jobs: usize) {
    cluster.until("steps are shared", |cluster| {
        let shared = sharing(cluster)?;
        let both = shared
            .iter()
            .all(|replicas| replicas.as_array().is_some_and(|r| r.len() == 2));
        (both && shared.len() == jobs).then_some(())
    });
}

#[test]
fn replicas_with_jobs_of_their_own_change_no_bit() {
    let sandbox = Sandbox::new(4);
    let wanted = sandbox.alone();
    let mut cluster = two(&sandbox, 1, 2);
    cluster.submit();
    cluster.until("both have jobs", |cluster| {
        let status = cluster.json(&["status"])?;
        let replicas = status["plan"]["replicas"].as_array()?;
        let busy = |replica: &Value| {
            replica["jobs"]
                .as_array()
                .is_some_and(|jobs| !jobs.is_empty())
        };
        (replicas.len() == 2 && replicas.iter().all(busy)).then_some(())
    });
    assert_same(&cluster.adapters(), &wanted);
}

#[test]
fn a_job_whose_steps_two_replicas_share_has_the_same_bytes() {
    // It has to last until the replicas are linked, which takes a second.
    let adapter = r#"method = "lora", rank = 4, targets = "all-linear""#;
    let sandbox = Sandbox::sharing(&[("lora", adapter, 300)], 2);
    let wanted = sandbox.alone();
    let mut cluster = two(&sandbox, 1, 2);
    cluster.submit();
    until_shared(&mut cluster, 1);
    assert_same(&cluster.adapters(), &wanted);
}

#[test]
fn jobs_whose_steps_are_shared_by_replicas_of_two_stages_have_the_same_bytes() {
    let sandbox = Sandbox::shared(5, 2);
    let wanted = sandbox.alone();
    let mut cluster = two(&sandbox, 2, 4);
    cluster.submit();
    until_shared(&mut cluster, 5);
    assert_same(&cluster.adapters(), &wanted);
}

#[test]
fn a_replica_that_is_lost_while_it_shares_steps_changes_no_bit() {
    let sandbox = Sandbox::shared(4, 2);
    let wanted = sandbox.alone();
    let mut cluster = two(&sandbox, 1, 2);
    cluster.submit();
    until_shared(&mut cluster, 4);
    for (replica, at) in [(1, 20), (0, 50)] {
        cluster.until_step(at);
        let holder = cluster.until("a plan", |cluster| cluster.holder_in(replica, 0));
        assert!(cluster.kill(&holder));
        cluster.until("the other goes on", |cluster| {
            cluster.steps().filter(|taken| *taken > at)
        });
    }
    assert_same(&cluster.adapters(), &wanted);
}

#[test]
fn a_stage_of_a_shared_job_moves() {
    let sandbox = Sandbox::shared(3, 2);
    let wanted = sandbox.alone();
    let mut cluster = two(&sandbox, 1, 3);
    cluster.submit();
    until_shared(&mut cluster, 3);
    cluster.until_step(12);
    let holder = cluster.holder_in(1, 0).unwrap();
    let asked = cluster.sandbox.spotmux(&["migrate", &holder, "--yes"]);
    assert!(asked.status.success(), "{asked:?}");
    cluster.until("the stage has moved", |cluster| {
        cluster.holder_in(1, 0).filter(|now| *now != holder)
    });
    assert_same(&cluster.adapters(), &wanted);
}
