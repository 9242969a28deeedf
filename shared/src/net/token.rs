//! One-time tokens to join a cluster.
//!
//! ```text
//! spotmux-join-1.ID.SECRET.FINGERPRINT      hexadecimal: 8, 32 and 32 bytes
//! ```
//!
//! The fingerprint is the authority's: by it the joiner knows that it speaks with the right cluster before it shows the
//! secret. The cluster keeps a hash of the secret, and for whom it is. 256 random bits need no slow hash.
//!
//! - `TO-1` A token gives one certificate: whoever removes its file has it.
//! - `TO-2` Neither file nor error shows a secret.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use thiserror::Error;

use super::identity::{Identity, IdentityError};
use super::private_file::{self, PrivateFileError};
use crate::hexadecimal::lower as hex;
use crate::units::Micros;

const PREFIX: &str = "spotmux-join-1";

/// Says why a token does not let in.
#[derive(Debug, Error)]
pub enum TokenError {
    /// Not the text of one.
    #[error("this is no token: it reads {PREFIX}.ID.SECRET.FINGERPRINT, in hexadecimal")]
    Malformed,
    /// No such token, one that was used, or a wrong secret: which of them, a stranger does not learn.
    #[error("the token {id} is unknown or was used: each lets in once; have another one made")]
    Unknown {
        /// Its public part.
        id: String,
    },
    /// Too late.
    #[error("the token {id} expired: have another one made")]
    Expired {
        /// Its public part.
        id: String,
    },
    /// Made for somebody else.
    #[error(
        "the token {id} was made for {made}, and {asked} asks: name that one, or have another token made; it was not used up"
    )]
    OtherMember {
        /// Its public part.
        id: String,
        /// Whom it lets in.
        made: Box<Identity>,
        /// Who asks.
        asked: String,
    },
    /// The kept half.
    #[error("the kept half of a token cannot be read: {0}")]
    Unreadable(String),
    /// Its file.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// No randomness.
    #[error("the system gives no randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    /// Whom it is for.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The half that the joiner gets.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Finds the other half.
    pub id: [u8; 8],
    secret: [u8; 32],
    /// The authority's.
    pub fingerprint: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("id", &hex(&self.id))
            .finish_non_exhaustive()
    }
}

impl FromStr for Token {
    type Err = TokenError;
    fn from_str(text: &str) -> Result<Self, TokenError> {
        let parts: Vec<&str> = text.trim().split('.').collect();
        let [PREFIX, id, secret, fingerprint] = parts.as_slice() else {
            return Err(TokenError::Malformed);
        };
        Ok(Self {
            id: unhex(id)?,
            secret: unhex(secret)?,
            fingerprint: unhex(fingerprint)?,
        })
    }
}

impl Token {
    /// The whole text, secret included: for the joiner only.
    #[must_use]
    pub fn reveal(&self) -> String {
        let [id, secret, fingerprint] = [&self.id[..], &self.secret, &self.fingerprint].map(hex);
        format!("{PREFIX}.{id}.{secret}.{fingerprint}")
    }
}

/// The half that the cluster keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptToken {
    /// Hexadecimal.
    pub id: String,
    /// SHA-256 of the secret, hexadecimal.
    pub sha256: String,
    /// Whom it makes of the joiner: `spotmux://CLUSTER/ROLE/NAME`.
    pub identity: String,
    /// Until when it lets in, since 1970.
    pub expires: Micros,
}

impl KeptToken {
    /// Makes both halves.
    ///
    /// # Errors
    /// [`TokenError::Randomness`].
    pub fn make(
        identity: &Identity,
        fingerprint: [u8; 32],
        expires: Micros,
    ) -> Result<(Token, Self), TokenError> {
        let (mut id, mut secret) = ([0; 8], [0; 32]);
        getrandom::fill(&mut id)?;
        getrandom::fill(&mut secret)?;
        let kept = Self {
            id: hex(&id),
            sha256: hex(&Sha256::digest(secret)),
            identity: identity.to_string(),
            expires,
        };
        let token = Token {
            id,
            secret,
            fingerprint,
        };
        Ok((token, kept))
    }

    /// Whom it lets in, if the token is its other half and it is not too late.
    ///
    /// # Errors
    /// [`TokenError::Unknown`], [`TokenError::Expired`], [`TokenError::Identity`].
    pub fn check(&self, token: &Token, now: Micros) -> Result<Identity, TokenError> {
        let id = self.id.clone();
        let shown = hex(&Sha256::digest(token.secret));
        let same: bool = shown.as_bytes().ct_eq(self.sha256.as_bytes()).into();
        if !same || hex(&token.id) != id {
            return Err(TokenError::Unknown { id });
        }
        if now >= self.expires {
            return Err(TokenError::Expired { id });
        }
        Ok(self.identity.parse()?)
    }
}

/// Tokens that were made and not used, a file each.
#[derive(Clone, Debug)]
pub struct TokenStore {
    folder: PathBuf,
}

impl TokenStore {
    /// Those in a folder.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
        }
    }

    fn path(&self, id: &[u8; 8]) -> PathBuf {
        self.folder.join(format!("{}.json", hex(id)))
    }

    /// Makes a token and keeps its other half.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn make(
        &self,
        identity: &Identity,
        fingerprint: [u8; 32],
        expires: Micros,
    ) -> Result<Token, TokenError> {
        let (token, kept) = KeptToken::make(identity, fingerprint, expires)?;
        let text = serde_json::to_vec_pretty(&kept)
            .map_err(|error| TokenError::Unreadable(error.to_string()))?;
        private_file::create(&self.path(&token.id), &text)?;
        Ok(token)
    }

    /// Uses a token up: whom it lets in. Who is somebody else, as `fits` says, does not use it up.
    ///
    /// # Errors
    /// [`TokenError`]; one that expired is removed.
    pub fn redeem(
        &self,
        token: &Token,
        now: Micros,
        fits: impl FnOnce(&Identity) -> Result<(), TokenError>,
    ) -> Result<Identity, TokenError> {
        let path = self.path(&token.id);
        let unknown = || TokenError::Unknown { id: hex(&token.id) };
        let text = fs::read(&path).map_err(|_| unknown())?;
        let kept: KeptToken = serde_json::from_slice(&text)
            .map_err(|error| TokenError::Unreadable(error.to_string()))?;
        let checked = kept.check(token, now);
        if matches!(checked, Err(TokenError::Unknown { .. })) {
            // A wrong secret must not use up the token of the right one.
            return checked;
        }
        if let Ok(identity) = &checked {
            fits(identity)?;
        }
        fs::remove_file(&path).map_err(|_| unknown())?;
        private_file::sync_folder(&self.folder).map_err(|source| PrivateFileError::Refused {
            what: "write",
            path: self.folder.clone(),
            source,
        })?;
        checked
    }
}

fn unhex<const N: usize>(text: &str) -> Result<[u8; N], TokenError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(TokenError::Malformed),
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return Err(TokenError::Malformed);
    };
    let bytes: Result<Vec<u8>, TokenError> = pairs
        .iter()
        .map(|[high, low]| Ok(digit(*high)? << 4 | digit(*low)?))
        .collect();
    bytes?.try_into().map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn who() -> Identity {
        "spotmux://c/gpu-actor/n1".parse().unwrap()
    }

    #[test]
    fn a_token_lets_in_once() {
        let root = tempfile::tempdir().unwrap();
        let store = TokenStore::new(&root.path().join("tokens"));
        let token = store.make(&who(), [7; 32], Micros(100)).unwrap();
        let text = token.reveal();
        let read: Token = text.parse().unwrap();
        assert_eq!(read, token);
        assert!(!format!("{token:?}").contains(&text[40..60]));
        // Nothing of the secret is kept.
        let file = fs::read_to_string(store.path(&token.id)).unwrap();
        assert!(!file.contains(&hex(&token.secret)));
        let wrong = Token {
            secret: [0; 32],
            ..token
        };
        assert!(matches!(
            store.redeem(&wrong, Micros(1), |_| Ok(())),
            Err(TokenError::Unknown { .. })
        ));
        let other = |made: &Identity| {
            Err(TokenError::OtherMember {
                id: hex(&token.id),
                made: Box::new(made.clone()),
                asked: "spotmux://c/gpu-actor/n2".into(),
            })
        };
        let refused = store.redeem(&read, Micros(98), other).unwrap_err();
        assert!(refused.to_string().contains("was not used up"), "{refused}");
        assert_eq!(store.redeem(&read, Micros(99), |_| Ok(())).unwrap(), who());
        assert!(matches!(
            store.redeem(&read, Micros(99), |_| Ok(())),
            Err(TokenError::Unknown { .. })
        ));
        let late = store.make(&who(), [7; 32], Micros(100)).unwrap();
        assert!(matches!(
            store.redeem(&late, Micros(100), |_| Ok(())),
            Err(TokenError::Expired { .. })
        ));
    }

    #[test]
    fn a_wall_clock_that_is_put_back_lets_a_token_in_once_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(folder.path());
        let token = store.make(&who(), [7; 32], Micros(100)).unwrap();
        let fresh = store.make(&who(), [7; 32], Micros(100)).unwrap();
        assert_eq!(store.redeem(&token, Micros(50), |_| Ok(())).unwrap(), who());
        // Put back by nearly all since it was made.
        for now in [1, 0] {
            let again = store.redeem(&token, Micros(now), |_| Ok(()));
            assert!(
                matches!(again, Err(TokenError::Unknown { .. })),
                "{again:?}"
            );
        }
        assert_eq!(store.redeem(&fresh, Micros(0), |_| Ok(())).unwrap(), who());
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let (token, kept) = KeptToken::make(&who(), [1; 32], Micros(9)).unwrap();
        let (other, _) = KeptToken::make(&who(), [1; 32], Micros(9)).unwrap();
        assert!(kept.check(&token, Micros(8)).is_ok());
        assert!(kept.check(&other, Micros(8)).is_err());
        let text = token.reveal();
        for bad in [
            "",
            "a.b.c.d",
            &text[1..],
            &text[..text.len() - 1],
            &text.to_uppercase(),
        ] {
            assert!(
                matches!(bad.parse::<Token>(), Err(TokenError::Malformed)),
                "{bad}"
            );
        }
    }
}
