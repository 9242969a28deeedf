//! Names and numbers that identify things.
//!
//! A [`JobName`] or [`NodeName`] is 1 to 64 characters of `a-z A-Z 0-9 . _ -`, starting with a letter or digit: it is
//! also a folder name, so nothing that a path could misread is let in. Numbers print with letters before them, and are
//! read that way too: job `j12`, plan epoch `e3`, term `t2`, event `ev120`.

mod number;

pub use number::{BadNumber, EventNumber, JobId, PlanEpoch, Term};

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Tells why a text is not a name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{what} name {text:?} {reason}: use 1 to 64 of a-z A-Z 0-9 . _ - and start with a letter or digit"
)]
pub struct BadName {
    what: &'static str,
    text: String,
    reason: &'static str,
}

/// What is wrong with a text as a name, if anything.
fn fault(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("is empty")
    } else if text.chars().count() > JobName::MAX {
        Some("is longer than 64 characters")
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Some("does not start with a letter or digit")
    } else if !text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    {
        Some("has a character outside the allowed set")
    } else {
        None
    }
}

macro_rules! name {
    ($name:ident, $what:literal, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Longest name in characters.
            pub const MAX: usize = 64;

            /// Checks a text and makes it a name.
            ///
            /// # Errors
            /// [`BadName`] when the text is empty, too long, or has a character that a folder name should not have.
            pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
                let text = text.into();
                let what = $what;
                match fault(&text) {
                    Some(reason) => Err(BadName { what, text, reason }),
                    None => Ok(Self(text)),
                }
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    JobName,
    "job",
    "Names a job within one file of jobs or one cluster; unique there, and safe as a folder name."
);
name!(
    NodeName,
    "node",
    "Names a machine, or a process that stands for one; its certificate bears it."
);
name!(
    ClusterName,
    "cluster",
    "Names a cluster; every certificate of its authority bears it."
);

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
