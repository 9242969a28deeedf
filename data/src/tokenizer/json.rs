//! Reading `tokenizer.json` and `tokenizer_config.json`.

use std::str::FromStr;

use serde_json::Value;
use tokenizers::ModelWrapper;

use super::{SpecialIds, Tokenizer, TokenizerError, parts, unwinding};

const TOKENIZER: &str = "tokenizer.json";
/// Labels are 32-bit integers with a sign.
const LARGEST_VOCABULARY: usize = 1 << 31;
const CONFIG: &str = "tokenizer_config.json";

pub(super) fn build(tokenizer: &[u8], config: Option<&[u8]>) -> Result<Tokenizer, TokenizerError> {
    let text = std::str::from_utf8(tokenizer).map_err(|error| not_readable(TOKENIZER, &error))?;
    let file = serde_json::from_str(text).map_err(|error| not_readable(TOKENIZER, &error))?;
    check_model(&file)?;
    parts::check(&file)?;
    let inner = unwinding(|| tokenizers::Tokenizer::from_str(text))
        .map_err(|reason| not_readable(TOKENIZER, &reason))?
        .map_err(|error| not_readable(TOKENIZER, &error))?;
    refuse_dropout(&inner)?;
    let config: Value = match config {
        Some(bytes) => {
            serde_json::from_slice(bytes).map_err(|error| not_readable(CONFIG, &error))?
        }
        None => Value::Null,
    };
    let special = special_ids(&inner, &config)?;
    let vocab_size = inner
        .get_vocab(true)
        .into_values()
        .max()
        .map_or(0, |largest| largest as usize + 1);
    if vocab_size > LARGEST_VOCABULARY {
        let id = vocab_size - 1;
        return Err(inconsistent(format!(
            "the largest token id is {id}; ids end at {}",
            LARGEST_VOCABULARY - 1
        )));
    }
    Ok(Tokenizer::assemble(
        inner,
        special,
        vocab_size,
        chat_template(&config)?,
    ))
}

/// Refuses what the library would panic on or read another way: other models, and merges to no token.
fn check_model(file: &Value) -> Result<(), TokenizerError> {
    let model = &file["model"];
    let kind = model["type"].as_str().unwrap_or("BPE");
    let Some(vocab) = model["vocab"].as_object().filter(|_| kind == "BPE") else {
        return Err(TokenizerError::Model {
            model: kind.to_owned(),
        });
    };
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("");
    for merge in model["merges"].as_array().into_iter().flatten() {
        let pair = match merge {
            Value::String(pair) => pair.split_once(' '),
            Value::Array(pair) => pair
                .first()
                .and_then(Value::as_str)
                .zip(pair.get(1).and_then(Value::as_str)),
            _ => None,
        };
        let Some((left, right)) = pair else {
            return Err(inconsistent(format!(
                "merge {merge} is not a pair of tokens"
            )));
        };
        let merged = right
            .strip_prefix(prefix)
            .map(|right| format!("{left}{right}"));
        if !merged.is_some_and(|merged| vocab.contains_key(&merged)) {
            return Err(inconsistent(format!(
                "merge `{left}` + `{right}` leads to no token of the vocabulary"
            )));
        }
    }
    Ok(())
}

fn refuse_dropout(inner: &tokenizers::Tokenizer) -> Result<(), TokenizerError> {
    match inner.get_model() {
        ModelWrapper::BPE(model) if model.dropout.is_none_or(|share| share == 0.0) => Ok(()),
        ModelWrapper::BPE(_) => Err(inconsistent(
            "BPE dropout makes tokens random; set `dropout` to null".to_owned(),
        )),
        _ => Err(TokenizerError::Model {
            model: "not BPE".to_owned(),
        }),
    }
}

fn special_ids(
    inner: &tokenizers::Tokenizer,
    config: &Value,
) -> Result<SpecialIds, TokenizerError> {
    let find = |key: &str| -> Result<Option<u32>, TokenizerError> {
        let entry = &config[key];
        let Some(token) = entry.as_str().or_else(|| entry["content"].as_str()) else {
            return Ok(None);
        };
        match inner.token_to_id(token) {
            Some(id) => Ok(Some(id)),
            None => Err(inconsistent(format!(
                "{CONFIG} names {key} `{token}`, which {TOKENIZER} does not hold"
            ))),
        }
    };
    let bos = find("bos_token")?;
    let add_bos = match config["add_bos_token"].as_bool() {
        Some(said) => said,
        None => bos.is_some() && first_added(inner) == bos,
    };
    Ok(SpecialIds {
        bos,
        eos: find("eos_token")?,
        unk: find("unk_token")?,
        pad: find("pad_token")?,
        add_bos,
    })
}

/// The token that the file's own post-processing would put in front of a text.
fn first_added(inner: &tokenizers::Tokenizer) -> Option<u32> {
    let encoding = unwinding(|| inner.encode_fast("", true)).ok()?.ok()?;
    encoding.get_ids().first().copied()
}

/// The template of the config: a string, or the one called `default` of a list of named ones; none when it is null
/// or absent, or the list has no `default`.
fn chat_template(config: &Value) -> Result<Option<String>, TokenizerError> {
    let text = |entry: &Value| match entry.as_str() {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(not_readable(
            CONFIG,
            &"chat_template is neither a text nor a list of named texts",
        )),
    };
    match &config["chat_template"] {
        Value::Null => Ok(None),
        Value::Array(list) => match list.iter().find(|entry| entry["name"] == "default") {
            Some(entry) => text(&entry["template"]),
            None => Ok(None),
        },
        entry => text(entry),
    }
}

fn not_readable(file: &'static str, error: &dyn std::fmt::Display) -> TokenizerError {
    TokenizerError::Json {
        file,
        reason: error.to_string(),
    }
}

fn inconsistent(reason: String) -> TokenizerError {
    TokenizerError::Vocabulary { reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::tokenizer::{Special, byte_tokenizer_config, byte_tokenizer_json};

    fn with(change: impl Fn(&mut Value), config: &Value) -> Result<Tokenizer, TokenizerError> {
        let mut file: Value = serde_json::from_str(&byte_tokenizer_json()).unwrap();
        change(&mut file);
        build(
            file.to_string().as_bytes(),
            Some(config.to_string().as_bytes()),
        )
    }

    #[test]
    fn what_would_panic_or_vary_is_refused() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 6] = [
            (
                |f| f["model"]["merges"] = json!(["a b"]),
                "leads to no token",
            ),
            (|f| f["model"]["merges"] = json!([["a"]]), "not a pair"),
            (|f| f["model"]["merges"] = json!([5]), "not a pair"),
            (|f| f["model"]["dropout"] = json!(0.1), "random"),
            (|f| f["model"]["type"] = json!("WordPiece"), "`WordPiece`"),
            (|f| f["model"] = json!(null), "not supported"),
        ];
        for (change, words) in cases {
            let message = with(change, &json!({})).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
        let cut = &byte_tokenizer_json()[..500];
        assert!(build(cut.as_bytes(), None).is_err());
        assert!(build(b"\xFF", None).is_err());
    }

    #[test]
    fn an_id_that_no_label_holds_is_refused() {
        let error = with(
            |file| file["model"]["vocab"]["far"] = json!(4_294_967_295_u32),
            &json!({}),
        )
        .unwrap_err();
        assert!(error.to_string().contains("4294967295"), "{error}");
    }

    /// The regular expression gives up on this text, and the library panics then.
    #[test]
    fn a_pattern_that_gives_up_is_an_error() {
        let tokenizer = with(
            |file| {
                file["pre_tokenizer"] = json!({
                    "type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": false,
                });
            },
            &json!({}),
        )
        .unwrap();
        let text = format!("{}b", "a".repeat(60));
        let error = tokenizer.encode(&text, Special::Plain).unwrap_err();
        assert!(
            matches!(&error, TokenizerError::Encode { bytes: 61, reason } if reason.contains("gave up")),
            "{error}"
        );
    }

    #[test]
    fn a_config_that_names_an_unknown_token_is_refused() {
        let error = with(|_| {}, &json!({"eos_token": "</s>"})).unwrap_err();
        assert!(error.to_string().contains("eos_token `</s>`"), "{error}");
    }

    #[test]
    fn a_template_that_is_no_text_is_refused() {
        for wrong in [
            json!(5),
            json!({}),
            json!([{"name": "default", "template": 5}]),
        ] {
            let error = with(|_| {}, &json!({"chat_template": wrong})).unwrap_err();
            let message = error.to_string();
            assert!(
                message.starts_with("tokenizer_config.json") && message.contains("chat_template"),
                "{message}"
            );
        }
        let none = with(|_| {}, &json!({"chat_template": null})).unwrap();
        assert_eq!(none.chat_template(), None);
    }

    #[test]
    fn tokens_may_be_objects_and_templates_a_named_list() {
        let config = json!({
            "eos_token": {"content": "<|endoftext|>", "lstrip": false},
            "chat_template": [
                {"name": "tool_use", "template": "no"},
                {"name": "default", "template": "yes"},
            ],
        });
        let tokenizer = with(|_| {}, &config).unwrap();
        assert_eq!(tokenizer.eos(), Some(256));
        assert_eq!(tokenizer.chat_template(), Some("yes"));
    }

    #[test]
    fn raw_text_gets_one_start_token_where_the_files_say_so() {
        let raw = |change: fn(&mut Value), config: Value, text: &str| {
            let tokenizer = with(change, &config).unwrap();
            tokenizer.encode_raw(text, Special::Parse).unwrap()
        };
        let bos = json!({"bos_token": "<|im_start|>"});
        assert_eq!(raw(|_| {}, bos.clone(), "a"), [97]);
        let adds = json!({"bos_token": "<|im_start|>", "add_bos_token": true});
        assert_eq!(raw(|_| {}, adds.clone(), "a"), [257, 97]);
        assert_eq!(raw(|_| {}, adds, "<|im_start|>a"), [257, 97]);
        let by_file: fn(&mut Value) = |file| {
            file["post_processor"] = json!({
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [257], "tokens": ["<|im_start|>"]}},
            });
        };
        assert_eq!(raw(by_file, bos, "a"), [257, 97]);
    }

    #[test]
    fn limits_inside_the_file_do_not_cut_or_pad() {
        let tokenizer = with(
            |file| {
                file["truncation"] = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
                file["padding"] = json!({
                    "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "<|im_end|>",
                });
            },
            &serde_json::from_str(&byte_tokenizer_config()).unwrap(),
        );
        let ids = tokenizer.unwrap().encode("abcd", Special::Plain).unwrap();
        assert_eq!(ids, [97, 98, 99, 100]);
    }
}
