//! The forms in which samples come: one reader per form, one form per file.
//!
//! | form | keys | becomes |
//! |---|---|---|
//! | chat | `messages` of `role`, `content`, optional `weight`, `name` | a conversation |
//! | ShareGPT | `conversations` of `from`, `value`, optional `system` | a conversation |
//! | Alpaca | `instruction`, `output`, optional `input`, `system` | a conversation of one question |
//! | pair | `prompt`, `completion` | raw text, no template |
//! | text | `text` | raw text, no template |
//!
//! The first record decides; a record of another form is an error. Columns that a form does not use are a warning.

mod alpaca;
mod chat;
mod fields;
mod pair;
mod sharegpt;
mod text;
mod turns;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::check::{Code, Problem};
use crate::message::Message;

pub(crate) use fields::Findings;

/// The form of a file's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// OpenAI's `messages`.
    Chat,
    /// `conversations` of `from` and `value`.
    ShareGpt,
    /// `instruction`, `input`, `output`.
    Alpaca,
    /// `prompt` and `completion`.
    PromptCompletion,
    /// `text`.
    Text,
}

impl Format {
    /// The printed form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::ShareGpt => "sharegpt",
            Self::Alpaca => "alpaca",
            Self::PromptCompletion => "prompt_completion",
            Self::Text => "text",
        }
    }
}

/// One sample as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sample {
    /// A conversation, for the chat template.
    Chat(Vec<Message>),
    /// Raw text whose second part is trained.
    Pair {
        /// What is given.
        prompt: String,
        /// What is to follow.
        completion: String,
    },
    /// Raw text, all of it trained.
    Text(String),
}

const SUPPORTED: &str = "records hold `messages`, `conversations`, `instruction` and `output`, `prompt` and \
`completion`, or `text`";

/// The form of a record by its keys.
pub(crate) fn detect(record: &Map<String, Value>) -> Result<Format, Problem> {
    let forms = [
        ("messages", Format::Chat),
        ("conversations", Format::ShareGpt),
        ("instruction", Format::Alpaca),
        ("prompt", Format::PromptCompletion),
        ("completion", Format::PromptCompletion),
        ("text", Format::Text),
    ];
    let preference = [
        "chosen",
        "rejected",
        "preferred_output",
        "non_preferred_output",
    ];
    if let Some(key) = preference.iter().find(|key| record.contains_key(**key)) {
        let message = format!("preference data (`{key}`) is not supported");
        return Err(Problem::of_file(Code::UnsupportedFormat, message).hint(SUPPORTED));
    }
    if let Some((_, format)) = forms.iter().find(|(key, _)| record.contains_key(*key)) {
        return Ok(*format);
    }
    if record.contains_key("input_ids") {
        let message = "data that is tokenised already (`input_ids`) is not supported";
        return Err(Problem::of_file(Code::UnsupportedFormat, message).hint(SUPPORTED));
    }
    let keys: Vec<String> = record
        .keys()
        .take(12)
        .map(|key| format!("`{}`", fields::shortened(key)))
        .collect();
    let message = match keys.len() {
        0 => "the record is empty".to_owned(),
        _ => format!("no known format has the keys {}", keys.join(", ")),
    };
    Err(Problem::of_file(Code::UnknownFormat, message).hint(SUPPORTED))
}

/// Reads a record in the given form; what is wrong with it goes to `findings`.
pub(crate) fn read(
    format: Format,
    record: &Map<String, Value>,
    findings: &mut Findings,
) -> Option<Sample> {
    let found = detect(record);
    if let Err(problem) = &found
        && problem.code == Code::UnsupportedFormat
    {
        findings.errors.push(problem.clone().path("$"));
        return None;
    }
    if let Ok(other) = found
        && other != format
    {
        let message = format!(
            "this record has the form {}, the first one has {}",
            other.name(),
            format.name()
        );
        findings.error(
            Code::MixedFormat,
            "$",
            message,
            "put each form in its own file",
        );
        return None;
    }
    match format {
        Format::Chat => chat::read(record, findings),
        Format::ShareGpt => sharegpt::read(record, findings),
        Format::Alpaca => alpaca::read(record, findings),
        Format::PromptCompletion => pair::read(record, findings),
        Format::Text => text::read(record, findings),
    }
}
