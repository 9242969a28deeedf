//! Section `gpu_actor`: what holds for every node that does not say otherwise.

use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::plan::mib;
use crate::units::{Bytes, Micros};

/// Whose machines the nodes run on, where somebody takes them away with a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cloud {
    /// EC2.
    Aws,
    /// Compute Engine.
    Gcp,
    /// Azure virtual machines.
    Azure,
}

impl Cloud {
    /// The notice that it gives where it names no time.
    #[must_use]
    pub const fn notice(self) -> Micros {
        match self {
            Self::Aws => Micros::of_millis(120_000),
            Self::Gcp | Self::Azure => Micros::of_millis(30_000),
        }
    }
}

/// A cloud as the file has it: its name, or `none`.
mod cloud_or_none {
    use serde::de::IntoDeserializer;
    use serde::de::value::Error as Unknown;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Cloud;

    const NONE: &str = "none";

    pub(super) fn serialize<S: Serializer>(
        cloud: &Option<Cloud>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match cloud {
            Some(cloud) => cloud.serialize(to),
            None => to.serialize_str(NONE),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Cloud>, D::Error> {
        let word = String::deserialize(from)?;
        if word == NONE {
            return Ok(None);
        }
        let named = Cloud::deserialize(word.as_str().into_deserializer());
        named.map(Some).map_err(|_: Unknown| {
            serde::de::Error::unknown_variant(&word, &[NONE, "aws", "gcp", "azure"])
        })
    }
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
    /// Whose metadata service a node asks whether its machine is to be taken; none: nobody takes it, or without a notice.
    #[serde(with = "cloud_or_none")]
    pub cloud: Option<Cloud>,
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
            cloud: None,
        }
    }
}
