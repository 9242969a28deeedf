//! The ShareGPT form: `conversations` of `from` and `value`, with an optional `system` beside them.

use serde_json::{Map, Value};
use shared::suggest;

use crate::check::Code;
use crate::message::{Message, Role};

use super::Sample;
use super::fields::{Findings, optional_text, required_text, shortened};
use super::turns;

pub(super) fn read(record: &Map<String, Value>, findings: &mut Findings) -> Option<Sample> {
    findings.unknown_columns(record, "$", &["conversations", "system"]);
    let system = optional_text(record, "$", "system", findings);
    let items = turns::list(record, "conversations", findings)?;
    let messages: Vec<Option<Message>> = items
        .iter()
        .enumerate()
        .map(|(index, item)| message(item, &format!("$.conversations[{index}]"), findings))
        .collect();
    let messages: Vec<Message> = messages.into_iter().collect::<Option<_>>()?;
    turns::check_order(&messages, "$.conversations", findings);
    Some(Sample::Chat(with_system(system, messages, findings)))
}

fn with_system(
    system: Option<String>,
    messages: Vec<Message>,
    findings: &mut Findings,
) -> Vec<Message> {
    let Some(system) = system.filter(|system| !system.is_empty()) else {
        return messages;
    };
    if messages[0].role == Role::System {
        findings.error(
            Code::TurnOrder,
            "$.system",
            "there are two system messages: `system` and the first turn",
            "keep one of them",
        );
    }
    let mut all = vec![Message::new(Role::System, system)];
    all.extend(messages);
    all
}

fn message(item: &Map<String, Value>, path: &str, findings: &mut Findings) -> Option<Message> {
    findings.unknown_columns(item, path, &["from", "value"]);
    let from = required_text(item, path, "from", findings);
    let value = required_text(item, path, "value", findings);
    let path = format!("{path}.from");
    let role = match from?.as_str() {
        "human" | "user" => Role::User,
        "gpt" | "assistant" | "chatgpt" | "model" => Role::Assistant,
        "system" => Role::System,
        known @ ("tool" | "function" | "function_call" | "observation") => {
            let message = format!("turns of `{known}` are not supported");
            findings.error(Code::Unsupported, path, message, "take the record out");
            return None;
        }
        other => {
            findings.error(
                Code::UnknownRole,
                path,
                format!("unknown speaker `{}`", shortened(other)),
                &format!(
                    "speakers are human, gpt and system{}",
                    suggest::clause(other, ["human", "gpt", "system"])
                ),
            );
            return None;
        }
    };
    Some(Message::new(role, value?))
}
