//! OpenAI's chat form: `messages` of `role` and `content`, with an optional `weight` of 0 or 1 on answers.

use serde_json::{Map, Value};
use shared::suggest;

use crate::check::Code;
use crate::message::{Message, Role};

use super::Sample;
use super::fields::{Findings, is_filled, optional_text, required_text, shortened};
use super::turns;

const TOOLS: &str =
    "tool calls are not supported: take the record out, or write the call as plain content";

pub(super) fn read(record: &Map<String, Value>, findings: &mut Findings) -> Option<Sample> {
    findings.unknown_columns(
        record,
        "$",
        &["messages", "tools", "parallel_tool_calls", "functions"],
    );
    for key in ["tools", "functions"] {
        if is_filled(record.get(key)) {
            let message = format!("`{key}` is not supported");
            findings.error(Code::Unsupported, format!("$.{key}"), message, TOOLS);
        }
    }
    let items = turns::list(record, "messages", findings)?;
    let messages: Vec<Option<Message>> = items
        .iter()
        .enumerate()
        .map(|(index, item)| message(item, &format!("$.messages[{index}]"), findings))
        .collect();
    let messages: Vec<Message> = messages.into_iter().collect::<Option<_>>()?;
    turns::check_order(&messages, "$.messages", findings);
    Some(Sample::Chat(messages))
}

fn message(item: &Map<String, Value>, path: &str, findings: &mut Findings) -> Option<Message> {
    let known = [
        "role",
        "content",
        "name",
        "weight",
        "refusal",
        "tool_calls",
        "function_call",
        "tool_call_id",
    ];
    findings.unknown_columns(item, path, &known);
    for key in ["tool_calls", "function_call", "tool_call_id"] {
        if is_filled(item.get(key)) {
            let message = format!("`{key}` is not supported");
            findings.error(Code::Unsupported, format!("{path}.{key}"), message, TOOLS);
            return None;
        }
    }
    let role = role(item, path, findings);
    let content = required_text(item, path, "content", findings);
    let name = optional_text(item, path, "name", findings);
    let trained = weight(item, path, role, findings);
    Some(Message {
        role: role?,
        content: content?,
        name,
        trained: trained?,
    })
}

fn role(item: &Map<String, Value>, path: &str, findings: &mut Findings) -> Option<Role> {
    let role = required_text(item, path, "role", findings)?;
    let path = format!("{path}.role");
    match role.as_str() {
        "system" | "developer" => Some(Role::System),
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        "tool" | "function" => {
            let message = format!("role `{role}` is not supported");
            findings.error(Code::Unsupported, path, message, TOOLS);
            None
        }
        other => {
            findings.error(
                Code::UnknownRole,
                path,
                format!("unknown role `{}`", shortened(other)),
                &format!(
                    "roles are system, user and assistant{}",
                    suggest::clause(other, ["system", "user", "assistant"])
                ),
            );
            None
        }
    }
}

/// Whether the message counts; an absent weight says yes.
fn weight(
    item: &Map<String, Value>,
    path: &str,
    role: Option<Role>,
    findings: &mut Findings,
) -> Option<bool> {
    let value = match item.get("weight") {
        None | Some(Value::Null) => return Some(true),
        Some(value) => value,
    };
    let path = format!("{path}.weight");
    if role.is_some_and(|role| role != Role::Assistant) {
        let message = "`weight` has a meaning on assistant messages only";
        findings.warning(Code::IgnoredWeight, &path, message, "");
    }
    match value.as_u64() {
        Some(0) => Some(false),
        Some(1) => Some(true),
        _ => {
            let message = format!("`weight` is {}", shortened(&value.to_string()));
            findings.error(
                Code::BadWeight,
                &path,
                message,
                "the weight of a message is the integer 0 or 1",
            );
            None
        }
    }
}
