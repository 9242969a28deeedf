//! The parts of a `tokenizer.json` around its model: those that models of the known families use, and no others.
//!
//! The library has parts that panic on what they hold, and chains of replacements can make any text of a short one.

use serde_json::Value;

use super::TokenizerError;

const NORMALIZERS: &[&str] = &[
    "Sequence",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Strip",
    "StripAccents",
    "Prepend",
    "Replace",
    "ByteLevel",
];
const PRE_TOKENIZERS: &[&str] = &[
    "Sequence",
    "ByteLevel",
    "Split",
    "Digits",
    "Metaspace",
    "Whitespace",
    "WhitespaceSplit",
    "Punctuation",
];
const DECODERS: &[&str] = &[
    "Sequence",
    "ByteLevel",
    "ByteFallback",
    "Fuse",
    "Strip",
    "Replace",
    "Metaspace",
    "BPEDecoder",
];
/// Most parts of one kind.
const PARTS: usize = 32;
/// Most bytes that the replacements of one kind may make of one byte, one after another.
const GROWTH: usize = 16;
/// Longest text put in front of each piece.
const PREPENDED: usize = 64;

/// Refuses parts that are not known to be safe.
pub(super) fn check(file: &Value) -> Result<(), TokenizerError> {
    for (key, list, known) in [
        ("normalizer", "normalizers", NORMALIZERS),
        ("pre_tokenizer", "pretokenizers", PRE_TOKENIZERS),
        ("decoder", "decoders", DECODERS),
    ] {
        let mut kind = Kind {
            key,
            list,
            known,
            parts: 0,
            growth: 1,
        };
        if !file[key].is_null() {
            kind.part(&file[key])?;
        }
    }
    Ok(())
}

struct Kind {
    key: &'static str,
    list: &'static str,
    known: &'static [&'static str],
    parts: usize,
    growth: usize,
}

impl Kind {
    fn part(&mut self, part: &Value) -> Result<(), TokenizerError> {
        let name = part["type"].as_str().unwrap_or("");
        if !self.known.contains(&name) {
            return Err(self.refused(&format!(
                "{name:?} is not supported; supported: {}",
                self.known.join(", ")
            )));
        }
        self.parts += 1;
        if self.parts > PARTS {
            return Err(self.refused(&format!("more than {PARTS} parts")));
        }
        match name {
            "Sequence" => {
                for inner in part[self.list].as_array().into_iter().flatten() {
                    self.part(inner)?;
                }
                Ok(())
            }
            "Prepend" if part["prepend"].as_str().map_or(0, str::len) > PREPENDED => {
                Err(self.refused(&format!("Prepend of more than {PREPENDED} bytes")))
            }
            "Replace" => self.replacement(part),
            _ => Ok(()),
        }
    }

    fn replacement(&mut self, part: &Value) -> Result<(), TokenizerError> {
        let pattern = part["pattern"]["String"].as_str().unwrap_or("");
        if pattern.is_empty() {
            return Err(self.refused("Replace needs a pattern that is a String, and not empty"));
        }
        let content = part["content"].as_str().map_or(0, str::len);
        self.growth = self
            .growth
            .saturating_mul(content.div_ceil(pattern.len()).max(1));
        if self.growth > GROWTH {
            return Err(self.refused(&format!(
                "Replace makes a text more than {GROWTH} times as long"
            )));
        }
        Ok(())
    }

    fn refused(&self, why: &str) -> TokenizerError {
        TokenizerError::Vocabulary {
            reason: format!("{} of tokenizer.json: {why}", self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_known_families_are_taken() {
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
        let prepend = json!({"type": "Prepend", "prepend": "\u{2581}"});
        let file = json!({
            "normalizer": {"type": "Sequence", "normalizers": [prepend, replace]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "a"}}, {"type": "ByteLevel"},
            ]},
            "decoder": null,
        });
        assert!(check(&file).is_ok());
    }

    #[test]
    fn parts_that_panic_or_grow_are_refused_by_name() {
        let grow = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaa"});
        let cases = [
            (
                json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}),
                "\"Precompiled\"",
            ),
            (
                json!({"normalizer": {"type": "Sequence", "normalizers": [grow, grow]}}),
                "16 times",
            ),
            (
                json!({"normalizer": {"type": "Replace", "pattern": {"Regex": "."}, "content": "a"}}),
                "String",
            ),
            (
                json!({"decoder": {"type": "Replace", "pattern": {"String": ""}, "content": "a"}}),
                "not empty",
            ),
            (
                json!({"pre_tokenizer": {"type": "UnicodeScripts"}}),
                "\"UnicodeScripts\"",
            ),
            (json!({"decoder": {"type": "CTC"}}), "\"CTC\""),
        ];
        for (file, words) in cases {
            let message = check(&file).map_err(|error| error.to_string());
            assert!(
                message.as_ref().is_err_and(|text| text.contains(words)),
                "{message:?}"
            );
        }
    }
}
