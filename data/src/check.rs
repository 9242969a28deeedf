//! Everything wrong with a file of samples, told at once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Problems that are kept in full; further ones are only counted.
pub const MAX_PROBLEMS: usize = 100;
/// Characters of a snippet on each side of its middle.
const SNIPPET: usize = 32;

/// What kind of problem it is; the printed form is part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// No record in the file.
    EmptyFile,
    /// UTF-16, UTF-32, gzip, zstd or Parquet instead of UTF-8 lines.
    WrongEncoding,
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// A line beyond the limit.
    LineTooLong,
    /// A blank line between records.
    BlankLine,
    /// Not JSON.
    InvalidJson,
    /// Half of a surrogate pair in a string.
    LoneSurrogate,
    /// Deeper nesting than any sample needs.
    TooDeep,
    /// A key twice in one object.
    DuplicateKey,
    /// A record that is not an object.
    NotAnObject,
    /// Keys of no known format.
    UnknownFormat,
    /// A known format that is not supported.
    UnsupportedFormat,
    /// A record of another format than the first.
    MixedFormat,
    /// A field that the format needs is absent.
    MissingField,
    /// A field is null.
    NullField,
    /// A field has another type than the format needs.
    WrongType,
    /// A role that no format knows.
    UnknownRole,
    /// A role, field or content that is known but not supported.
    Unsupported,
    /// Turns in an order that cannot be.
    TurnOrder,
    /// No assistant turn.
    NoAssistant,
    /// A list of messages without any.
    EmptyMessages,
    /// More messages than accepted in one sample.
    TooManyMessages,
    /// A weight other than 0 or 1.
    BadWeight,
    /// The chat template failed on the sample.
    TemplateFailed,
    /// Trained tokens cannot be told from the rest.
    MaskUndefined,
    /// The tokenizer failed on the sample.
    TokenizerFailed,
    /// The sample holds a token that the model has no row for.
    TokenBeyondModel,
    /// A sample longer than the limit.
    TooLong,
    /// The asked length is more than the model can.
    MaxLength,
    /// No token of the file counts in the loss.
    NothingToTrain,
    /// More rows dropped than allowed.
    TooManyDropped,
    /// A column that the format does not use.
    UnknownColumn,
    /// Text without content.
    EmptyContent,
    /// Content spells a special token.
    SpecialText,
    /// Content holds bytes that the vocabulary cannot spell.
    LostText,
    /// A weight where it has no meaning.
    IgnoredWeight,
    /// What the chat template writes before an answer counts in the loss.
    LearnedHeader,
}

impl Code {
    /// The printed form.
    #[must_use]
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => format!("{self:?}"),
        }
    }
}

/// One problem and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What kind it is.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// Line, counted from 1; 0 when it concerns the whole file.
    pub line: u64,
    /// Byte of the file, counted from 0, a byte-order mark included: of the fault where known, else the line's first.
    pub byte_offset: u64,
    /// Where in the record, as in `$.messages[2].content`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_path: Option<String>,
    /// The text around it, control characters escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    /// A problem of the whole file.
    pub(crate) fn of_file(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            line: 0,
            byte_offset: 0,
            json_path: None,
            snippet: None,
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn at(mut self, line: u64, byte_offset: u64) -> Self {
        self.line = line;
        self.byte_offset = byte_offset;
        self
    }

    pub(crate) fn path(mut self, path: impl Into<String>) -> Self {
        self.json_path = Some(path.into());
        self
    }

    /// Adds the text of `line` around byte `at`.
    pub(crate) fn snippet(mut self, line: &[u8], at: usize) -> Self {
        let at = at.min(line.len());
        let part = &line[at.saturating_sub(SNIPPET)..(at + SNIPPET).min(line.len())];
        let text = String::from_utf8_lossy(part);
        let text = text.trim_matches(char::REPLACEMENT_CHARACTER);
        self.snippet = Some(text.chars().flat_map(shown).collect());
        self
    }
}

/// Control characters by their escapes, others as they are.
fn shown(c: char) -> Vec<char> {
    if c.is_control() {
        c.escape_default().collect()
    } else {
        vec![c]
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line > 0 {
            write!(f, "line {}", self.line)?;
            if let Some(path) = &self.json_path {
                write!(f, " {path}")?;
            }
            write!(f, " (byte {}): ", self.byte_offset)?;
        }
        write!(f, "{} [{}]", self.message, self.code.name())?;
        if let Some(snippet) = &self.snippet {
            write!(f, "\n    near: {snippet}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n    hint: {hint}")?;
        }
        Ok(())
    }
}

/// Problems in order of the file, the first ones in full and all by count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problems {
    /// The first ones, at most [`MAX_PROBLEMS`].
    pub listed: Vec<Problem>,
    /// How many there are of each kind.
    pub totals: BTreeMap<Code, u64>,
}

impl Problems {
    /// Adds one.
    pub(crate) fn push(&mut self, problem: Problem) {
        self.add(problem.code, 1);
        if self.listed.len() < MAX_PROBLEMS {
            self.listed.push(problem);
        }
    }

    /// Counts further ones of a kind, which are not listed.
    pub(crate) fn add(&mut self, code: Code, more: u64) {
        if more > 0 {
            *self.totals.entry(code).or_default() += more;
        }
    }

    /// Adds those of one record, each as `placed` in the file.
    pub(crate) fn append(&mut self, other: Self, placed: impl FnMut(Problem) -> Problem) {
        let room = MAX_PROBLEMS - self.listed.len();
        self.listed
            .extend(other.listed.into_iter().take(room).map(placed));
        for (code, count) in other.totals {
            self.add(code, count);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.totals.values().sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.totals.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_capped_and_the_totals_are_not() {
        let mut problems = Problems::default();
        for line in 1..=250 {
            problems.push(Problem::of_file(Code::BlankLine, "blank").at(line, 0));
        }
        assert_eq!(problems.listed.len(), MAX_PROBLEMS);
        assert_eq!(problems.totals[&Code::BlankLine], 250);
        assert_eq!(problems.count(), 250);
        let mut more = Problems::default();
        more.append(problems.clone(), |problem| problem.at(7, 0));
        more.append(problems, |problem| problem);
        assert_eq!((more.listed.len(), more.count()), (MAX_PROBLEMS, 500));
        assert!(more.listed.iter().all(|problem| problem.line == 7));
    }

    #[test]
    fn a_snippet_shows_its_surroundings_and_escapes_control_characters() {
        let line = format!("{}\u{0}é\"{}", "a".repeat(100), "b".repeat(100));
        let problem = Problem::of_file(Code::InvalidJson, "x").snippet(line.as_bytes(), 101);
        let snippet = problem.snippet.unwrap_or_default();
        assert!(snippet.contains("aa\\u{0}é\"bb"), "{snippet}");
        assert!(snippet.len() < 80);
    }
}
