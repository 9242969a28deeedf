//! What panics inside of a node costs an epoch or a process, and no byte of a job. The node runs within this process, so
//! that its clock, which it is given, can be made to panic where it is read: on the device's thread, or in the actor.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gpu_actor::actor::{NodeSettings, RunError, run};
use kernels::cpu::Cpu;
use shared::artifact::Store;
use shared::config::places;
use shared::ids::NodeName;
use shared::job::BackboneFormat;
use shared::net::endpoint::EndpointSettings;
use shared::units::{Bytes, Micros};
use shared::wire::notice::{Departure, LeaveCause};
use tokio::sync::oneshot;

use super::run::{Cluster, Places, Sandbox, assert_same};
use super::sandbox::Method;

fn now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Micros(u64::try_from(since.unwrap().as_micros()).unwrap())
}

/// Jobs that last.
const LONG: &[Method] = &[
    (
        "lora",
        r#"method = "lora", rank = 4, targets = "all-linear""#,
        300,
    ),
    ("ia3", r#"method = "ia3""#, 300),
];

/// Panics so often: each time that it is asked for the first time after `armed` was raised, on such a thread.
fn clock(armed: &Arc<AtomicUsize>, on: &'static str) -> Arc<dyn Fn() -> Micros + Send + Sync> {
    let armed = Arc::clone(armed);
    Arc::new(move || {
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
    })
}

fn settings(
    sandbox: &Sandbox,
    places: &Places,
    listen: SocketAddr,
    clock: Arc<dyn Fn() -> Micros + Send + Sync>,
) -> NodeSettings {
    let name = NodeName::new("n1").unwrap();
    let folder = sandbox.path().join(".spotmux");
    let store = folder.join("store").display().to_string();
    NodeSettings {
        incarnation: now().0,
        coordinator: places.coordinator,
        endpoint: EndpointSettings::at(listen),
        metrics: None,
        advertised: None,
        credential: folder.join("security").join(places::node(&name)),
        node: name,
        store: Store::open(&store, &BTreeMap::new()).unwrap(),
        model: sandbox.path().join("model"),
        identity: None,
        fetch: None,
        serve_rate: Bytes(1 << 20),
        format: BackboneFormat::AsShipped,
        memory: Bytes(1 << 30),
        cpu: Cpu::new(1).unwrap(),
        heartbeat: Duration::from_millis(200),
        tokens_per_pass: 512,
        chunk_tokens: 512,
        rounds_ahead: 2,
        credits: 8,
        narrow: false,
        link_patience: Duration::from_secs(20),
        stall_patience: Duration::from_secs(120),
        spans_kept: 1000,
        clock,
    }
}

/// Runs a node on a thread of this process until `stop` is sent; its end.
fn node(
    settings: NodeSettings,
) -> (
    oneshot::Sender<()>,
    thread::JoinHandle<Result<(), RunError>>,
) {
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        run(settings, async {
            // Dropped or sent: the end.
            let _ = stopped.await;
            Departure {
                within: Micros(5_000_000),
                cause: LeaveCause::Asked,
            }
        })
    };
    let node = thread::Builder::new()
        .name("node".into())
        .spawn(run)
        .unwrap();
    (stop, node)
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
    let (_stop, first) = node(settings(&sandbox, &places, listen, clock(&device, "stage")));
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
