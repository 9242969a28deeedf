//! What a market actor is told when it starts.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shared::net::endpoint::EndpointSettings;
use shared::units::{MicroUsd, Micros};

use crate::broker::Terms;
use crate::custody::Bounds;
use crate::provider::Provider;
use crate::provider::fixed::{Listed, Static};
use crate::provider::local::{Launch, Local, Stock};
use crate::provider::replay::Replay;
use crate::provider::replay::course::Script;

/// Tells the time, since 1970.
pub(super) type Clock = Arc<dyn Fn() -> Micros + Send + Sync>;

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
}

impl Offered {
    /// The provider; its files are in `folder`.
    ///
    /// # Errors
    /// When a file or folder cannot be had.
    pub fn provider(self, folder: &Path, clock: &Clock) -> io::Result<Box<dyn Provider>> {
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
    /// Microseconds since 1970.
    pub clock: Clock,
}

impl MarketSettings {
    /// The record of machines.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.folder.join(RECORD)
    }

    /// What was decided, a line each.
    #[must_use]
    pub fn decisions(&self) -> PathBuf {
        self.folder.join(DECISIONS)
    }
}

/// Name of the record of machines, in the market's folder.
const RECORD: &str = "machines.jsonl";
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
