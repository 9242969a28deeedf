//! JSON of one line, refusing what lenient readers let pass: a key twice, half a surrogate pair, bottomless nesting.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::check::Code;

/// Why a line is not acceptable JSON, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonFault {
    pub(crate) code: Code,
    pub(crate) reason: String,
    /// Byte in the line.
    pub(crate) at: usize,
}

/// Reads one value that fills the text.
pub(crate) fn parse(text: &str) -> Result<Value, JsonFault> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| fault(&error, text))
}

fn fault(error: &serde_json::Error, text: &str) -> JsonFault {
    let full = error.to_string();
    let reason = full.split(" at line ").next().unwrap_or(&full).to_owned();
    let code = if reason.starts_with(DUPLICATE) {
        Code::DuplicateKey
    } else if reason.starts_with("recursion limit") {
        Code::TooDeep
    } else if reason.contains("surrogate") || reason.contains("unexpected end of hex escape") {
        Code::LoneSurrogate
    } else {
        Code::InvalidJson
    };
    // The line holds no line feed, but it may hold a lone carriage return, which counts as white space.
    JsonFault {
        code,
        reason,
        at: error.column().min(text.len()),
    }
}

const DUPLICATE: &str = "the key";

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                let key: String = key.chars().take(40).collect();
                return Err(A::Error::custom(format!(
                    "{DUPLICATE} `{key}` is there twice"
                )));
            }
            let value = entries.next_value_seed(Self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(text: &str) -> Option<Code> {
        parse(text).err().map(|fault| fault.code)
    }

    #[test]
    fn faults_have_their_own_codes() {
        assert_eq!(code(r#"{"a": 1, "a": 2}"#), Some(Code::DuplicateKey));
        assert_eq!(code(r#"{"x": {"a": 1, "a": 1}}"#), Some(Code::DuplicateKey));
        assert_eq!(code(r#"{"a": "\ud800"}"#), Some(Code::LoneSurrogate));
        assert_eq!(code(r#"{"a": "\ud800x"}"#), Some(Code::LoneSurrogate));
        assert_eq!(code(r#"{"a": "\udc00"}"#), Some(Code::LoneSurrogate));
        assert_eq!(code(r#"{"a": "\ud83d\ude00"}"#), None);
        assert_eq!(code(&"[".repeat(100_000)), Some(Code::TooDeep));
        assert_eq!(code(&r#"{"a":"#.repeat(100_000)), Some(Code::TooDeep));
        assert_eq!(code("{\"a\": \"\u{0}\"}"), Some(Code::InvalidJson));
        assert_eq!(code(r#"{"a": 1} {"b": 2}"#), Some(Code::InvalidJson));
        assert_eq!(code(r#"{"a": 1e999}"#), Some(Code::InvalidJson));
        assert_eq!(code(r#"{"a": NaN}"#), Some(Code::InvalidJson));
    }

    #[test]
    fn a_fault_says_where() {
        let fault = parse(r#"{"a": 1,, "b": 2}"#).expect_err("two commas");
        assert_eq!((fault.at, fault.code), (9, Code::InvalidJson));
    }

    proptest! {
        #[test]
        fn agrees_with_the_library_on_its_own_output(text in "\\PC{0,20}", number in any::<f64>(), n in any::<i64>()) {
            let value = serde_json::json!({"a": [text, number, n, null, true], "b": {"c": text}});
            prop_assert_eq!(parse(&value.to_string()), Ok(value));
        }

        #[test]
        fn never_panics(text in r#"([\[\]{}":,0-9ae. -]|\\|\\u|d8|true|null){0,40}"#) {
            let _ = parse(&text);
        }
    }
}
