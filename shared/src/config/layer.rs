//! What one source says of the keys: each value checked by itself, with the place where it was said.

use std::collections::BTreeMap;
use std::ops::Range;

use core::net::SocketAddr;
use toml::Value;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Kind};
use super::{Origin, Problem};
use crate::ids::NodeName;
use crate::suggest;

/// A value of a key, and who said so.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Path of the key, such as `node[1].listen`.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Where.
    pub origin: Origin,
}

/// What a source says, and everything wrong with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// The values that can be.
    pub said: Vec<Said>,
    /// What cannot.
    pub problems: Vec<Problem>,
}

/// Reads the text of a file; `path` is for messages.
#[must_use]
pub fn of_file(path: &str, text: &str) -> Layer {
    let mut layer = Layer::default();
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => {
            let line = error.span().map_or(1, |span| line_of(text, &span));
            layer.problems.push(Problem {
                origin: Origin::File {
                    path: path.into(),
                    line,
                },
                key: String::new(),
                message: format!("is not TOML: {}", error.message()),
            });
            return layer;
        }
    };
    let mut lines = BTreeMap::new();
    if let Ok(spanned) = DeTable::parse(text) {
        lines_of_table(spanned.get_ref(), "", text, &mut lines);
    }
    let walk = Walk { path, lines };
    walk.table(&table, "", &mut layer);
    // In the order of lines.
    layer.problems.sort();
    layer
}

/// Reads one value given as a word, by a variable or a flag.
///
/// # Errors
/// [`Problem`] for an unknown key or a value that cannot be.
pub fn of_word(key: &str, word: &str, origin: Origin) -> Result<Said, Problem> {
    let problem = |message: String| Problem {
        origin: origin.clone(),
        key: key.into(),
        message,
    };
    let Some(found) = keys::find(key) else {
        return Err(problem(unknown(key)));
    };
    if key.starts_with("node.") {
        return Err(problem(format!(
            "which node? say its place in the file, as in --set node[0].{}=...",
            key.trim_start_matches("node.")
        )));
    }
    let text = || Value::String(word.into());
    let value = match found.kind {
        Kind::Count { .. } | Kind::CountOr { .. } => {
            word.parse().map_or_else(|_| text(), Value::Integer)
        }
        Kind::Flag => word.parse().map_or_else(|_| text(), Value::Boolean),
        Kind::Text | Kind::Name | Kind::Address | Kind::Choice(_) => text(),
    };
    fits(found.kind, found.unit, &value).map_err(problem)?;
    Ok(Said {
        key: key.into(),
        value,
        origin,
    })
}

/// What is said of a path that is no key.
fn unknown(path: &str) -> String {
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    let under = keys::names_under(section);
    if under.is_empty() && !section.is_empty() {
        return unknown(section);
    }
    if !keys::names_under(path).is_empty() {
        return "is a section: name one of its keys".into();
    }
    format!(
        "is no key: valid are {}{}",
        under.join(", "),
        suggest::clause(name, under.iter().copied())
    )
}

struct Walk<'a> {
    path: &'a str,
    lines: BTreeMap<String, usize>,
}

impl Walk<'_> {
    fn origin(&self, key: &str) -> Origin {
        Origin::File {
            path: self.path.into(),
            line: self.lines.get(key).copied().unwrap_or(1),
        }
    }

    fn table(&self, table: &toml::Table, at: &str, layer: &mut Layer) {
        for (name, value) in table {
            let dot = if at.is_empty() { "" } else { "." };
            let key = format!("{at}{dot}{name}");
            if key == "node" {
                self.nodes(value, layer);
                continue;
            }
            let section = !keys::names_under(&key).is_empty();
            match (keys::find(&key), value) {
                (Some(found), value) => match fits(found.kind, found.unit, value) {
                    Ok(()) => layer.said.push(Said {
                        origin: self.origin(&key),
                        value: value.clone(),
                        key,
                    }),
                    Err(message) => self.wrong(&key, message, layer),
                },
                (None, Value::Table(inner)) if section => self.table(inner, &key, layer),
                (None, _) if section => self.wrong(
                    &key,
                    format!("is a section: write [{key}] and its keys below"),
                    layer,
                ),
                (None, _) => self.wrong(&key, unknown(&key), layer),
            }
        }
    }

    fn nodes(&self, value: &Value, layer: &mut Layer) {
        let Value::Array(list) = value else {
            return self.wrong(
                "node",
                "is a list of tables: write [[node]] for each".into(),
                layer,
            );
        };
        for (index, node) in list.iter().enumerate() {
            let key = format!("node[{index}]");
            match node {
                Value::Table(table) => {
                    if !table.contains_key("name") {
                        self.wrong(&key, "has no name: add name = \"...\"".into(), layer);
                    }
                    self.table(table, &key, layer);
                }
                _ => self.wrong(&key, "is no table: write [[node]] for each".into(), layer),
            }
        }
    }

    fn wrong(&self, key: &str, message: String, layer: &mut Layer) {
        layer.problems.push(Problem {
            origin: self.origin(key),
            key: key.into(),
            message,
        });
    }
}

/// What keeps a value from being one of this kind.
fn fits(kind: Kind, unit: &str, value: &Value) -> Result<(), String> {
    let unit = if unit.is_empty() || kind == Kind::Address {
        String::new()
    } else {
        format!(" {unit}")
    };
    match (kind, value) {
        (Kind::Text, Value::String(text)) if text.trim().is_empty() => {
            Err("is empty: give a text, or leave the key out".into())
        }
        (Kind::Text, Value::String(_)) | (Kind::Flag, Value::Boolean(_)) => Ok(()),
        // Nodes are not all that is named so: the key says what is.
        (Kind::Name, Value::String(text)) => {
            NodeName::new(text.as_str()).map(drop).map_err(|error| {
                error
                    .to_string()
                    .trim_start_matches("node name ")
                    .to_owned()
            })
        }
        (Kind::Count { least, most }, Value::Integer(count)) => within(*count, least, most, &unit),
        (Kind::CountOr { most, .. }, Value::Integer(count)) => within(*count, 1, most, &unit),
        (Kind::CountOr { words, .. }, Value::String(text)) if words.contains(&text.as_str()) => {
            Ok(())
        }
        (Kind::Address, Value::String(text)) => {
            text.parse::<SocketAddr>().map(drop).map_err(|_| {
                format!("{text:?} is no address with a port: write it as \"127.0.0.1:7420\"")
            })
        }
        (Kind::Choice(words), Value::String(text)) => {
            if words.contains(&text.as_str()) {
                return Ok(());
            }
            let clause = suggest::clause(text, words.iter().copied());
            Err(format!("{text:?} is none of {}{clause}", words.join(", ")))
        }
        (kind, value) => Err(format!("{value} is not {}", wanted(kind, &unit))),
    }
}

fn within(count: i64, least: u64, most: u64, unit: &str) -> Result<(), String> {
    if u64::try_from(count).is_ok_and(|count| (least..=most).contains(&count)) {
        return Ok(());
    }
    Err(format!("{count}{unit} is outside {least} to {most}"))
}

fn wanted(kind: Kind, unit: &str) -> String {
    match kind {
        Kind::Text => "a text in quotes".into(),
        Kind::Name => "a name in quotes".into(),
        Kind::Count { least, most } => format!("a whole number from {least} to {most}{unit}"),
        Kind::CountOr { most, words } => {
            let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            format!(
                "a whole number from 1 to {most}{unit}, or {}",
                words.join(" or ")
            )
        }
        Kind::Flag => "true or false".into(),
        Kind::Address => "an address with a port, as \"127.0.0.1:7420\"".into(),
        Kind::Choice(words) => format!("one of {}, in quotes", words.join(", ")),
    }
}

fn lines_of_table(table: &DeTable<'_>, at: &str, text: &str, lines: &mut BTreeMap<String, usize>) {
    for (name, value) in table {
        let dot = if at.is_empty() { "" } else { "." };
        let key = format!("{at}{dot}{}", name.get_ref());
        lines.insert(key.clone(), line_of(text, &name.span()));
        lines_of_value(value, &key, text, lines);
    }
}

fn lines_of_value(
    value: &toml::Spanned<DeValue<'_>>,
    key: &str,
    text: &str,
    lines: &mut BTreeMap<String, usize>,
) {
    match value.get_ref() {
        DeValue::Table(inner) => lines_of_table(inner, key, text, lines),
        DeValue::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                let key = format!("{key}[{index}]");
                lines.insert(key.clone(), line_of(text, &item.span()));
                lines_of_value(item, &key, text, lines);
            }
        }
        _ => {}
    }
}

/// The line of a place in a text, from 1.
fn line_of(text: &str, span: &Range<usize>) -> usize {
    let end = span.start.min(text.len());
    1 + text.as_bytes()[..end]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn told(text: &str) -> Vec<String> {
        let problems = of_file("c.toml", text).problems;
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_with_its_line() {
        let text = "\
[plna]
stages = 2
[plan]
stges = 2
stages = \"some\"
replicas = 0
tokens_per_pass = -1
bf16_on_the_wire = 1
[coordinator]
listen = \"localhost\"
[model]
format = \"bf-16\"
[cluster]
name = \"a b\"
[store]
url = \" \"
[[node]]
name = \"n1\"
[[node]]
threds = 2
";
        let found = told(text);
        let starts = [
            "c.toml:1: plna: is no key",
            "c.toml:4: plan.stges: is no key",
            "c.toml:5: plan.stages: \"some\" is not a whole number from 1 to 1024 stages, or \"all\"",
            "c.toml:6: plan.replicas: 0 copies is outside 1 to 1024",
            "c.toml:7: plan.tokens_per_pass: -1 tokens is outside 1 to 16777216",
            "c.toml:8: plan.bf16_on_the_wire: 1 is not true or false",
            "c.toml:10: coordinator.listen: \"localhost\" is no address",
            "c.toml:12: model.format: \"bf-16\" is none of as-shipped, f32, bf16; did you mean `bf16`?",
            "c.toml:14: cluster.name: ",
            "c.toml:16: store.url: is empty",
            "c.toml:19: node[1]: has no name",
            "c.toml:20: node[1].threds: is no key: valid are name, listen, advertise, threads, memory_mib, spot, metrics; did you mean `threads`?",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(
                found.starts_with(start),
                "{found} does not start with {start}"
            );
        }
        assert!(told("[plan\n")[0].starts_with("c.toml:1: is not TOML: "));
        assert!(told("node = 3")[0].contains("[[node]]"));
        assert!(told("plan = 3")[0].contains("is a section"));
    }

    #[test]
    fn words_become_values_by_the_kind_of_their_key() {
        let word = |key: &str, word: &str| of_word(key, word, Origin::Flag).map(|said| said.value);
        assert_eq!(word("plan.stages", "2"), Ok(Value::Integer(2)));
        assert_eq!(word("plan.stages", "all"), Ok(Value::String("all".into())));
        assert_eq!(
            word("telemetry.metrics", "false"),
            Ok(Value::Boolean(false))
        );
        assert_eq!(word("cluster.name", "7"), Ok(Value::String("7".into())));
        assert_eq!(word("node[1].threads", "3"), Ok(Value::Integer(3)));
        let message = |key: &str, value: &str| word(key, value).unwrap_err().to_string();
        assert!(message("plan.stage", "2").ends_with("did you mean `stages`?"));
        assert!(message("paln.stages", "2").ends_with("did you mean `plan`?"));
        assert!(message("plan", "2").contains("is a section"));
        assert!(message("plan.replicas", "two").contains("is not a whole number"));
        assert!(message("node.threads", "2").contains("node[0].threads"));
    }
}
