//! The store of artifacts is away for a while: jobs train on, nothing that needs it is taken for done, and the same bytes.

use std::fs;
use std::path::PathBuf;

use super::run::{Cluster, Sandbox, assert_same};

/// The folder of a store, moved away for a while. Rights would not do: tests may run as who has all of them.
struct Away {
    store: PathBuf,
    kept: PathBuf,
}

impl Away {
    fn take(sandbox: &Sandbox) -> Self {
        let store = sandbox.path().join(".spotmux/store");
        let kept = sandbox.path().join(".spotmux/kept");
        fs::rename(&store, &kept).unwrap();
        // No folder can be made in its place.
        fs::write(&store, "away").unwrap();
        Self { store, kept }
    }

    fn bring_back(self) {
        fs::remove_file(&self.store).unwrap();
        fs::rename(&self.kept, &self.store).unwrap();
    }
}

/// Steps that are durable, of all jobs together.
fn durable(cluster: &Cluster<'_>) -> Option<u64> {
    let jobs = cluster.jobs()?;
    jobs.iter().map(|job| job["durable_step"].as_u64()).sum()
}

#[test]
fn a_move_waits_for_a_store_that_is_away_and_no_bit_changes() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 3);
    cluster.submit();
    cluster.until_step(30);
    let away = Away::take(&sandbox);
    let taken = cluster.steps().unwrap();
    cluster.until_step(taken + 20);
    let holder = cluster.holder(0).unwrap();
    let asked = sandbox.spotmux(&["migrate", &holder, "--yes"]);
    assert!(asked.status.success(), "{asked:?}");
    cluster.until("the move is called off", |cluster| {
        let mut events = cluster.events().into_iter();
        let called_off = |event: serde_json::Value| {
            let why = event["message"].as_str().unwrap_or_default().to_owned();
            event["event"] == "migration_called_off" && why.contains("durable")
        };
        events.any(called_off).then_some(())
    });
    assert_eq!(cluster.holder(0).as_deref(), Some(holder.as_str()));
    let (steps, kept) = (cluster.steps().unwrap(), durable(&cluster).unwrap());
    assert!(
        kept < steps,
        "{kept} of {steps} steps are durable without a store"
    );
    away.bring_back();
    assert_same(&cluster.adapters(), &wanted);
    let bad = |event: &serde_json::Value| event["event"] == "replica_broken";
    let bad: Vec<_> = cluster.events().into_iter().filter(bad).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_node_that_is_killed_while_the_store_is_away_costs_steps_and_no_bit() {
    let sandbox = Sandbox::new(4);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 3);
    cluster.submit();
    cluster.until_step(20);
    let away = Away::take(&sandbox);
    let taken = cluster.steps().unwrap();
    cluster.until_step(taken + 8);
    let holder = cluster.holder(1).unwrap();
    cluster.kill(&holder);
    cluster.until("a job is tried and cannot be taken up", |cluster| {
        let mut events = cluster.events().into_iter();
        events
            .any(|event| event["event"] == "job_refused")
            .then_some(())
    });
    let jobs = cluster.jobs().unwrap();
    assert!(jobs.iter().all(|job| job["state"] != "failed"), "{jobs:#?}");
    away.bring_back();
    assert_same(&cluster.adapters(), &wanted);
}
