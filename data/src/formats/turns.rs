//! What holds for any conversation, however it was written: its list, and the order of its turns.

use serde_json::{Map, Value};

use crate::check::Code;
use crate::message::{Message, Role};

use super::fields::{Findings, kind};

/// More messages in one conversation are refused: each answer costs renderings of all before it.
const MAX_MESSAGES: usize = 1_000;

/// The objects of the list under `key`.
pub(super) fn list<'a>(
    record: &'a Map<String, Value>,
    key: &str,
    findings: &mut Findings,
) -> Option<Vec<&'a Map<String, Value>>> {
    let path = format!("$.{key}");
    let items = match &record.get(key) {
        Some(Value::Array(items)) => items,
        Some(Value::Null) => {
            findings.error(Code::NullField, path, format!("`{key}` is null"), "");
            return None;
        }
        Some(other) => {
            let message = format!("`{key}` is {}, not a list", kind(other));
            findings.error(Code::WrongType, path, message, "");
            return None;
        }
        None => {
            findings.error(Code::MissingField, path, format!("`{key}` is missing"), "");
            return None;
        }
    };
    if items.is_empty() {
        findings.error(
            Code::EmptyMessages,
            path,
            format!("`{key}` is empty"),
            "take the record out",
        );
        return None;
    }
    if items.len() > MAX_MESSAGES {
        findings.error(
            Code::TooManyMessages,
            path,
            format!("{} messages; the limit is {MAX_MESSAGES}", items.len()),
            "split the conversation",
        );
        return None;
    }
    let mut objects = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match item {
            Value::Object(object) => objects.push(object),
            other => {
                let message = format!("a message is {}, not an object", kind(other));
                findings.error(Code::WrongType, format!("{path}[{index}]"), message, "");
            }
        }
    }
    (objects.len() == items.len()).then_some(objects)
}

/// Checks the order: system only first, then user and assistant in turn, beginning with the user, an answer at all.
pub(super) fn check_order(messages: &[Message], path: &str, findings: &mut Findings) {
    let mut before: Option<Role> = None;
    for (index, message) in messages.iter().enumerate() {
        let place = format!("{path}[{index}]");
        let fault = match (before, message.role) {
            (None, Role::Assistant) | (Some(Role::System), Role::Assistant) => {
                Some("the conversation begins with an answer")
            }
            (Some(_), Role::System) => Some("a system message comes after the first message"),
            (Some(Role::User), Role::User) => Some("two user messages follow one another"),
            (Some(Role::Assistant), Role::Assistant) => {
                Some("two assistant messages follow one another")
            }
            _ => None,
        };
        if let Some(fault) = fault {
            findings.error(
                Code::TurnOrder,
                &place,
                fault,
                "user and assistant take turns after an optional system message; join or remove messages",
            );
        }
        if message.content.is_empty() && message.role != Role::System {
            let message = format!("a message of the {} is empty", message.role.name());
            findings.warning(Code::EmptyContent, &place, message, "");
        }
        before = Some(message.role);
    }
    if !messages
        .iter()
        .any(|message| message.role == Role::Assistant)
    {
        findings.error(
            Code::NoAssistant,
            path,
            "no assistant message to learn from",
            "add the answer, or take the record out",
        );
    }
}
