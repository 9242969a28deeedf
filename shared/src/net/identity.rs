//! Who a process is: its cluster, its role, its name, as its certificate says.
//!
//! ```text
//! URI SAN   spotmux://CLUSTER/ROLE/NAME      compared by us, exactly
//! DNS SAN   ROLE.spotmux.internal            compared by TLS: a client asks for the role it wants
//! ```

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::extensions::GeneralName;

use crate::ids::{ClusterName, NodeName};
use crate::units::Micros;

/// What a process does in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Decides.
    Coordinator,
    /// Computes.
    GpuActor,
    /// Watches prices.
    MarketActor,
    /// Asks.
    Client,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Coordinator,
        Self::GpuActor,
        Self::MarketActor,
        Self::Client,
    ];

    /// The role as certificates and tokens write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::GpuActor => "gpu-actor",
            Self::MarketActor => "market-actor",
            Self::Client => "client",
        }
    }

    /// The name that TLS compares.
    #[must_use]
    pub fn dns_name(self) -> String {
        format!("{}.spotmux.internal", self.as_str())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = IdentityError;
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| IdentityError::UnknownRole(text.to_owned()))
    }
}

/// Says why a certificate names nobody of ours.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IdentityError {
    /// No X.509.
    #[error("a certificate cannot be read: {0}")]
    Unreadable(String),
    /// None, or more than one.
    #[error(
        "a certificate names {0} members of a cluster (URI spotmux://CLUSTER/ROLE/NAME), and must name one"
    )]
    NotOne(usize),
    /// A role of another version.
    #[error(
        "role {0:?} is none of coordinator, gpu-actor, market-actor, client: is the peer of another version?"
    )]
    UnknownRole(String),
    /// A part that is no name.
    #[error("{uri:?} names no member of a cluster: it should be spotmux://CLUSTER/ROLE/NAME")]
    BadUri {
        /// As written.
        uri: String,
    },
    /// Of another cluster.
    #[error(
        "{who} is of another cluster than {cluster}: each process must have joined the same one"
    )]
    OtherCluster {
        /// The peer.
        who: Box<Identity>,
        /// Ours.
        cluster: ClusterName,
    },
    /// Another role than was wanted.
    #[error("{who} answered where a {wanted} was wanted: is the address right?")]
    OtherRole {
        /// The peer.
        who: Box<Identity>,
        /// The role.
        wanted: Role,
    },
}

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its cluster.
    pub cluster: ClusterName,
    /// What it does.
    pub role: Role,
    /// Its name; among processes of a role it is unique.
    pub name: NodeName,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spotmux://{}/{}/{}", self.cluster, self.role, self.name)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;
    fn from_str(uri: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError::BadUri {
            uri: uri.to_owned(),
        };
        let path = uri.strip_prefix("spotmux://").ok_or_else(bad)?;
        let mut parts = path.split('/');
        let (Some(cluster), Some(role), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        Ok(Self {
            cluster: ClusterName::new(cluster).map_err(|_| bad())?,
            role: role.parse()?,
            name: NodeName::new(name).map_err(|_| bad())?,
        })
    }
}

impl Identity {
    /// Who a certificate is for, and from when to when it holds. Says nothing of who signed it: TLS does.
    ///
    /// # Errors
    /// [`IdentityError`] when it cannot be read or does not name exactly one member of a cluster.
    pub fn of_certificate(
        certificate: &CertificateDer<'_>,
    ) -> Result<(Self, Range<Micros>), IdentityError> {
        let (uris, life) = uris_and_life(certificate)?;
        let [uri] = uris.as_slice() else {
            return Err(IdentityError::NotOne(uris.len()));
        };
        Ok((uri.parse()?, life))
    }

    /// Refuses who is of another cluster, or of another role when one is wanted.
    ///
    /// # Errors
    /// [`IdentityError::OtherCluster`], [`IdentityError::OtherRole`].
    pub fn check(&self, cluster: &ClusterName, wanted: Option<Role>) -> Result<(), IdentityError> {
        if self.cluster != *cluster {
            return Err(IdentityError::OtherCluster {
                who: Box::new(self.clone()),
                cluster: cluster.clone(),
            });
        }
        match wanted {
            Some(wanted) if wanted != self.role => Err(IdentityError::OtherRole {
                who: Box::new(self.clone()),
                wanted,
            }),
            _ => Ok(()),
        }
    }
}

/// The names of ours in a certificate, and when it holds.
pub(super) fn uris_and_life(
    certificate: &CertificateDer<'_>,
) -> Result<(Vec<String>, Range<Micros>), IdentityError> {
    let unreadable = |error: &dyn fmt::Display| IdentityError::Unreadable(error.to_string());
    let (_, parsed) =
        x509_parser::parse_x509_certificate(certificate).map_err(|error| unreadable(&error))?;
    let names = parsed
        .subject_alternative_name()
        .map_err(|error| unreadable(&error))?;
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let uris = names.filter_map(|name| match name {
        GeneralName::URI(uri) if uri.starts_with("spotmux:") => Some((*uri).to_owned()),
        _ => None,
    });
    let instant = |seconds: i64| {
        Micros(
            u64::try_from(seconds)
                .unwrap_or(0)
                .saturating_mul(1_000_000),
        )
    };
    let validity = parsed.validity();
    let life = instant(validity.not_before.timestamp())..instant(validity.not_after.timestamp());
    Ok((uris.collect(), life))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_printed_is_read_and_nothing_else_is() {
        let text = "spotmux://c.1/gpu-actor/node-7";
        let who: Identity = text.parse().unwrap();
        assert_eq!(who.role, Role::GpuActor);
        assert_eq!(who.to_string(), text);
        for bad in [
            "spotmux://c/gpu-actor",
            "spotmux://c/gpu-actor/a/b",
            "spotmux://c/gpu-actor/..",
            "spotmux:///gpu-actor/a",
            "https://c/gpu-actor/a",
        ] {
            assert!(
                matches!(bad.parse::<Identity>(), Err(IdentityError::BadUri { .. })),
                "{bad}"
            );
        }
        let role = "spotmux://c/king/a".parse::<Identity>();
        assert_eq!(role, Err(IdentityError::UnknownRole("king".into())));
        let cluster = ClusterName::new("c.1").unwrap();
        assert!(who.check(&cluster, Some(Role::GpuActor)).is_ok());
        assert!(matches!(
            who.check(&cluster, Some(Role::Client)),
            Err(IdentityError::OtherRole { .. })
        ));
        let other = ClusterName::new("d").unwrap();
        assert!(matches!(
            who.check(&other, None),
            Err(IdentityError::OtherCluster { .. })
        ));
    }
}
