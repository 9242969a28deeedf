//! A device that does not come back from its work: its stage goes elsewhere though its node is heard, and the same bytes.
//! The node runs within this process; its clock, asked at the end of a piece of work, does not answer for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::inside::{Clock, LONG, node, now, settings};
use super::run::{Cluster, Places, Sandbox, assert_same};
use super::stopped::is_spare;

/// Holds the device's thread within a piece of work for as long as it is told to.
#[derive(Clone, Default)]
struct Hold(Arc<(Mutex<bool>, Condvar)>);

impl Hold {
    fn set(&self, holds: bool) {
        *self.0.0.lock().unwrap() = holds;
        self.0.1.notify_all();
    }

    /// Clocks of a node: the second is asked when a piece begins, the first when it ends.
    fn clocks(&self) -> [Clock; 2] {
        let on_device = || {
            let here = thread::current();
            here.name() == Some("device")
        };
        let begun = Arc::new(AtomicBool::new(false));
        let (hold, ends) = (self.clone(), Arc::clone(&begun));
        let clock: Clock = Arc::new(move || {
            if on_device() && ends.swap(false, Ordering::AcqRel) {
                let held = hold.0.0.lock().unwrap();
                drop(hold.0.1.wait_while(held, |holds| *holds).unwrap());
            }
            now()
        });
        let steady: Clock = Arc::new(move || {
            if on_device() {
                begun.store(true, Ordering::Release);
            }
            now()
        });
        [clock, steady]
    }
}

#[test]
fn the_stage_of_a_device_that_hangs_goes_elsewhere_and_no_bit_changes() {
    let sandbox = Sandbox::of(LONG);
    let alone = sandbox.alone();
    let places = Places::free(3);
    sandbox.write("cluster.toml", &places.file(2));
    assert!(sandbox.spotmux(&["ca", "init"]).status.success());
    let hold = Hold::default();
    let (stop, first) = node(settings(
        &sandbox,
        &places,
        places.nodes[0].0,
        hold.clocks(),
    ));
    let patience = "coordinator.device_patience_seconds=3";
    let processes = vec![
        (
            "coordinator",
            sandbox.command(&["coordinator", "--set", patience]),
        ),
        ("n2", sandbox.command(&["gpu-actor", "--name", "n2"])),
    ];
    let mut cluster = Cluster::of(&sandbox, processes, |words| sandbox.command(words));
    cluster.add("n3", sandbox.command(&["gpu-actor", "--name", "n3"]));
    cluster.submit();
    cluster.until_step(10);
    cluster.until("the third is here", |cluster| {
        is_spare(cluster, "n3")?.then_some(())
    });
    hold.set(true);
    cluster.until("its stage is elsewhere", |cluster| {
        let holders = [cluster.holder(0)?, cluster.holder(1)?];
        (!holders.contains(&"n1".to_owned())).then_some(())
    });
    let lost = cluster
        .events()
        .into_iter()
        .find(|event| event["event"] == "node_lost" && event["data"]["node"] == "n1");
    let why = lost.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        why.contains("its device has been at one piece of work"),
        "{why}"
    );
    let before = cluster.steps().unwrap();
    cluster.until_step(before + 6);
    hold.set(false);
    cluster.until("the device is back, and its node a spare", |cluster| {
        is_spare(cluster, "n1")?.then_some(())
    });
    assert!(!first.is_finished(), "the same process");
    assert_same(&cluster.adapters(), &alone);
    stop.send(()).unwrap();
    first.join().unwrap().unwrap();
}
