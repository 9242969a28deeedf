//! `prompt` and `completion`: raw text without a template; the completion is trained.

use serde_json::{Map, Value};

use crate::check::Code;

use super::Sample;
use super::fields::{Findings, required_text};

pub(super) fn read(record: &Map<String, Value>, findings: &mut Findings) -> Option<Sample> {
    let keys = ["prompt", "completion"];
    findings.unknown_columns(record, "$", &keys);
    let is_conversation = |key: &&&str| {
        let first = record.get(**key).and_then(|value| value.get(0));
        first.is_some_and(|first| first.get("role").is_some())
    };
    if let Some(key) = keys.iter().find(is_conversation) {
        let message = format!("`{key}` is a list of messages");
        findings.error(
            Code::Unsupported,
            format!("$.{key}"),
            message,
            "write both as one list under `messages`",
        );
        return None;
    }
    let prompt = required_text(record, "$", "prompt", findings);
    let completion = required_text(record, "$", "completion", findings);
    if completion.as_deref() == Some("") {
        findings.warning(
            Code::EmptyContent,
            "$.completion",
            "the completion is empty",
            "",
        );
    }
    Some(Sample::Pair {
        prompt: prompt?,
        completion: completion?,
    })
}
