//! Reading single fields, with everything that can be wrong with one.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use shared::suggest;

use crate::check::{Code, MAX_PROBLEMS, Problem, Problems};

/// What is wrong with one record: a line of millions of bad parts makes no more problems than are listed.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What refuses it.
    pub(crate) errors: Problems,
    /// What is odd about it.
    pub(crate) warnings: Problems,
    /// Columns that were warned of, in this record or in one before.
    pub(crate) columns: BTreeSet<String>,
}

impl Findings {
    /// Of the next record of a file, in which these columns were warned of before.
    pub(crate) fn after(columns: BTreeSet<String>) -> Self {
        Self {
            columns,
            ..Self::default()
        }
    }

    pub(crate) fn error(
        &mut self,
        code: Code,
        path: impl Into<String>,
        message: impl Into<String>,
        hint: &str,
    ) {
        self.errors.push(with_hint(code, path, message, hint));
    }

    pub(crate) fn warning(
        &mut self,
        code: Code,
        path: impl Into<String>,
        message: impl Into<String>,
        hint: &str,
    ) {
        self.warnings.push(with_hint(code, path, message, hint));
    }

    /// Warns of keys that are not among `known`, of each column once, in whichever message of a list it is.
    pub(super) fn unknown_columns(
        &mut self,
        record: &Map<String, Value>,
        path: &str,
        known: &[&str],
    ) {
        for key in record.keys().filter(|key| !known.contains(&key.as_str())) {
            if !self.is_new_column(path, key) {
                self.warnings.add(Code::UnknownColumn, 1);
                continue;
            }
            let absent = known
                .iter()
                .copied()
                .filter(|name| !record.contains_key(*name));
            let hint = suggest::nearest(key, absent)
                .map(|name| format!("did you mean `{name}`?"))
                .unwrap_or_default();
            let key = shortened(key);
            self.warning(
                Code::UnknownColumn,
                format!("{path}.{key}"),
                format!("column `{key}` is not used"),
                &hint,
            );
        }
    }

    fn is_new_column(&mut self, path: &str, key: &str) -> bool {
        if self.columns.len() >= MAX_PROBLEMS {
            return false;
        }
        let mut column = format!("{path}.{}", shortened(key));
        column.retain(|c| !c.is_ascii_digit());
        self.columns.insert(column)
    }
}

fn with_hint(
    code: Code,
    path: impl Into<String>,
    message: impl Into<String>,
    hint: &str,
) -> Problem {
    let problem = Problem::of_file(code, message).path(path);
    if hint.is_empty() {
        problem
    } else {
        problem.hint(hint)
    }
}

/// A key or value of the file, short enough for a message.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A text field that must be there.
pub(super) fn required_text(
    record: &Map<String, Value>,
    path: &str,
    key: &str,
    findings: &mut Findings,
) -> Option<String> {
    let path = format!("{path}.{key}");
    let Some(value) = record.get(key) else {
        findings.error(
            Code::MissingField,
            &path,
            format!("`{key}` is missing"),
            "add it, or take the record out",
        );
        return None;
    };
    text(value, &path, key, findings)
}

/// A text field that may be absent or null.
pub(super) fn optional_text(
    record: &Map<String, Value>,
    path: &str,
    key: &str,
    findings: &mut Findings,
) -> Option<String> {
    match record.get(key) {
        None | Some(Value::Null) => None,
        Some(value) => text(value, &format!("{path}.{key}"), key, findings),
    }
}

/// A string, or a list of text parts as chat interfaces send it.
fn text(value: &Value, path: &str, key: &str, findings: &mut Findings) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => text_parts(parts, path, findings),
        Value::Null => {
            findings.error(
                Code::NullField,
                path,
                format!("`{key}` is null"),
                "write \"\" for empty text, or take the record out",
            );
            None
        }
        other => {
            let kind = kind(other);
            findings.error(
                Code::WrongType,
                path,
                format!("`{key}` is {kind}, not text"),
                "write it as a string in double quotes",
            );
            None
        }
    }
}

fn text_parts(parts: &[Value], path: &str, findings: &mut Findings) -> Option<String> {
    let mut joined = String::new();
    let mut sound = true;
    for (index, part) in parts.iter().enumerate() {
        let is_text = part["type"] == "text";
        match part["text"].as_str().filter(|_| is_text) {
            Some(text) => joined.push_str(text),
            None => {
                sound = false;
                findings.error(
                    Code::Unsupported,
                    format!("{path}[{index}]"),
                    format!(
                        "part of content is {}, not {{\"type\": \"text\", \"text\": ...}}",
                        part_kind(part)
                    ),
                    "only text can be trained: no images, audio or files",
                );
            }
        }
    }
    sound.then_some(joined)
}

fn part_kind(part: &Value) -> String {
    match part["type"].as_str() {
        Some(kind) => format!("`{}`", shortened(kind)),
        None => kind(part).to_owned(),
    }
}

/// The kind of a value in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Whether a field is there and holds something.
pub(super) fn is_filled(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Of a long line there were millions.
    #[test]
    fn bad_parts_and_columns_of_one_record_are_counted_and_not_all_kept() {
        let mut findings = Findings::default();
        let parts = vec![json!(1); 5000];
        assert_eq!(text_parts(&parts, "$.content", &mut findings), None);
        let names = (0..500).map(|n: u32| format!("{n:b}").replace('0', "a").replace('1', "b"));
        let record: Map<String, Value> = names.map(|name| (name, json!(1))).collect();
        findings.unknown_columns(&record, "$", &[]);
        let (errors, warnings) = (&findings.errors, &findings.warnings);
        assert_eq!((errors.listed.len(), errors.count()), (MAX_PROBLEMS, 5000));
        assert_eq!(
            (warnings.listed.len(), warnings.count()),
            (MAX_PROBLEMS, 500)
        );
    }
}
