//! `tojson` as Python's `json.dumps(..., ensure_ascii=False)` writes it.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};

/// The filter: `indent`, `sort_keys` and `ensure_ascii` are honoured, `separators` is not needed by known templates.
pub(super) fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let style = Style {
        indent: indent.map(|width| width.min(16)),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ascii: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
    };
    options.assert_all_used()?;
    let tree = serde_json::to_value(&value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let mut text = String::new();
    style.write(&tree, 0, &mut text);
    Ok(text)
}

#[derive(Clone, Copy, Debug)]
struct Style {
    indent: Option<usize>,
    sort_keys: bool,
    ascii: bool,
}

impl Style {
    fn write(self, tree: &serde_json::Value, depth: usize, text: &mut String) {
        match tree {
            serde_json::Value::Array(items) => {
                let write = |item: &&serde_json::Value, text: &mut String| {
                    self.write(item, depth + 1, text);
                };
                self.block(('[', ']'), items.iter(), depth, text, write);
            }
            serde_json::Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| key.as_str());
                }
                let write = |(key, item): &(&String, &serde_json::Value), text: &mut String| {
                    self.string(key, text);
                    text.push_str(": ");
                    self.write(item, depth + 1, text);
                };
                self.block(('{', '}'), entries.into_iter(), depth, text, write);
            }
            serde_json::Value::String(string) => self.string(string, text),
            serde_json::Value::Number(number) => text.push_str(&python_number(number)),
            serde_json::Value::Bool(_) | serde_json::Value::Null => {
                text.push_str(&tree.to_string());
            }
        }
    }

    fn block<T>(
        self,
        (open, close): (char, char),
        items: impl ExactSizeIterator<Item = T>,
        depth: usize,
        text: &mut String,
        write: impl Fn(&T, &mut String),
    ) {
        let empty = items.len() == 0;
        text.push(open);
        for (index, item) in items.enumerate() {
            match (self.indent, index) {
                (Some(_), 0) | (None, 0) => {}
                (Some(_), _) => text.push(','),
                (None, _) => text.push_str(", "),
            }
            self.new_line(depth + 1, text);
            write(&item, text);
        }
        if !empty {
            self.new_line(depth, text);
        }
        text.push(close);
    }

    fn new_line(self, depth: usize, text: &mut String) {
        if let Some(width) = self.indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', width * depth));
        }
    }

    fn string(self, string: &str, text: &mut String) {
        text.push('"');
        for c in string.chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                c if c < ' ' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
                c if self.ascii && !c.is_ascii() => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => text.push(c),
            }
        }
        text.push('"');
    }
}

/// A number as Python prints it: floats keep a point, and exponents have a sign and two digits.
fn python_number(number: &serde_json::Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let size = float.abs();
    if size == 0.0 || (1e-4..1e16).contains(&size) {
        return format!("{float:?}");
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{exponent:+03}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn rendered(options: Kwargs) -> String {
        let value = Value::from_serialize(serde_json::json!({
            "b": [1, 2.0, 1e16, 1.5e-7], "a": "<é>\n\u{1}\"", "n": null, "t": true, "e": [], "o": {},
        }));
        to_json(value, options).unwrap()
    }

    /// Expected texts printed by Python 3.11's `json.dumps`.
    #[test]
    fn equals_python() {
        assert_eq!(
            rendered(Kwargs::from_iter::<[(&str, Value); 0]>([])),
            r#"{"b": [1, 2.0, 1e+16, 1.5e-07], "a": "<é>\n\u0001\"", "n": null, "t": true, "e": [], "o": {}}"#
        );
        let sorted = Kwargs::from_iter([
            ("indent", Value::from(2)),
            ("sort_keys", Value::from(true)),
            ("ensure_ascii", Value::from(true)),
        ]);
        assert_eq!(
            rendered(sorted),
            "{\n  \"a\": \"<\\u00e9>\\n\\u0001\\\"\",\n  \"b\": [\n    1,\n    2.0,\n    1e+16,\n    1.5e-07\n  ],\n  \
             \"e\": [],\n  \"n\": null,\n  \"o\": {},\n  \"t\": true\n}"
        );
    }
}
