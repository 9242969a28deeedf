//! The Alpaca form: `instruction`, optional `input`, `output`. It becomes a conversation of one question, so that a
//! model trained on it answers the same question asked in a chat; the input follows the instruction after a blank line.

use serde_json::{Map, Value};

use crate::message::{Message, Role};

use super::Sample;
use super::fields::{Findings, optional_text, required_text};
use super::turns;

pub(super) fn read(record: &Map<String, Value>, findings: &mut Findings) -> Option<Sample> {
    findings.unknown_columns(record, "$", &["instruction", "input", "output", "system"]);
    let instruction = required_text(record, "$", "instruction", findings);
    let input = optional_text(record, "$", "input", findings);
    let output = required_text(record, "$", "output", findings);
    let system = optional_text(record, "$", "system", findings);
    let (mut question, output) = (instruction?, output?);
    if let Some(input) = input.filter(|input| !input.is_empty()) {
        question = format!("{question}\n\n{input}");
    }
    let mut messages = Vec::new();
    if let Some(system) = system.filter(|system| !system.is_empty()) {
        messages.push(Message::new(Role::System, system));
    }
    messages.push(Message::user(question));
    messages.push(Message::assistant(output));
    turns::check_order(&messages, "$", findings);
    Some(Sample::Chat(messages))
}
