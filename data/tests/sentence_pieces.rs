//! A vocabulary in the manner of Llama 2 and Mistral: spaces as `▁`, one put in front of the text, unknown bytes as
//! tokens of their own. What holds for byte-level vocabularies must hold for it.
#![allow(clippy::unwrap_used, reason = "tests")]

use data::mask::{Encoder, NOT_TRAINED};
use data::message::Message;
use data::template::{Origin, Template};
use data::tokenizer::{Special, Tokenizer};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn tokenizer() -> Tokenizer {
    let mut vocab = Map::new();
    let mut add = |token: String| {
        let id = vocab.len();
        vocab.insert(token, json!(id));
    };
    for token in ["<unk>", "<s>", "</s>"] {
        add(token.into());
    }
    for byte in 0..=255 {
        add(format!("<0x{byte:02X}>"));
    }
    for token in ["▁", "a", "b", "c", "ab", "▁a", "▁ab", "▁▁"] {
        add(token.into());
    }
    let added: Vec<Value> = (0..)
        .zip(["<unk>", "<s>", "</s>"])
        .map(|(id, content)| {
            json!({
                "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true,
            })
        })
        .collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": ["a b", "▁ a", "▁ ab", "▁ ▁"],
        },
    });
    let config = json!({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": true});
    let (file, config) = (file.to_string(), config.to_string());
    Tokenizer::from_json(file.as_bytes(), Some(config.as_bytes())).unwrap()
}

fn names(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter()
        .map(|&id| tokenizer.id_to_token(id).unwrap())
        .collect()
}

fn trained(tokenizer: &Tokenizer, labels: &[i32]) -> Vec<String> {
    let labels = labels.iter().filter(|&&label| label != NOT_TRAINED);
    let ids: Vec<u32> = labels.map(|label| label.cast_unsigned()).collect();
    names(tokenizer, &ids)
}

const TEMPLATE: &str = "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[a] ' + \
message['content'] + ' [b]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}";

#[test]
fn raw_text_has_one_start_and_one_end() {
    let tokenizer = tokenizer();
    let template = Template::compile(TEMPLATE, Origin::File, &tokenizer, None).unwrap();
    let encoder = Encoder {
        tokenizer: &tokenizer,
        template: &template,
        special: Special::Parse,
        train_on_inputs: false,
    };
    for text in ["ab", "<s>ab", "<s>ab</s>"] {
        let row = encoder.text(text).unwrap();
        assert_eq!(
            names(&tokenizer, &row.ids),
            ["<s>", "▁ab", "</s>"],
            "{text}"
        );
    }
}

#[test]
fn a_completion_is_trained_also_where_the_vocabulary_merges_into_it() {
    let tokenizer = tokenizer();
    let template = Template::compile(TEMPLATE, Origin::File, &tokenizer, None).unwrap();
    let encoder = Encoder {
        tokenizer: &tokenizer,
        template: &template,
        special: Special::Plain,
        train_on_inputs: false,
    };
    let row = encoder.pair("c c", " ab").unwrap();
    assert_eq!(
        names(&tokenizer, &row.ids),
        ["<s>", "▁", "c", "▁", "c", "▁ab", "</s>"]
    );
    assert_eq!(trained(&tokenizer, &row.labels), ["▁ab", "</s>"]);
    let byte_level = Tokenizer::bytes();
    let cut = Encoder {
        tokenizer: &byte_level,
        ..encoder
    };
    let row = cut.pair("c ", "ab").unwrap();
    assert_eq!(row.labels[..2], [NOT_TRAINED; 2]);
    assert_eq!(row.labels[2], i32::from(b'a'));
}

#[test]
fn turns_are_told_apart_and_content_is_escaped() {
    let tokenizer = tokenizer();
    let template = Template::compile(TEMPLATE, Origin::File, &tokenizer, None).unwrap();
    let encoder = Encoder {
        tokenizer: &tokenizer,
        template: &template,
        special: Special::Plain,
        train_on_inputs: false,
    };
    let messages = [
        Message::user("c</s>"),
        Message::assistant("ab"),
        Message::user("b"),
        Message::assistant("c"),
    ];
    let row = encoder.chat(&messages).unwrap();
    assert_eq!(row.spelled, 1);
    assert_eq!(
        trained(&tokenizer, &row.labels),
        ["▁ab", "</s>", "▁", "c", "</s>"]
    );
    let ends = names(&tokenizer, &row.ids)
        .iter()
        .filter(|name| *name == "</s>")
        .count();
    assert_eq!(ends, 2);
}

proptest! {
    #[test]
    fn streamed_text_is_the_decoded_text(text in "[abc 😀é\u{fffd}\n]{0,20}") {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode(&text, Special::Plain).unwrap();
        let mut stream = tokenizer.stream(false);
        let mut streamed: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        streamed += &stream.finish().unwrap();
        prop_assert_eq!(&streamed, &tokenizer.decode(&ids, false).unwrap());
        prop_assert_eq!(streamed, text);
    }

    #[test]
    fn streaming_arbitrary_ids_never_panics(ids in proptest::collection::vec(0u32..280, 0..40)) {
        let tokenizer = tokenizer();
        let mut stream = tokenizer.stream(true);
        for id in ids {
            stream.push(id).unwrap();
        }
        stream.finish().unwrap();
    }
}

#[test]
fn tokenizer_and_template_may_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<Template>();
    shared::<data::job_data::JobData>();
}
