//! What a broker keeps so that a restart goes on where it was: money, deadline, slots, what was paused and what is being emptied.
//!
//! One file, written whole, synced, and put in the place of the one before: so it is as large as what it says. It is written before
//! what follows from it is done (BR-6), and every [`EVERY`] while money is spent.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use shared::ids::{JobId, NodeName};
use shared::units::Micros;
use thiserror::Error;

use super::history::KeptHistory;
use super::purse::Purse;
use super::stretch::Stretch;
use crate::select::Selection;

/// The form that is written and read.
pub const VERSION: u32 = 1;
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
    /// Requests whose machines are being emptied, and nodes that were drained from here.
    pub emptied: BTreeSet<NodeName>,
    /// Nodes that were drained from here, and not seen to take work since.
    pub given_up: BTreeSet<NodeName>,
    /// What was learned of policies.
    pub selection: Option<Selection>,
}

/// What budgets paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Halts {
    /// All jobs, by the cluster's budget.
    pub all: bool,
    /// Jobs by their own.
    pub jobs: BTreeSet<JobId>,
}

/// Why what was kept cannot be read.
#[derive(Debug, Error)]
pub enum KeptError {
    /// Another program's.
    #[error("it has form {found}, this program reads {VERSION}: run the program that wrote it")]
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
    pub(super) fn to_keep(&self, wall: Micros) -> Kept {
        Kept {
            spotmux_market_state: VERSION,
            at: wall,
            purse: self.purse.clone(),
            history: self.history.kept(),
            stretch: self.stretch.clone(),
            halts: self.halts.clone(),
            emptied: self.emptying.tokens(),
            given_up: self.emptying.given_up().clone(),
            selection: self.selection.clone(),
        }
    }
}
