//! What a coordinator is told when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data::template::Template;
use data::tokenizer::Tokenizer;
use shared::artifact::Store;
use shared::net::endpoint::EndpointSettings;
use shared::units::{Bytes, Micros};

use crate::settings::Settings;

/// Tells the time, since 1970.
pub(super) type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

/// How the backbone writes and reads.
#[derive(Debug)]
pub struct Language {
    /// Text to tokens.
    pub tokenizer: Tokenizer,
    /// Conversations to text.
    pub template: Template,
}

/// The backbone as files, for nodes that have not got it.
#[derive(Clone, Debug)]
pub struct BackboneFiles {
    /// What adapters call their base model.
    pub base: String,
    /// Names in one folder, and where each lies here.
    pub files: Vec<(String, PathBuf)>,
    /// Bytes a second that a node is handed them with.
    pub serve_rate: Bytes,
}

/// All of it.
#[derive(Clone)]
pub struct CoordinatorSettings {
    /// What decisions go by.
    pub decisions: Settings,
    /// How the backbone writes and reads.
    pub language: Arc<Language>,
    /// The backbone's files.
    pub backbone: BackboneFiles,
    /// Where it listens.
    pub endpoint: EndpointSettings,
    /// Where its metrics are read, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// File of its certificate and key.
    pub credential: PathBuf,
    /// File of the cluster's authority; none where certificates are not made here.
    pub authority: Option<PathBuf>,
    /// Folder of tokens to join.
    pub tokens: PathBuf,
    /// Keys of `cluster.toml` that who joins is told, each with its value as TOML writes it.
    pub told_to_joiners: Vec<(String, String)>,
    /// How long certificates made here hold.
    pub certificate_life: Micros,
    /// The store of artifacts.
    pub store: Store,
    /// File of the journal.
    pub journal: PathBuf,
    /// Who takes the lease: differs from process to process.
    pub owner: String,
    /// How long a leadership holds without being renewed.
    pub lease: Micros,
    /// Largest file taken from a client.
    pub largest_upload: Bytes,
    /// Records between snapshots of the journal.
    pub snapshot_every: u64,
    /// Events that stay in the journal.
    pub events_kept: u64,
    /// Time between ticks.
    pub tick: Duration,
    /// Never jumps.
    pub steady: Clock,
    /// Microseconds since 1970.
    pub wall: Clock,
}

impl std::fmt::Debug for CoordinatorSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoordinatorSettings")
            .field("decisions", &self.decisions)
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}
