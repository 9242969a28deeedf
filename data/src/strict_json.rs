//! JSON of one line, refusing what lenient readers let pass: a key twice, half a surrogate pair, bottomless nesting.

use serde_json::Value;
use shared::strict_json::{self, DUPLICATE};

use crate::check::Code;

/// Why a line is not acceptable JSON, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonFault {
    pub(crate) code: Code,
    pub(crate) reason: String,
    /// Byte in the line, from 0: the wrong one, or the last of what is wrong; the line's length where more should follow.
    pub(crate) at: usize,
}

/// Reads one value that fills the text.
pub(crate) fn parse(text: &str) -> Result<Value, JsonFault> {
    strict_json::parse(text).map_err(|error| fault(&error, text))
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
    // The line holds no line feed, but it may hold a lone carriage return, which counts as white space. The library counts
    // from 1, and at the end it has no byte more to count.
    let at = match error.is_eof() {
        true => text.len(),
        false => error.column().saturating_sub(1).min(text.len()),
    };
    JsonFault { code, reason, at }
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
        for (text, at) in [
            (r#"{"a": 1,, "b": 2}"#, 8),
            ("x", 0),
            (r#"{"a": 1} {"b": 2}"#, 9),
            ("{\"a\": \"\u{0}\"}", 7),
            (r#"{"a": 1"#, 7),
            (r#"{"a": "x"#, 8),
            // Of a key that is there twice its last quotation mark.
            (r#"{"a": 1, "a": 2}"#, 11),
        ] {
            let fault = parse(text).expect_err(text);
            assert_eq!(fault.at, at, "{text}: {fault:?}");
        }
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
