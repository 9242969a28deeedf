//! `text`: raw text without a template, all of it trained.

use serde_json::{Map, Value};

use super::Sample;
use super::fields::{Findings, required_text};

pub(super) fn read(record: &Map<String, Value>, findings: &mut Findings) -> Option<Sample> {
    findings.unknown_columns(record, "$", &["text"]);
    required_text(record, "$", "text", findings).map(Sample::Text)
}
