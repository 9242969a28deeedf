//! What a market actor is told when it starts.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shared::net::endpoint::EndpointSettings;
use shared::units::{MicroUsd, Micros};

use super::error::RunError;
use crate::custody::Bounds;
use crate::now::Now;
use crate::provider::aws::{Account, Aws};
use crate::provider::fixed::{Listed, Static};
use crate::provider::local::{self, Launch, Local, Stock};
use crate::provider::replay::Replay;
use crate::provider::replay::course::Script;
use crate::provider::slurm::{Controller, Slurm};
use crate::provider::{Machine, Provider};
use crate::terms::Terms;

/// Tells the time.
pub(super) type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

/// Both clocks.
#[derive(Clone)]
pub struct Clocks {
    /// Since 1970.
    pub wall: Clock,
    /// Since some begin of this process; it never goes back.
    pub steady: Clock,
}

impl Clocks {
    /// By both.
    #[must_use]
    pub fn now(&self) -> Now {
        Now {
            wall: (self.wall)(),
            steady: (self.steady)(),
        }
    }
}

impl std::fmt::Debug for Clocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clocks")
    }
}

/// Who has machines.
#[derive(Clone, Debug)]
pub enum Offered {
    /// A fixed list.
    Static {
        /// The machines.
        list: Vec<Listed>,
        /// Of each, for an hour.
        price: MicroUsd,
    },
    /// Processes of this machine.
    Local {
        /// How they are started.
        launch: Launch,
        /// How many, at which price.
        stock: Stock,
    },
    /// Processes of this machine whose life follows a trace.
    Replay {
        /// How they are started.
        launch: Launch,
        /// Most machines of each kind.
        stock: Stock,
        /// The trace.
        script: Box<Script>,
    },
    /// Instances of EC2.
    Aws(Box<Account>),
    /// Jobs of a Slurm cluster.
    Slurm(Controller),
}

impl Offered {
    /// The provider; its files are in `folder`.
    ///
    /// # Errors
    /// When a file, a folder or TLS cannot be had.
    pub fn provider(self, folder: &Path, clock: &Clock) -> Result<Box<dyn Provider>, RunError> {
        Ok(match self {
            Self::Static { list, price } => {
                Box::new(Static::new(list, price, folder.join("static.json"))?)
            }
            Self::Local { launch, stock } => Box::new(Local::new(launch, stock)?),
            Self::Replay {
                launch,
                stock,
                script,
            } => {
                let local = Local::new(launch, stock)?;
                Box::new(Replay::new(local, *script, folder, Arc::clone(clock))?)
            }
            Self::Aws(account) => Box::new(Aws::new(*account, Arc::clone(clock))?),
            Self::Slurm(controller) => {
                fs::create_dir_all(&controller.logs)?;
                Box::new(Slurm::new(controller))
            }
        })
    }

    /// All machines that there are: nothing is changed, no file is written.
    ///
    /// # Errors
    /// When the provider cannot be asked.
    pub async fn listed(self, folder: &Path, clock: &Clock) -> Result<Vec<Machine>, RunError> {
        Ok(match self {
            Self::Local { launch, .. } | Self::Replay { launch, .. } => local::look(&launch)?,
            Self::Static { list, price } => {
                let file = folder.join("static.json");
                Static::new(list, price, file)?.list().await?
            }
            Self::Aws(account) => Aws::new(*account, Arc::clone(clock))?.list().await?,
            Self::Slurm(controller) => Slurm::new(controller).list().await?,
        })
    }
}

/// All of it.
#[derive(Clone)]
pub struct MarketSettings {
    /// Where the coordinator listens.
    pub coordinator: SocketAddr,
    /// How connections behave.
    pub endpoint: EndpointSettings,
    /// File of its certificate and key, renewed in place.
    pub credential: PathBuf,
    /// Who has machines.
    pub offered: Offered,
    /// What the operator set.
    pub terms: Terms,
    /// How long machines may take.
    pub bounds: Bounds,
    /// Folder of its files.
    pub folder: PathBuf,
    /// Time between looks at the provider and at the coordinator.
    pub look: Duration,
    /// A call that takes longer is given up.
    pub patience: Duration,
    /// What time it is.
    pub clocks: Clocks,
}

impl MarketSettings {
    /// The record of machines.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.folder.join(RECORD)
    }

    /// What survives a restart.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.join(STATE)
    }

    /// What the provider showed, as a trace.
    #[must_use]
    pub fn sightings(&self) -> PathBuf {
        self.folder.join(SIGHTINGS)
    }

    /// What was decided, a line each.
    #[must_use]
    pub fn decisions(&self) -> PathBuf {
        self.folder.join(DECISIONS)
    }
}

/// Name of the record of machines, in the market's folder.
pub const RECORD: &str = "machines.jsonl";
/// Name of the file of what survives, there too.
pub const STATE: &str = "state.json";
/// Name of the recording of what was offered, there too.
const SIGHTINGS: &str = "sightings.jsonl";
/// Name of the file of decisions, there too.
const DECISIONS: &str = "decisions.jsonl";

impl std::fmt::Debug for MarketSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MarketSettings")
            .field("coordinator", &self.coordinator)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
