//! Names and numbers that identify things.
//!
//! A [`JobName`] is 1 to 64 characters of `a-z A-Z 0-9 . _ -`, starting with a letter or digit: it is also a
//! folder name, so nothing that a path could misread is let in.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Names a job within one file of jobs or one service; unique there, and safe as a folder name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobName(String);

/// Tells why a text is not a job name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "job name {text:?} {reason}: use 1 to 64 of a-z A-Z 0-9 . _ - and start with a letter or digit"
)]
pub struct BadJobName {
    text: String,
    reason: &'static str,
}

impl JobName {
    /// Longest name in characters.
    pub const MAX: usize = 64;

    /// Checks a text and makes it a name.
    ///
    /// # Errors
    /// [`BadJobName`] when the text is empty, too long, or has a character that a folder name should not have.
    pub fn new(text: impl Into<String>) -> Result<Self, BadJobName> {
        let text = text.into();
        let reason = if text.is_empty() {
            "is empty"
        } else if text.chars().count() > Self::MAX {
            "is longer than 64 characters"
        } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            "does not start with a letter or digit"
        } else if !text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        {
            "has a character outside the allowed set"
        } else {
            return Ok(Self(text));
        };
        Err(BadJobName { text, reason })
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for JobName {
    type Error = BadJobName;
    fn try_from(text: String) -> Result<Self, BadJobName> {
        Self::new(text)
    }
}

impl From<JobName> for String {
    fn from(name: JobName) -> Self {
        name.0
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_tricks_are_not_names() {
        for bad in [
            "",
            "..",
            ".hidden",
            "a/b",
            "a\\b",
            "-x",
            "naïve",
            "a b",
            &"x".repeat(65),
        ] {
            assert!(JobName::new(bad).is_err(), "{bad:?} passed");
        }
        for good in ["a", "sentiment-r8", "7b.v2_x", &"x".repeat(64)] {
            assert!(JobName::new(good).is_ok(), "{good:?} refused");
        }
    }
}
