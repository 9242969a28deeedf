//! A tokenizer as a GGUF file carries it: vocabulary, token kinds, merges, and the names of its rules.

use std::collections::{BTreeMap, BTreeSet};

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::{SpecialIds, Tokenizer, TokenizerError};

/// The `tokenizer.*` metadata of a GGUF file; the model loader fills it, the tokenizer is built from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GgufTokenizer {
    /// `tokenizer.ggml.model`: only `gpt2` (byte-level BPE) is accepted.
    pub model: String,
    /// `tokenizer.ggml.pre`: how text is cut before merging (`smollm`, `gpt-2`, `llama-bpe`, `qwen2`).
    pub pre: String,
    /// `tokenizer.ggml.tokens`: the text of each id, byte-level encoded.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; may be empty.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges`: pairs separated by one space, best first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unk: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub pad: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; absent: as the rule of `pre` has it, which only for Llama 3 is true.
    pub add_bos: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

/// How a vocabulary expects text to be cut before merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// GPT-2's pattern.
    Gpt2,
    /// Every numeric character alone, then GPT-2's pattern.
    SmolLm,
    /// Runs of up to three digits; a word may carry one leading mark.
    Llama3,
    /// As Llama 3 with single digits, on composed characters.
    Qwen2,
}

const CUTS: [(&str, Cut); 7] = [
    ("smollm", Cut::SmolLm),
    ("gpt-2", Cut::Gpt2),
    ("gpt2", Cut::Gpt2),
    ("llama-bpe", Cut::Llama3),
    ("llama3", Cut::Llama3),
    ("llama-v3", Cut::Llama3),
    ("qwen2", Cut::Qwen2),
];

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Kinds of token in `tokenizer.ggml.token_type`.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

pub(super) fn build(parts: &GgufTokenizer) -> Result<Tokenizer, TokenizerError> {
    if parts.model != "gpt2" {
        return Err(TokenizerError::Model {
            model: parts.model.clone(),
        });
    }
    let Some((_, cut)) = CUTS.iter().find(|(name, _)| *name == parts.pre) else {
        return Err(TokenizerError::PreTokenizer {
            pre: parts.pre.clone(),
            supported: CUTS.map(|(name, _)| name).join(", "),
        });
    };
    let model = BPE::builder()
        .vocab_and_merges::<Vocab>(vocabulary(parts)?.into_iter().collect(), merges(parts)?)
        .ignore_merges(*cut == Cut::Llama3)
        .build()
        .map_err(|error| inconsistent(error.to_string()))?;
    let mut inner = tokenizers::Tokenizer::new(model);
    if *cut == Cut::Qwen2 {
        inner
            .with_normalizer(Some(NFC))
            .map_err(|error| inconsistent(error.to_string()))?;
    }
    inner
        .with_pre_tokenizer(Some(pre_tokenizer(*cut)?))
        .with_decoder(Some(ByteLevel::new(false, false, false)));
    inner
        .add_special_tokens(added(parts, CONTROL))
        .and_then(|_| inner.add_tokens(added(parts, USER_DEFINED)))
        .map_err(|error| inconsistent(error.to_string()))?;
    Ok(Tokenizer::assemble(
        inner,
        special_ids(parts, *cut)?,
        parts.tokens.len(),
        parts.chat_template.clone(),
    ))
}

fn vocabulary(parts: &GgufTokenizer) -> Result<BTreeMap<String, u32>, TokenizerError> {
    let count = parts.tokens.len();
    if !parts.token_types.is_empty() && parts.token_types.len() != count {
        return Err(inconsistent(format!(
            "tokenizer.ggml.tokens has {count} entries, tokenizer.ggml.token_type {}",
            parts.token_types.len()
        )));
    }
    let mut vocab = BTreeMap::new();
    for (id, token) in (0u32..).zip(&parts.tokens) {
        if let Some(before) = vocab.insert(token.clone(), id) {
            return Err(inconsistent(format!(
                "tokenizer.ggml.tokens: ids {before} and {id} are both `{token}`"
            )));
        }
    }
    Ok(vocab)
}

fn merges(parts: &GgufTokenizer) -> Result<Vec<(String, String)>, TokenizerError> {
    let known: BTreeSet<&str> = parts.tokens.iter().map(String::as_str).collect();
    let pair = |merge: &String| -> Option<(String, String)> {
        let (left, right) = merge.split_once(' ')?;
        known
            .contains(format!("{left}{right}").as_str())
            .then(|| (left.to_owned(), right.to_owned()))
    };
    let read = |merge| {
        pair(merge).ok_or_else(|| {
            inconsistent(format!(
                "tokenizer.ggml.merges: `{merge}` is not a pair of tokens that leads to a token"
            ))
        })
    };
    parts.merges.iter().map(read).collect()
}

fn pre_tokenizer(cut: Cut) -> Result<PreTokenizerWrapper, TokenizerError> {
    let gpt2 = || PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true));
    let steps = match cut {
        Cut::Gpt2 => return Ok(gpt2()),
        Cut::SmolLm => vec![PreTokenizerWrapper::Digits(Digits::new(true)), gpt2()],
        Cut::Llama3 => pattern(LLAMA3)?,
        Cut::Qwen2 => pattern(QWEN2)?,
    };
    Ok(PreTokenizerWrapper::Sequence(Sequence::new(steps)))
}

fn pattern(regex: &str) -> Result<Vec<PreTokenizerWrapper>, TokenizerError> {
    let split = Split::new(
        SplitPattern::Regex(regex.to_owned()),
        SplitDelimiterBehavior::Isolated,
        false,
    )
    .map_err(|error| inconsistent(error.to_string()))?;
    Ok(vec![
        PreTokenizerWrapper::Split(split),
        PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, false)),
    ])
}

fn added(parts: &GgufTokenizer, kind: i32) -> Vec<AddedToken> {
    parts
        .tokens
        .iter()
        .zip(&parts.token_types)
        .filter(|(token, of)| **of == kind && !token.is_empty())
        .map(|(token, _)| AddedToken::from(token.clone(), kind == CONTROL).normalized(false))
        .collect()
}

fn special_ids(parts: &GgufTokenizer, cut: Cut) -> Result<SpecialIds, TokenizerError> {
    let count = parts.tokens.len();
    let roles = [
        ("bos_token_id", parts.bos),
        ("eos_token_id", parts.eos),
        ("unknown_token_id", parts.unk),
        ("padding_token_id", parts.pad),
    ];
    for (key, id) in roles {
        if let Some(id) = id.filter(|&id| id as usize >= count) {
            return Err(inconsistent(format!(
                "tokenizer.ggml.{key} is {id}, but there are {count} tokens"
            )));
        }
    }
    Ok(SpecialIds {
        bos: parts.bos,
        eos: parts.eos,
        unk: parts.unk,
        pad: parts.pad,
        // Converters leave the key out where llama.cpp knows the answer by the name of the rule.
        add_bos: parts.add_bos.unwrap_or(cut == Cut::Llama3),
    })
}

fn inconsistent(reason: String) -> TokenizerError {
    TokenizerError::Vocabulary { reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::tokenizer::Special;
    use crate::tokenizer::special::byte_char;

    /// 256 bytes, what `merges` make, and a control token.
    fn parts(pre: &str, merges: &[&str]) -> GgufTokenizer {
        let mut tokens: Vec<String> = (0..=u8::MAX).map(|byte| byte_char(byte).into()).collect();
        tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
        tokens.push("<|end|>".into());
        let mut token_types = vec![1; tokens.len()];
        token_types[tokens.len() - 1] = CONTROL;
        GgufTokenizer {
            model: "gpt2".into(),
            pre: pre.into(),
            eos: Some(tokens.len() as u32 - 1),
            tokens,
            token_types,
            merges: merges.iter().map(|&merge| merge.into()).collect(),
            ..GgufTokenizer::default()
        }
    }

    /// The text cut into its tokens.
    fn cut(pre: &str, merges: &[&str], text: &str) -> Vec<String> {
        let tokenizer = build(&parts(pre, merges)).unwrap();
        let ids = tokenizer.encode(text, Special::Parse).unwrap();
        ids.iter()
            .map(|&id| tokenizer.id_to_token(id).unwrap())
            .collect()
    }

    const DIGITS: [&str; 4] = ["Ġ 1", "1 2", "12 3", "123 4"];

    #[test]
    fn digits_are_cut_by_each_rule() {
        let digits = |pre| cut(pre, &DIGITS, " 1234");
        assert_eq!(digits("gpt-2"), ["Ġ1", "2", "3", "4"]);
        assert_eq!(digits("smollm"), ["Ġ", "1", "2", "3", "4"]);
        assert_eq!(digits("llama-bpe"), ["Ġ", "123", "4"]);
        assert_eq!(digits("qwen2"), ["Ġ", "1", "2", "3", "4"]);
        assert_eq!(cut("gpt-2", &DIGITS, "1234"), ["1234"]);
    }

    #[test]
    fn marks_and_line_ends_are_cut_by_each_rule() {
        let merges = ["' S", "! Ċ", "( a", "Ċ Ċ"];
        assert_eq!(
            cut("gpt-2", &merges, "x'S!\n(a"),
            ["x", "'", "S", "!", "Ċ", "(", "a"]
        );
        for pre in ["llama-bpe", "qwen2"] {
            assert_eq!(
                cut(pre, &merges, "x'S!\n(a"),
                ["x", "'S", "!Ċ", "(a"],
                "{pre}"
            );
        }
    }

    #[test]
    fn qwen2_composes_characters_first() {
        assert_eq!(cut("qwen2", &[], "e\u{301}"), cut("qwen2", &[], "é"));
        assert_ne!(cut("smollm", &[], "e\u{301}"), cut("smollm", &[], "é"));
    }

    #[test]
    fn llama3_takes_whole_words_before_merging() {
        let with_word = |pre| {
            let mut parts = parts(pre, &["a b"]);
            parts.tokens[200] = "xyz".into();
            let tokenizer = build(&parts).unwrap();
            tokenizer.encode("xyz", Special::Parse).unwrap().len()
        };
        assert_eq!((with_word("llama-bpe"), with_word("qwen2")), (1, 3));
    }

    /// `tokenizer.json` of Llama 3 begins a text by its post-processor; its GGUF file says nothing, and means the same.
    #[test]
    fn raw_text_begins_as_with_the_files_of_a_folder() {
        let raw = |pre: &str, add_bos: Option<bool>| {
            let parts = GgufTokenizer {
                bos: Some(256),
                add_bos,
                ..parts(pre, &[])
            };
            let tokenizer = build(&parts).unwrap();
            tokenizer.encode_raw("a", Special::Plain).unwrap()
        };
        let mut file: serde_json::Value =
            serde_json::from_str(&build(&parts("llama-bpe", &[])).unwrap().json().unwrap())
                .unwrap();
        file["post_processor"] = serde_json::json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [256], "tokens": ["<|end|>"]}},
        });
        let config = br#"{"bos_token": "<|end|>"}"#;
        let folder = Tokenizer::from_json(file.to_string().as_bytes(), Some(config)).unwrap();
        let want = folder.encode_raw("a", Special::Plain).unwrap();
        assert_eq!(want, [256, 97]);
        for pre in ["llama-bpe", "llama3", "llama-v3"] {
            assert_eq!(raw(pre, None), want, "{pre}");
            assert_eq!(raw(pre, Some(false)), [97], "{pre}");
        }
        for pre in ["smollm", "gpt-2", "qwen2"] {
            assert_eq!(raw(pre, None), [97], "{pre}");
            assert_eq!(raw(pre, Some(true)), want, "{pre}");
        }
    }

    #[test]
    fn control_tokens_are_parsed_or_plain() {
        let tokenizer = build(&parts("smollm", &[])).unwrap();
        let length = |special| tokenizer.encode("<|end|>", special).unwrap().len();
        assert_eq!((length(Special::Parse), length(Special::Plain)), (1, 7));
        assert_eq!(tokenizer.stop_ids(), [256]);
    }

    #[test]
    fn bytes_that_no_token_spells_are_noticed() {
        let mut parts = parts("smollm", &[]);
        parts.tokens[4] = "xyz".into();
        let tokenizer = build(&parts).unwrap();
        assert!(tokenizer.loses_text("a\u{4}") && !tokenizer.loses_text("a\u{5}"));
        assert_eq!(
            tokenizer.encode("a\u{4}b", Special::Plain).unwrap(),
            [97, 98]
        );
    }

    #[test]
    fn contradictions_are_refused_in_words() {
        type Change = fn(&mut GgufTokenizer);
        let refused = |change: Change| {
            let mut parts = parts("smollm", &["a b"]);
            change(&mut parts);
            build(&parts).unwrap_err().to_string()
        };
        let cases: [(Change, &str); 8] = [
            (|p| p.model = "llama".into(), "`llama` is not supported"),
            (|p| p.pre = "tekken".into(), "smollm, gpt-2"),
            (|p| p.merges.push("q z".into()), "`q z`"),
            (|p| p.merges.push("ab".into()), "`ab`"),
            (|p| p.tokens[7] = "a".into(), "are both `a`"),
            (|p| p.token_types.truncate(9), "tokenizer.ggml.token_type 9"),
            (
                |p| p.eos = Some(99_999),
                "tokenizer.ggml.eos_token_id is 99999",
            ),
            (|p| p.merges.push("zz ab".into()), "`zz ab`"),
        ];
        for (change, words) in cases {
            let message = refused(change);
            assert!(message.contains(words), "{message}");
        }
    }
}
