//! A coordinator that is stopped for longer than its lease, and then goes on as if nothing had been.

use super::run::{Cluster, Sandbox, assert_same};

/// Who holds the stages.
fn holders(cluster: &mut Cluster<'_>) -> [String; 2] {
    cluster.until("a plan", |cluster| {
        Some([cluster.holder(0)?, cluster.holder(1)?])
    })
}

#[test]
fn a_coordinator_that_was_stopped_for_long_changes_no_bit_and_starts_no_job_anew() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 3);
    cluster.submit();
    cluster.until_step(30);
    let places = holders(&mut cluster);
    assert!(cluster.signal("coordinator", "-STOP"));
    // Longer than the lease (3 s) and than any node may be silent: nobody tells when that is over.
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert!(cluster.signal("coordinator", "-CONT"));
    // Stages trained on meanwhile, perhaps to the end; what they told is heard by who leads next.
    assert_eq!(holders(&mut cluster), places, "stages stay where they are");
    assert_same(&cluster.adapters(), &wanted);
    cluster.assert_no_step_twice(8);
}
