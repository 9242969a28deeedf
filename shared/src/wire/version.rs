//! Which versions of the wire there are, and what each changed.
//!
//! Two processes speak with each other only in one same version: it is part of the name (ALPN) that they agree on before
//! the first byte of ours, so a peer of another version is refused in the handshake.
//!
//! | version | what changed |
//! | --- | --- |
//! | 1 | the first |
//!
//! A version is fixed by the first release that speaks it. Version 1 comes with 0.1.0: until that is released its layouts may
//! change and the number stays, so all processes of a cluster are built of one state of the sources. From then on whatever
//! changes a layout has the next number and a line above.

use std::fmt;

/// A version of the wire; later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion(pub u16);

impl ProtocolVersion {
    /// The one this program speaks.
    pub const CURRENT: Self = Self(1);

    /// The version that a peer's ALPN names, for an error that says who is older.
    #[must_use]
    pub fn of_alpn(alpn: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(alpn).ok()?;
        let (name, number) = text.split_once('/')?;
        let ours = name == "spotmux" || name == "spotmux-join";
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (ours && digits)
            .then(|| number.parse().ok())
            .flatten()
            .map(Self)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What two members of a cluster agree on in the handshake.
pub const ALPN: &[u8] = b"spotmux/1";

/// What one without a certificate asks for; only a request to join is heard there.
pub const JOIN_ALPN: &[u8] = b"spotmux-join/1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_bear_the_version() {
        let current = Some(ProtocolVersion::CURRENT);
        assert_eq!(ProtocolVersion::of_alpn(ALPN), current);
        assert_eq!(ProtocolVersion::of_alpn(JOIN_ALPN), current);
        assert!(ProtocolVersion::of_alpn(b"spotmux/2") > current);
        for other in [
            &b"h3"[..],
            b"spotmux/",
            b"spotmux/+1",
            b"spotmux/99999",
            b"\xff/1",
        ] {
            assert_eq!(ProtocolVersion::of_alpn(other), None, "{other:?}");
        }
    }
}
