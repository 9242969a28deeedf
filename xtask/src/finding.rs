//! One thing wrong, where, and what to do.

use std::fmt;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Printed; the gate stays open.
    Warning,
    /// The gate closes.
    Failure,
}

/// One thing wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Whether the gate closes.
    pub level: Level,
    /// The rule, one word: `floor`, `pure`, `ring`, `unsafe`, `name`, `size`, `table`.
    pub rule: &'static str,
    /// File from the root of the workspace, with `:line` where there is one.
    pub place: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Finding {
    /// Makes a finding that closes the gate.
    #[must_use]
    pub fn failure(rule: &'static str, place: impl Into<String>, message: String) -> Self {
        Self {
            level: Level::Failure,
            rule,
            place: place.into(),
            message,
        }
    }

    /// Makes a finding that is only printed.
    #[must_use]
    pub fn warning(rule: &'static str, place: impl Into<String>, message: String) -> Self {
        Self {
            level: Level::Warning,
            ..Self::failure(rule, place, message)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Warning => "warning",
            Level::Failure => "error",
        };
        write!(f, "{level}[{}] {}: {}", self.rule, self.place, self.message)
    }
}

/// The findings that close the gate.
#[must_use]
pub fn failures(findings: &[Finding]) -> Vec<&Finding> {
    findings
        .iter()
        .filter(|finding| finding.level == Level::Failure)
        .collect()
}
