//! A node that is stopped for longer than it may be silent, and then goes on as if nothing had been.

use serde_json::Value;

use super::run::{Cluster, Sandbox, assert_same};

/// Whether a node is here and holds nothing.
pub(crate) fn is_spare(cluster: &Cluster<'_>, node: &str) -> Option<bool> {
    let listed = cluster.json(&["nodes"])?;
    let nodes = listed["nodes"].as_array()?;
    let found = nodes.iter().find(|found| found["name"] == node)?;
    Some(found["health"] == "alive" && found["holds"] == Value::Null)
}

#[test]
fn a_node_that_goes_on_after_it_was_replaced_finds_itself_without_a_stage() {
    let sandbox = Sandbox::new(8);
    let wanted = sandbox.alone();
    let mut cluster = Cluster::start(&sandbox, 2, 3);
    cluster.submit();
    for (stage, at) in [(0, 30), (1, 90)] {
        cluster.until_step(at);
        let holder = cluster.until("a plan", |cluster| cluster.holder(stage));
        let process = cluster.process(&holder).expect("it runs");
        assert!(cluster.signal(&holder, "-STOP"));
        cluster.until("another has its stage", |cluster| {
            cluster.holder(stage).filter(|now| *now != holder)
        });
        let taken = cluster.steps().unwrap_or(at);
        cluster.until_step(taken + 3);
        assert!(cluster.signal(&holder, "-CONT"));
        cluster.until("it is a spare", |cluster| {
            is_spare(cluster, &holder)?.then_some(())
        });
        assert_eq!(cluster.process(&holder), Some(process), "the same process");
        assert!(cluster.happened("node_lost", &holder));
    }
    assert_same(&cluster.adapters(), &wanted);
    // A step follows the one before, or the durable one that its job went on from; nothing that the stopped ones still
    // said was taken in.
    let mut before = std::collections::BTreeMap::new();
    for event in cluster.events() {
        let (Some(job), Some(step)) = (event["job"].as_str(), event["data"]["step"].as_u64())
        else {
            continue;
        };
        match event["event"].as_str().unwrap_or_default() {
            "recovered" | "job_admitted" => {
                before.insert(job.to_owned(), step);
            }
            "step" => {
                let last = before.insert(job.to_owned(), step);
                assert_eq!(last, Some(step - 1), "{event}");
            }
            _ => {}
        }
    }
}
