//! The SmolLM2 tokenizer and its chat template against the golden files, built from the GGUF file itself.
//!
//! The vocabulary is not among the golden files: it is read from the model at `SPOTMUX_SMOLLM2` or in the cache of
//! `spotmux model pull`; without it the tests say so and pass.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::sync::OnceLock;

use data::mask::{Encoder, NOT_TRAINED};
use data::message::{Message, Role};
use data::template::Template;
use data::tokenizer::{Special, Tokenizer};
use gpu_actor::model::{Model, OpenOptions, TokenizerSource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use system_tests::{outside, skipped};

#[derive(Deserialize)]
struct Strings {
    strings: Vec<Text>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    ids: Vec<u32>,
    ids_special_as_plain_text: Option<Vec<u32>>,
    decoded: String,
}

#[derive(Deserialize)]
struct Chats {
    chat_template: String,
    conversations: Vec<Conversation>,
}

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Turn>,
    add_generation_prompt: bool,
    text: String,
    ids: Vec<u32>,
    assistant_spans: Vec<[usize; 2]>,
}

#[derive(Deserialize)]
struct Turn {
    role: Role,
    content: String,
}

fn golden<T: DeserializeOwned>(file: &str) -> Option<T> {
    let path = outside::reference()?.join("tokenizer").join(file);
    let Ok(text) = fs::read_to_string(&path) else {
        skipped::aloud(&format!("the set has no {}", path.display()));
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

/// The tokenizer of SmolLM2, built once.
fn tokenizer() -> Option<&'static Tokenizer> {
    static BUILT: OnceLock<Option<Tokenizer>> = OnceLock::new();
    let build = || {
        let path = outside::smollm2()?;
        let options = OpenOptions {
            check_finite: false,
            ..OpenOptions::new(kernels::cpu::Cpu::new(1).unwrap())
        };
        match Model::open(&path, &options).unwrap().tokenizer {
            TokenizerSource::Gguf { parts, .. } => Some(Tokenizer::from_gguf(&parts).unwrap()),
            other => panic!(
                "{} brings its tokenizer as {}",
                path.display(),
                other.kind()
            ),
        }
    };
    BUILT.get_or_init(build).as_ref()
}

fn messages(conversation: &Conversation) -> Vec<Message> {
    let turns = conversation.messages.iter();
    turns
        .map(|turn| Message::new(turn.role, turn.content.as_str()))
        .collect()
}

fn encoder<'a>(tokenizer: &'a Tokenizer, template: &'a Template, special: Special) -> Encoder<'a> {
    Encoder {
        tokenizer,
        template,
        special,
        train_on_inputs: false,
    }
}

#[test]
fn strings_have_the_golden_ids_and_come_back() {
    let (Some(golden), Some(tokenizer)) = (golden::<Strings>("strings.json"), tokenizer()) else {
        return;
    };
    assert!(!golden.strings.is_empty());
    for Text {
        text,
        ids,
        ids_special_as_plain_text,
        decoded,
    } in &golden.strings
    {
        assert_eq!(
            &tokenizer.encode(text, Special::Parse).unwrap(),
            ids,
            "{text:?}"
        );
        let plain = ids_special_as_plain_text.as_ref().unwrap_or(ids);
        assert_eq!(
            &tokenizer.encode(text, Special::Plain).unwrap(),
            plain,
            "{text:?}"
        );
        assert_eq!(&tokenizer.decode(ids, false).unwrap(), decoded);
        let mut stream = tokenizer.stream(false);
        let mut streamed: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        streamed += &stream.finish().unwrap();
        assert_eq!(&streamed, decoded);
    }
}

#[test]
fn conversations_have_the_golden_text_ids_and_spans() {
    let (Some(golden), Some(tokenizer)) = (golden::<Chats>("chat.json"), tokenizer()) else {
        return;
    };
    assert!(!golden.conversations.is_empty());
    let template = Template::choose(None, tokenizer, None).unwrap();
    assert_eq!(
        tokenizer.chat_template(),
        Some(golden.chat_template.as_str())
    );
    for conversation in &golden.conversations {
        let messages = messages(conversation);
        let text = template.render(&messages, conversation.add_generation_prompt);
        assert_eq!(text.unwrap(), conversation.text);
        let encoder = encoder(tokenizer, &template, Special::Parse);
        if conversation.add_generation_prompt {
            assert_eq!(encoder.prompt(&messages).unwrap(), conversation.ids);
            continue;
        }
        let labelled = encoder.chat(&messages).unwrap();
        assert_eq!(labelled.ids, conversation.ids);
        let spans = &conversation.assistant_spans;
        let inside = |at: usize| {
            spans
                .iter()
                .any(|[start, end]| (*start..*end).contains(&at))
        };
        for (at, (&id, &label)) in labelled.ids.iter().zip(&labelled.labels).enumerate() {
            let expected = if inside(at) {
                id.cast_signed()
            } else {
                NOT_TRAINED
            };
            assert_eq!(label, expected, "token {at} of {:?}", conversation.text);
        }
    }
}

#[test]
fn content_of_the_golden_conversations_cannot_close_a_turn() {
    let (Some(golden), Some(tokenizer)) = (golden::<Chats>("chat.json"), tokenizer()) else {
        return;
    };
    let template = Template::choose(None, tokenizer, None).unwrap();
    let starts = tokenizer.token_to_id("<|im_start|>").unwrap();
    for conversation in golden
        .conversations
        .iter()
        .filter(|c| !c.add_generation_prompt)
    {
        let messages = messages(conversation);
        let labelled = encoder(tokenizer, &template, Special::Plain)
            .chat(&messages)
            .unwrap();
        assert_eq!(
            tokenizer.decode(&labelled.ids, false).unwrap(),
            conversation.text
        );
        let has_system = messages[0].role == Role::System;
        let turns = messages.len() + usize::from(!has_system);
        let found = labelled.ids.iter().filter(|&&id| id == starts).count();
        assert_eq!(found, turns, "{:?}", conversation.text);
    }
}
