//! What a node is told when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernels::cpu::Cpu;
use shared::ids::NodeName;
use shared::job::BackboneFormat;
use shared::net::endpoint::EndpointSettings;
use shared::units::{Bytes, Micros};

/// Tells the time.
pub(super) type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

/// How a backbone that is not here is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Folder where it is kept.
    pub folder: PathBuf,
    /// Largest one.
    pub most: Bytes,
}

/// All of it.
#[derive(Clone)]
pub struct NodeSettings {
    /// Its name; its certificate bears it.
    pub node: NodeName,
    /// Differs from start to start.
    pub incarnation: u64,
    /// Where the coordinator listens.
    pub coordinator: SocketAddr,
    /// Where it listens itself, and how connections behave.
    pub endpoint: EndpointSettings,
    /// Where its metrics are read, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Where neighbours reach it, when not where it listens.
    pub advertised: Option<String>,
    /// File of its certificate and key, renewed in place.
    pub credential: PathBuf,
    /// Folder or bucket of artifacts, with the options of the latter.
    pub store: shared::artifact::Store,
    /// The backbone's folder or file.
    pub model: PathBuf,
    /// Its content hash, where that is known; it is read whole otherwise.
    pub identity: Option<String>,
    /// Whether it is fetched from another member when it is not there.
    pub fetch: Option<Fetch>,
    /// Bytes a second that a member is handed the backbone with.
    pub serve_rate: Bytes,
    /// How its weights are held.
    pub format: BackboneFormat,
    /// Memory offered.
    pub memory: Bytes,
    /// The device.
    pub cpu: Cpu,
    /// Time between signs of life.
    pub heartbeat: Duration,
    /// Most rows of a micro-batch.
    pub tokens_per_pass: usize,
    /// Rows above which a sequence is cut, and most of a chunk.
    pub chunk_tokens: usize,
    /// Rounds planned before the oldest is done.
    pub rounds_ahead: usize,
    /// Chunks that may be under way to a neighbour.
    pub credits: u32,
    /// Whether values travel as bf16.
    pub narrow: bool,
    /// How long neighbours may take to link.
    pub link_patience: Duration,
    /// How long nothing may move while there is work.
    pub stall_patience: Duration,
    /// Spans kept for traces.
    pub spans_kept: usize,
    /// Microseconds since 1970: what people and other machines read.
    pub clock: Clock,
    /// Microseconds of a clock that never jumps: ages and bounds.
    pub steady: Clock,
}

impl std::fmt::Debug for NodeSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeSettings")
            .field("node", &self.node)
            .field("coordinator", &self.coordinator)
            .finish_non_exhaustive()
    }
}
