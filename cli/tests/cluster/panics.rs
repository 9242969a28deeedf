//! What panics inside of a node costs an epoch or a process, and no byte of a job. The node runs within this process, so
//! that its clock, which it is given, can be made to panic where it is read: on the device's thread, or in the actor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gpu_actor::actor::RunError;

use super::inside::{Clock, LONG, node, now, settings};
use super::run::{Cluster, Places, Sandbox, assert_same};

/// Panics so often: each time that it is asked for the first time after `armed` was raised, on such a thread.
fn clock(armed: &Arc<AtomicUsize>, on: &'static str) -> [Clock; 2] {
    let armed = Arc::clone(armed);
    let clock: Clock = Arc::new(move || {
        let here = thread::current()
            .name()
            .is_some_and(|name| name.starts_with(on));
        let taken = |left: usize| left.checked_sub(1);
        if here
            && armed
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, taken)
                .is_ok()
        {
            panic!("a panic was injected");
        }
        now()
    });
    [Arc::clone(&clock), clock]
}

#[test]
fn a_panic_on_the_device_costs_an_epoch_and_one_in_the_actor_a_process() {
    let sandbox = Sandbox::of(LONG);
    let alone = sandbox.alone();
    let places = Places::free(2);
    sandbox.write("cluster.toml", &places.file(2));
    assert!(sandbox.spotmux(&["ca", "init"]).status.success());
    let listen = places.nodes[0].0;
    let device = Arc::new(AtomicUsize::new(0));
    let (_stop, first) = node(settings(
        &sandbox,
        &places,
        listen,
        clock(&device, "device"),
    ));
    let processes = vec![
        ("coordinator", sandbox.command(&["coordinator"])),
        ("n2", sandbox.command(&["gpu-actor", "--name", "n2"])),
    ];
    let mut cluster = Cluster::of(&sandbox, processes, |words| sandbox.command(words));
    cluster.submit();
    cluster.until_step(6);
    device.store(1, Ordering::Release);
    cluster.until("a job goes on from its durable step", |cluster| {
        let jobs = cluster.jobs()?;
        let mut recoveries = jobs.iter().filter_map(|job| job["recoveries"].as_u64());
        recoveries.any(|times| times > 0).then_some(())
    });
    assert_eq!(device.load(Ordering::Acquire), 0, "it panicked");
    let before = cluster.steps().unwrap();
    cluster.until_step(before + 6);
    assert!(!first.is_finished(), "the process of the node lives");

    // More often than is borne: the node gives itself up, and whoever started it starts it again.
    device.store(usize::MAX, Ordering::Release);
    cluster.until("the node gives up", |_| first.is_finished().then_some(()));
    let end = first.join().unwrap().unwrap_err();
    assert!(
        matches!(&end, RunError::TooOften(why) if why.contains("a panic was injected")),
        "{end}"
    );

    // In the actor: the process ends at once, and the next goes on.
    let actor = Arc::new(AtomicUsize::new(0));
    let (_stop, second) = node(settings(&sandbox, &places, listen, clock(&actor, "node")));
    let before = cluster.steps().unwrap();
    cluster.until_step(before + 3);
    actor.store(1, Ordering::Release);
    cluster.until("the actor ends", |_| second.is_finished().then_some(()));
    let end = second.join().unwrap().unwrap_err();
    assert!(matches!(end, RunError::Panicked), "{end}");

    let quiet = Arc::new(AtomicUsize::new(0));
    let (stop, third) = node(settings(&sandbox, &places, listen, clock(&quiet, "node")));
    assert_same(&cluster.adapters(), &alone);
    stop.send(()).unwrap();
    third.join().unwrap().unwrap();
}
