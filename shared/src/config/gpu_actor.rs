//! Section `gpu_actor`: what holds for every node that does not say otherwise.

use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::plan::mib;
use crate::units::{Bytes, Micros};

/// Whose machines the nodes run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineCloud {
    /// Machines that nobody takes away with a notice, or one's own.
    #[default]
    None,
    /// EC2.
    Aws,
    /// Compute Engine.
    Gcp,
    /// Azure virtual machines.
    Azure,
}

/// What holds for every node that does not say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuActorSection {
    /// Compute threads.
    pub threads: u64,
    /// Memory offered.
    pub memory_mib: u64,
    /// Where it listens (UDP).
    pub listen: SocketAddr,
    /// Largest backbone that a node without one fetches from another member.
    pub fetch_gib: u64,
    /// How fast a node hands its backbone to one that fetches it.
    pub serve_mib_s: u64,
    /// How long a node that is asked to end stays for its stage to move.
    pub leave_seconds: u64,
    /// Whose metadata service a node asks whether its machine is to be taken.
    pub cloud: MachineCloud,
}

impl GpuActorSection {
    /// Largest backbone that is fetched.
    #[must_use]
    pub fn fetch(&self) -> Bytes {
        Bytes(self.fetch_gib.saturating_mul(1 << 30))
    }

    /// Bytes a second.
    #[must_use]
    pub fn serve_rate(&self) -> Bytes {
        mib(self.serve_mib_s)
    }

    /// How long a node that is asked to end stays at most.
    #[must_use]
    pub fn leave(&self) -> Micros {
        Micros::of_millis(self.leave_seconds.saturating_mul(1000))
    }
}

impl Default for GpuActorSection {
    fn default() -> Self {
        Self {
            threads: 1,
            memory_mib: 1024,
            listen: SocketAddr::from(([127, 0, 0, 1], 7430)),
            fetch_gib: 64,
            serve_mib_s: 64,
            leave_seconds: 30,
            cloud: MachineCloud::None,
        }
    }
}
