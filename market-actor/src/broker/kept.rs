//! What a broker keeps so that a restart goes on where it was: money, deadline, slots, what was paused and what is being emptied.
//!
//! One file, written whole, synced, and put in the place of the one before: so it is as large as what it says. It is written before
//! what follows from it is done (BR-6), and every [`EVERY`] while money is spent.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, NodeName};
use shared::units::{MicroUsd, Micros};
use thiserror::Error;

use super::history::KeptHistory;
use super::progress::Progress;
use super::purse::Purse;
use super::stretch::Stretch;
use crate::market::Pool;
use crate::now::Now;
use crate::problem::offer::Held;
use crate::select::Selection;

/// The form that is written and read.
pub const VERSION: u32 = 2;
/// Money is kept so often.
pub const EVERY: Micros = Micros::of_millis(10_000);

/// All that survives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    spotmux_market_state: u32,
    /// When, since 1970: what has passed since then is paid and counted.
    pub at: Micros,
    /// Money.
    pub purse: Purse,
    /// The market.
    pub history: KeptHistory,
    /// The work under way.
    pub stretch: Option<Stretch>,
    /// What the budget paused.
    pub halts: Halts,
    /// Requests whose machines are being emptied, with when they will be gone, since 1970, where that was said.
    pub emptied: BTreeMap<NodeName, Option<Micros>>,
    /// Nodes that were drained from here, and not seen to take work since.
    pub given_up: BTreeSet<NodeName>,
    /// What jobs have done.
    #[serde(default)]
    pub progress: Progress,
    /// What was learned of policies.
    pub selection: Option<Selection>,
    /// What machines of pools that are shown or held cost when that was seen last.
    pub prices: Vec<Price>,
}

/// What machines of a pool cost for an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Which.
    pub pool: Pool,
    /// On spot, where that was ever said.
    pub spot: Option<MicroUsd>,
    /// On demand, where that was ever said.
    pub on_demand: Option<MicroUsd>,
}

/// What budgets paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Halts {
    /// All jobs, by the cluster's budget.
    pub all: bool,
    /// What that budget was, and the machines that it did not pay.
    pub of: Option<Halt>,
    /// Jobs by their own.
    pub jobs: BTreeSet<JobId>,
    /// Those of them that were seen paused: one that is at work after that was resumed.
    pub paused: BTreeSet<JobId>,
}

/// Why all jobs were paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Halt {
    /// The budget.
    pub cap: MicroUsd,
    /// What was wanted.
    pub target: Held,
}

/// Why what was kept cannot be read.
#[derive(Debug, Error)]
pub enum KeptError {
    /// Another program's.
    #[error(
        "it has form {found}, this program reads {VERSION}: run the program that wrote it, or move it away to begin anew with nothing spent"
    )]
    Version {
        /// The form found.
        found: u32,
    },
    /// Not what was written.
    #[error(
        "it cannot be read ({0}): spent money and deadline are in it. Move it away to begin anew with nothing spent"
    )]
    Broken(#[from] serde_json::Error),
}

impl Kept {
    /// As bytes.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is plain data")
    }

    /// What [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// [`KeptError`] for another form, or anything else.
    pub fn from_json(bytes: &[u8]) -> Result<Self, KeptError> {
        #[derive(Deserialize)]
        struct Form {
            spotmux_market_state: u32,
        }
        let form: Form = serde_json::from_slice(bytes)?;
        if form.spotmux_market_state != VERSION {
            return Err(KeptError::Version {
                found: form.spotmux_market_state,
            });
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

impl super::Broker {
    /// What is to survive from now on.
    pub(super) fn to_keep(&self, now: Now) -> Kept {
        Kept {
            spotmux_market_state: VERSION,
            at: now.wall,
            purse: self.purse.clone(),
            history: self.history.kept(),
            stretch: self.stretch.clone(),
            halts: self.halts.clone(),
            emptied: self.emptying.kept(now),
            given_up: self.emptying.given_up(),
            progress: self.meter.progress().clone(),
            selection: self.selection.clone(),
            prices: self.prices.clone(),
        }
    }
}
