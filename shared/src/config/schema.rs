//! The settings of a cluster as types. Units are in the names of keys; what each costs stands in [`super::keys`].

use core::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

pub use super::gpu_actor::{Cloud, GpuActorSection};
pub use super::market::MarketSection;
use super::plan::mib;
pub use super::plan::{PlanSection, Saturation, Stages};
use crate::ids::{ClusterName, NodeName};
use crate::job::{BackboneFormat, Products};
use crate::units::{Bytes, Micros};

/// The form of the file that is read: another is refused.
pub const VERSION: u64 = 1;

/// Everything an operator decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// Form of the file.
    pub version: u64,
    /// The cluster itself.
    pub cluster: ClusterSection,
    /// The backbone that all jobs share.
    pub model: ModelSection,
    /// Where artifacts are kept.
    pub store: StoreSection,
    /// The process that decides.
    pub coordinator: CoordinatorSection,
    /// How the backbone is cut and copied.
    pub plan: PlanSection,
    /// What holds for every node that does not say otherwise.
    pub gpu_actor: GpuActorSection,
    /// The nodes of a local cluster.
    pub node: Vec<NodeSection>,
    /// Who has machines, and how many of them are held.
    pub market: MarketSection,
    /// Certificates.
    pub security: SecuritySection,
    /// How much at once.
    pub limits: LimitsSection,
    /// Logs and metrics.
    pub telemetry: TelemetrySection,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            version: VERSION,
            cluster: ClusterSection::default(),
            model: ModelSection::default(),
            store: StoreSection::default(),
            coordinator: CoordinatorSection::default(),
            plan: PlanSection::default(),
            gpu_actor: GpuActorSection::default(),
            node: Vec::new(),
            market: MarketSection::default(),
            security: SecuritySection::default(),
            limits: LimitsSection::default(),
            telemetry: TelemetrySection::default(),
        }
    }
}

impl ClusterConfig {
    /// The node of a name with everything it leaves to `gpu_actor` filled in; none when the file has no such node.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<Node> {
        let found = self.node.iter().find(|node| node.name == *name)?;
        Some(self.filled(found))
    }

    /// All nodes, each with everything it leaves to `gpu_actor` filled in.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        self.node.iter().map(|node| self.filled(node)).collect()
    }

    /// A machine that joins under a name the file does not list: `gpu_actor` alone describes it.
    #[must_use]
    pub fn unlisted(&self, name: NodeName) -> Node {
        let bare = NodeSection {
            name,
            listen: None,
            advertise: None,
            threads: None,
            memory_mib: None,
            spot: false,
            metrics: None,
        };
        self.filled(&bare)
    }

    fn filled(&self, node: &NodeSection) -> Node {
        let common = &self.gpu_actor;
        let listen = node.listen.unwrap_or(common.listen);
        let here = if listen.ip().is_loopback() {
            listen.ip()
        } else {
            Ipv4Addr::LOCALHOST.into()
        };
        Node {
            name: node.name.clone(),
            listen,
            metrics: node
                .metrics
                .unwrap_or_else(|| SocketAddr::new(here, listen.port())),
            advertise: node.advertise,
            threads: node.threads.unwrap_or(common.threads),
            memory: mib(node.memory_mib.unwrap_or(common.memory_mib)),
            spot: node.spot,
        }
    }
}

/// A node with nothing left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where its neighbours reach it, when not where it listens.
    pub advertise: Option<SocketAddr>,
    /// Compute threads.
    pub threads: u64,
    /// Memory it offers.
    pub memory: Bytes,
    /// Whether it may be taken away at any time.
    pub spot: bool,
    /// Where its metrics are read (HTTP, TCP): where it does not say, the port that it listens on, on loopback.
    pub metrics: SocketAddr,
}

/// The cluster itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSection {
    /// Its name; certificates bear it.
    pub name: ClusterName,
    /// Folder of process ids and logs of a local cluster, relative to the file.
    pub state: String,
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self {
            name: ClusterName::new("local").expect("a plain word is a name"),
            state: ".spotmux".into(),
        }
    }
}

/// The backbone that all jobs share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSection {
    /// Model folder, GGUF file, or the name of a fetched model; a path is relative to the file.
    pub path: String,
    /// How its weights are held in memory.
    pub format: BackboneFormat,
    /// How products with frozen weights are computed; all nodes do the same.
    pub products: Products,
}

impl Default for ModelSection {
    fn default() -> Self {
        Self {
            path: "smollm2-135m-instruct".into(),
            format: BackboneFormat::AsShipped,
            products: Products::F32,
        }
    }
}

/// Where artifacts are kept: rows, checkpoints, adapters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSection {
    /// A folder, relative to the file, or `s3://bucket/prefix`.
    pub url: String,
    /// While it does not answer for less than this, no job fails.
    pub outage_seconds: u64,
}

impl StoreSection {
    /// While the store does not answer for less than this, no job fails.
    #[must_use]
    pub fn outage(&self) -> Micros {
        Micros::of_millis(self.outage_seconds.saturating_mul(1000))
    }
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            url: ".spotmux/store".into(),
            outage_seconds: 300,
        }
    }
}

/// The process that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoordinatorSection {
    /// Where gpu-actors and the command line reach it (UDP).
    pub listen: SocketAddr,
    /// Where metrics are read (HTTP, TCP).
    pub metrics: SocketAddr,
    /// File of its journal, relative to the file.
    pub journal: String,
    /// Time between signs of life of a node.
    pub heartbeat_ms: u64,
    /// Silence after which a node is taken for lost.
    pub heartbeat_bound_ms: u64,
    /// A device at one piece of work for so long, and ten times its longest before, is taken for lost.
    pub device_patience_seconds: u64,
    /// How long a leadership holds without being renewed.
    pub lease_seconds: u64,
    /// Events kept in memory for those who follow.
    pub events_kept: u64,
    /// While a machine may be taken, states of jobs on it are stored after so many steps; 0: as the jobs ask.
    pub risk_checkpoint_steps: u64,
}

impl CoordinatorSection {
    /// Time between signs of life of a node.
    #[must_use]
    pub fn heartbeat(&self) -> Micros {
        Micros::of_millis(self.heartbeat_ms)
    }

    /// Silence after which a node is taken for lost.
    #[must_use]
    pub fn heartbeat_bound(&self) -> Micros {
        Micros::of_millis(self.heartbeat_bound_ms)
    }

    /// How long a device may be at one piece of work, until it is known how long its work takes.
    #[must_use]
    pub fn device_patience(&self) -> Micros {
        Micros::of_millis(self.device_patience_seconds.saturating_mul(1000))
    }
}

impl Default for CoordinatorSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            metrics: SocketAddr::from(([127, 0, 0, 1], 7421)),
            journal: ".spotmux/journal.sqlite".into(),
            heartbeat_ms: 1000,
            heartbeat_bound_ms: 3000,
            device_patience_seconds: 60,
            lease_seconds: 10,
            events_kept: 20_000,
            risk_checkpoint_steps: 1,
        }
    }
}

/// A node of a local cluster; what it does not say, `gpu_actor` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSection {
    /// Its name; its certificate bears it.
    pub name: NodeName,
    /// Where it listens (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Where its neighbours reach it, when not where it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
    /// Compute threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// Memory offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Whether it may be taken away at any time.
    #[serde(default)]
    pub spot: bool,
    /// Where its metrics are read (HTTP, TCP); without it, the port that it listens on, on loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

/// Certificates: who is who.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecuritySection {
    /// Folder of the authority and of certificates, relative to the file.
    pub directory: String,
    /// How long a certificate holds; it is renewed at two thirds.
    pub certificate_hours: u64,
    /// How long a token to join holds.
    pub token_minutes: u64,
}

impl SecuritySection {
    /// How long a certificate holds.
    #[must_use]
    pub fn certificate_life(&self) -> Micros {
        Micros::of_millis(self.certificate_hours.saturating_mul(3_600_000))
    }

    /// How long a token to join holds.
    #[must_use]
    pub fn token_life(&self) -> Micros {
        Micros::of_millis(self.token_minutes.saturating_mul(60_000))
    }
}

impl Default for SecuritySection {
    fn default() -> Self {
        Self {
            directory: ".spotmux/security".into(),
            certificate_hours: 24,
            token_minutes: 15,
        }
    }
}

/// How much at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsSection {
    /// Jobs that have not ended.
    pub jobs: u64,
    /// Jobs that ended, the newest: the others are known no more.
    pub ended_jobs_kept: u64,
    /// Nodes that are gone, the newest: the others are known no more.
    pub gone_nodes_kept: u64,
    /// Events in the journal, the newest: the others are told no more.
    pub events_kept: u64,
    /// Jobs that train on one replica at once.
    pub jobs_per_replica: u64,
    /// Largest file uploaded.
    pub upload_mib: u64,
    /// Largest message between processes.
    pub frame_mib: u64,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            jobs: 10_000,
            ended_jobs_kept: 5_000,
            gone_nodes_kept: 1_000,
            events_kept: 1_000_000,
            jobs_per_replica: 64,
            upload_mib: 1024,
            frame_mib: 16,
        }
    }
}

impl LimitsSection {
    /// Largest file uploaded.
    #[must_use]
    pub fn upload(&self) -> Bytes {
        mib(self.upload_mib)
    }

    /// Largest message between processes.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        mib(self.frame_mib)
    }
}

/// Logs and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySection {
    /// What is logged: a level, or a filter such as `info,shared::net=debug`.
    pub log: String,
    /// Whether metrics are served.
    pub metrics: bool,
}

impl Default for TelemetrySection {
    fn default() -> Self {
        Self {
            log: "info".into(),
            metrics: true,
        }
    }
}
