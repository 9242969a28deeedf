//! Names of artifacts.
//!
//! A key is up to 512 characters: parts of `a-z A-Z 0-9 . _ - =`, parted by `/`, none empty, none starting with a dot.
//! So a key is the same in a folder and in a bucket, and leads out of neither.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Tells why a text is no key.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{text:?} is no key of the store of artifacts: it {reason}; use parts of a-z A-Z 0-9 . _ - = parted by /, none empty or starting with a dot"
)]
pub struct BadKey {
    text: String,
    reason: &'static str,
}

/// Names an artifact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

impl Key {
    /// Longest key in characters.
    pub const MAX: usize = 512;

    /// Checks a text and makes it a key.
    ///
    /// # Errors
    /// [`BadKey`].
    pub fn new(text: impl Into<String>) -> Result<Self, BadKey> {
        let text = text.into();
        let fault = if text.len() > Self::MAX {
            Some("is longer than 512 characters")
        } else {
            text.split('/').find_map(fault)
        };
        match fault {
            Some(reason) => Err(BadKey { text, reason }),
            None => Ok(Self(text)),
        }
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A key below this one.
    ///
    /// # Errors
    /// [`BadKey`].
    pub fn join(&self, rest: &str) -> Result<Self, BadKey> {
        Self::new(format!("{}/{rest}", self.0))
    }
}

fn fault(part: &str) -> Option<&'static str> {
    if part.is_empty() {
        Some("has an empty part")
    } else if part.starts_with('.') {
        Some("has a part that starts with a dot")
    } else if !part
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-=".contains(&byte))
    {
        Some("has a character outside the allowed set")
    } else {
        None
    }
}

impl TryFrom<String> for Key {
    type Error = BadKey;
    fn try_from(text: String) -> Result<Self, BadKey> {
        Self::new(text)
    }
}

impl FromStr for Key {
    type Err = BadKey;
    fn from_str(text: &str) -> Result<Self, BadKey> {
        Self::new(text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_the_store() {
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            "..",
            "a/../b",
            ".a",
            "a/.b",
            "a\\b",
            "a b",
            "a#1",
            "a%2e",
            "ä",
            &"x".repeat(513),
        ] {
            assert!(Key::new(bad).is_err(), "{bad:?} passed");
        }
        for good in ["a", "rows/0f.bin", "jobs/j1/step=12/state.safetensors"] {
            assert!(Key::new(good).is_ok(), "{good:?} refused");
        }
    }
}
