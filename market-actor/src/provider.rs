//! Who has machines: one trait for a cloud, a queueing system, a recorded market and this machine itself.
//!
//! A request for a machine bears a client token, which is also the name of the node that the machine becomes. So what came of a
//! request whose answer was lost can be asked for: [`Provider::list`] shows the token. The words are pure; whoever implements
//! the trait is shell. A provider may lie, stall or forget: what is made of its answers is decided in [`crate::custody`].
//!
//! - PR-1: the same token asked twice is one machine.
//! - PR-2: a machine that was released and is gone can be released again: no error.
//! - PR-3: [`Provider::list`] shows all machines of this cluster that may still cost money, and no others.

pub mod aws;
pub mod fixed;
pub mod local;
pub mod replay;
pub mod slurm;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use shared::hexadecimal;
use shared::ids::{ClusterName, NodeName};
use shared::units::{MicroUsd, Micros};
use thiserror::Error;

use crate::market::Pool;

/// How a machine is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// At the market's price; it may be taken away.
    Spot,
    /// At a fixed price; it stays.
    OnDemand,
}

/// A request for one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// Names the request, through restarts on both sides, and the node that comes of it.
    pub token: NodeName,
    /// From which pool.
    pub pool: Pool,
    /// How it is paid.
    pub kind: Kind,
}

/// How far a machine is, by what its provider says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// It was granted and does not run yet.
    Starting,
    /// It runs.
    Running,
    /// It is being ended; it may still cost money.
    Ending,
}

/// A machine, as its provider shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The provider's name for it.
    pub id: String,
    /// The request that it came of; nothing where the provider has lost it.
    pub token: Option<NodeName>,
    /// How it is paid.
    pub kind: Kind,
    /// How far it is.
    pub state: MachineState,
    /// Name of the node that it is, where that is not the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
}

/// How sure a signal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It may not be taken any more: a risk is over.
    Over,
    /// It may be taken: checkpoint more often, expect less; never evict.
    Risk,
    /// It will be taken.
    Notice,
}

/// What a provider says of a machine's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// The machine.
    pub id: String,
    /// How sure.
    pub certainty: Certainty,
    /// When it ends, since 1970; nothing where that is not said.
    pub deadline: Option<Micros>,
    /// In the provider's words.
    pub cause: String,
}

/// What a pool offers now; what is absent was not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// Which.
    pub pool: Pool,
    /// Of one spot machine, for an hour.
    pub spot_price: Option<MicroUsd>,
    /// Spot machines that it would give in all, those held included.
    pub spot_available: Option<u32>,
    /// Of one on-demand machine, for an hour.
    pub on_demand_price: Option<MicroUsd>,
    /// On-demand machines that it would give in all; nothing where there is no known end.
    pub on_demand_available: Option<u32>,
}

/// Why a provider did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ProviderError {
    /// It has none, and none was made.
    #[error("{provider} has no machine to give: {why}; another pool or kind may have")]
    NoCapacity {
        /// Whose answer.
        provider: String,
        /// In its words.
        why: String,
    },
    /// More machines than it allows; none was made.
    #[error("{provider} allows no more machines: {why}; ask it for a higher quota")]
    Quota {
        /// Whose answer.
        provider: String,
        /// In its words.
        why: String,
    },
    /// Too many calls; nothing was done.
    #[error("{provider} wants fewer calls: {why}; it is asked again later")]
    Throttled {
        /// Whose answer.
        provider: String,
        /// In its words.
        why: String,
    },
    /// The call itself is wrong; nothing was done.
    #[error("{provider} refuses: {why}; see [market] of the cluster's file")]
    Refused {
        /// Whose answer.
        provider: String,
        /// In its words.
        why: String,
    },
    /// No answer, or one that cannot be read: it may have been done or not.
    #[error("{provider} gave no answer to {call}: {why}; what it did is looked up")]
    Unsure {
        /// Whose answer.
        provider: String,
        /// What was called.
        call: String,
        /// What happened instead.
        why: String,
    },
}

impl ProviderError {
    /// Whether it is certain that nothing was done.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        !matches!(self, Self::Unsure { .. })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spot => "spot",
            Self::OnDemand => "on demand",
        })
    }
}

/// Whose machines: what those that clusters ask of one account or queue are told apart by. Two clusters may have one name, never one
/// authority: its fingerprint is that of which its certificates are signed.
#[must_use]
pub fn known_as(cluster: &ClusterName, authority: &[u8; 32]) -> String {
    format!("{cluster}-{}", hexadecimal::lower(&authority[..4]))
}

/// What a call comes to.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

/// Has machines.
pub trait Provider: Send {
    /// One word.
    fn name(&self) -> &str;

    /// How long before its end a machine is told, at best.
    fn notice(&self) -> Micros;

    /// What its pools offer now.
    fn offers(&mut self) -> Answer<'_, Vec<Sighting>>;

    /// A machine (PR-1).
    fn acquire<'a>(&'a mut self, want: &'a Want) -> Answer<'a, Machine>;

    /// Ends a machine (PR-2).
    fn release<'a>(&'a mut self, id: &'a str) -> Answer<'a, ()>;

    /// All machines of this cluster (PR-3).
    fn list(&mut self) -> Answer<'_, Vec<Machine>>;

    /// What it says of ends since the last call; at the first what it says now.
    fn signals(&mut self) -> Answer<'_, Vec<Signal>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_of_one_name_are_told_apart_by_their_authorities() {
        let name: ClusterName = "local".parse().expect("a plain word is a name");
        let of = |byte| known_as(&name, &[byte; 32]);
        assert_eq!(of(10), "local-0a0a0a0a");
        assert_ne!(of(10), of(11));
    }
}
