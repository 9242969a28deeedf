//! A node within the process of the test: its clocks are given to it, so that they can be made to panic or to hang where
//! they are read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
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

use super::run::{Places, Sandbox};
use super::sandbox::Method;

/// What tells a node the time.
pub(crate) type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

/// The time of day.
pub(crate) fn now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Micros(u64::try_from(since.unwrap().as_micros()).unwrap())
}

/// Jobs that last.
pub(crate) const LONG: &[Method] = &[
    (
        "lora",
        r#"method = "lora", rank = 4, targets = "all-linear""#,
        300,
    ),
    ("ia3", r#"method = "ia3""#, 300),
];

/// What a node of this name in its file is told; `clock` and `steady` are its clocks.
pub(crate) fn settings(
    sandbox: &Sandbox,
    places: &Places,
    listen: SocketAddr,
    [clock, steady]: [Clock; 2],
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
        steady,
    }
}

/// Runs a node on a thread of this process until `stop` is sent; its end.
pub(crate) fn node(
    settings: NodeSettings,
) -> (
    oneshot::Sender<()>,
    thread::JoinHandle<Result<(), RunError>>,
) {
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        // Nobody says that the machine may be taken.
        let (_, risk) = tokio::sync::watch::channel(None);
        let asked = async {
            // Dropped or sent: the end.
            let _ = stopped.await;
            Departure {
                within: Micros(5_000_000),
                cause: LeaveCause::Asked,
            }
        };
        run(settings, asked, risk)
    };
    let node = thread::Builder::new()
        .name("node".into())
        .spawn(run)
        .unwrap();
    (stop, node)
}
