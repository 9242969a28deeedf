//! Content that spells special tokens, kept from becoming them.
//!
//! Users' text may hold `<|im_end|>`. Inside a rendered conversation it must not close a turn, while the template's
//! own tokens must. So a character that occurs nowhere else is put inside each such spelling before rendering; the
//! tokenizer then cuts out the template's tokens, drops the character, and reads the rest as plain text.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use crate::message::Message;
use crate::tokenizer::Tokenizer;

/// Characters without meaning of their own (private use, plane 16).
const PRIVATE: RangeInclusive<char> = '\u{100000}'..='\u{10FFFD}';

/// Rounds of breaking after which a text is given up: far more than a special token has characters.
const MOST_ROUNDS: usize = 256;
/// Characters of a spelling that an error shows.
const SHOWN: usize = 40;

/// A text stands for a special token and cannot be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the text holds {spelling:?}, which this tokenizer takes for a special token and which has no second character to \
     tell them apart by: take it out of the text, or the token out of the tokenizer"
)]
pub struct Unbreakable {
    /// What stands there.
    pub spelling: String,
}

impl Unbreakable {
    fn of(spelling: &str) -> Self {
        Self {
            spelling: spelling.chars().take(SHOWN).collect(),
        }
    }
}

/// Messages that cannot spell a special token any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Escaped {
    /// The messages, with `hidden` inside each spelling.
    pub(crate) messages: Vec<Message>,
    /// The character that was put in.
    pub(crate) hidden: char,
    /// How many spellings there were.
    pub(crate) count: usize,
}

/// Breaks every spelling of a special token in content and names; nothing when there is none.
///
/// # Errors
/// [`Unbreakable`] when one has a single character.
pub(crate) fn escape(
    tokenizer: &Tokenizer,
    messages: &[Message],
    hidden: char,
) -> Result<Option<Escaped>, Unbreakable> {
    if count(tokenizer, messages) == 0 {
        return Ok(None);
    }
    let mut escaped = Escaped {
        messages: messages.to_vec(),
        hidden,
        count: 0,
    };
    for message in &mut escaped.messages {
        escaped.count += break_spellings(tokenizer, &mut message.content, hidden)?;
        if let Some(name) = &mut message.name {
            escaped.count += break_spellings(tokenizer, name, hidden)?;
        }
    }
    Ok(Some(escaped))
}

/// How many special tokens the messages spell.
pub(crate) fn count(tokenizer: &Tokenizer, messages: &[Message]) -> usize {
    let name = |message: &Message| message.name.as_deref().unwrap_or("").to_owned();
    messages
        .iter()
        .map(|message| {
            tokenizer.special_spans(&message.content).len()
                + tokenizer.special_spans(&name(message)).len()
        })
        .sum()
}

/// Characters that occur in none of the texts, `N` of them; nothing when the texts use too many.
pub(crate) fn unused_characters<const N: usize>(texts: &[&str]) -> Option<[char; N]> {
    let characters = texts.iter().flat_map(|text| text.chars());
    let used: BTreeSet<char> = characters.filter(|c| PRIVATE.contains(c)).collect();
    let free: Vec<char> = PRIVATE.filter(|c| !used.contains(c)).take(N).collect();
    free.try_into().ok()
}

/// Breaking one spelling can uncover another that overlapped it, so it repeats. A place where a spelling began is
/// followed by the hidden character from then on, so no spelling begins there again, and each round passes at least
/// one such place before any other spelling that it hid: there are no more rounds than characters in a token.
fn break_spellings(
    tokenizer: &Tokenizer,
    text: &mut String,
    hidden: char,
) -> Result<usize, Unbreakable> {
    break_found(|text| tokenizer.special_spans(text), text, hidden)
}

fn break_found(
    mut find: impl FnMut(&str) -> Vec<Range<usize>>,
    text: &mut String,
    hidden: char,
) -> Result<usize, Unbreakable> {
    let mut count = 0;
    for _ in 0..MOST_ROUNDS {
        let spans = find(text);
        if spans.is_empty() {
            return Ok(count);
        }
        count += spans.len();
        *text = with_hidden(text, &spans, hidden)?;
    }
    match find(text).first() {
        None => Ok(count),
        Some(span) => Err(Unbreakable::of(&text[span.clone()])),
    }
}

/// The text with the hidden character behind the first character of each span, white space that a token takes along
/// not counted.
fn with_hidden(text: &str, spans: &[Range<usize>], hidden: char) -> Result<String, Unbreakable> {
    let mut broken = String::with_capacity(text.len() + spans.len() * hidden.len_utf8());
    let mut done = 0;
    for span in spans {
        let spelling = &text[span.clone()];
        let within = place(spelling).ok_or_else(|| Unbreakable::of(spelling))?;
        let at = span.start + within;
        broken.push_str(&text[done..at]);
        broken.push(hidden);
        done = at;
    }
    broken.push_str(&text[done..]);
    Ok(broken)
}

/// Where a spelling is broken, in bytes from its start: behind its first character, with another one to follow.
fn place(spelling: &str) -> Option<usize> {
    let bare = spelling.trim();
    let (blank, bare) = match bare {
        "" => (0, spelling),
        bare => (spelling.len() - spelling.trim_start().len(), bare),
    };
    let mut characters = bare.chars();
    let first = characters.next()?;
    characters.next()?;
    Some(blank + first.len_utf8())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::tokenizer::{Special, byte_tokenizer_json};

    #[test]
    fn overlapping_spellings_are_all_broken() {
        let tokenizer = Tokenizer::bytes();
        let hidden = '\u{100000}';
        let messages = [Message::user("<|im_<|im_end|>end|> <|im_start|>")];
        let escaped = escape(&tokenizer, &messages, hidden).unwrap().unwrap();
        assert_eq!(escaped.count, 2);
        let content = &escaped.messages[0].content;
        assert!(tokenizer.special_spans(content).is_empty());
        assert_eq!(content.replace(hidden, ""), messages[0].content);
    }

    #[test]
    fn innocent_text_is_left_alone() {
        let tokenizer = Tokenizer::bytes();
        assert_eq!(
            escape(&tokenizer, &[Message::user("a < b |> c")], '\u{100000}'),
            Ok(None)
        );
    }

    /// The byte tokenizer with another special token, its id that of a byte it spells or a new one.
    fn with_token(token: serde_json::Value, normalizer: serde_json::Value) -> Tokenizer {
        let mut file: serde_json::Value = serde_json::from_str(&byte_tokenizer_json()).unwrap();
        file["normalizer"] = normalizer;
        let mut whole = json!({"id": 259, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true});
        for (key, value) in token.as_object().unwrap() {
            whole[key] = value.clone();
        }
        file["added_tokens"].as_array_mut().unwrap().push(whole);
        Tokenizer::from_json(file.to_string().as_bytes(), None).unwrap()
    }

    #[test]
    fn a_token_without_a_second_character_is_refused_where_it_is_spelled() {
        for (token, text, shown) in [
            (json!({"content": "\u{a7}"}), "see \u{a7} 5", "\u{a7}"),
            (
                json!({"content": "\u{a7}", "lstrip": true, "rstrip": true}),
                "see \u{a7} 5",
                " \u{a7} ",
            ),
            (json!({"content": "\n"}), "a\nb", "\n"),
            // One character of the text becomes the whole token.
            (
                json!({"content": "fi", "normalized": true}),
                "\u{fb01}x",
                "\u{fb01}",
            ),
        ] {
            let tokenizer = with_token(token, json!({"type": "NFKC"}));
            let refused = escape(&tokenizer, &[Message::user(text)], '\u{100000}');
            assert_eq!(refused, Err(Unbreakable::of(shown)), "{text:?}");
            let harmless = escape(&tokenizer, &[Message::user("x y")], '\u{100000}');
            assert_eq!(harmless, Ok(None));
        }
    }

    #[test]
    fn tokens_of_white_space_and_of_equal_characters_are_broken() {
        for (content, text) in [("\n\n", "a\n\n\n\n\nb"), ("ooo", "ooooooooo ooo")] {
            let tokenizer = with_token(json!({"content": content}), json!(null));
            let messages = [Message::user(text)];
            let escaped = escape(&tokenizer, &messages, '\u{100000}')
                .unwrap()
                .unwrap();
            let broken = &escaped.messages[0].content;
            assert!(tokenizer.special_spans(broken).is_empty(), "{broken:?}");
            assert_eq!(broken.replace('\u{100000}', ""), text);
        }
    }

    /// It is the normaliser that makes the token of the text.
    #[test]
    fn what_a_normaliser_turns_into_a_token_is_broken_too() {
        let full_width = "\u{ff1c}stop\u{ff1e} <STOP>";
        for normalizer in [
            json!({"type": "NFKC"}),
            json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}),
        ] {
            let token = json!({"content": "<STOP>", "normalized": true});
            let tokenizer = with_token(token, normalizer.clone());
            let text = match normalizer["type"].as_str() {
                Some("NFKC") => full_width.replace("stop", "STOP"),
                _ => full_width.to_owned(),
            };
            let ids = tokenizer.encode(&text, Special::Parse).unwrap();
            assert_eq!(ids.iter().filter(|&&id| id == 259).count(), 2, "{text}");
            let messages = [Message::user(&text)];
            let hidden = '\u{100000}';
            let escaped = escape(&tokenizer, &messages, hidden).unwrap().unwrap();
            assert_eq!(escaped.count, 2);
            let pieces = tokenizer
                .pieces_hiding(&escaped.messages[0].content, hidden)
                .unwrap();
            assert!(pieces.iter().all(|piece| piece.id < 256), "{pieces:?}");
        }
    }

    /// As many spellings as the longest line holds: the work of one pass, not of as many as there are spellings.
    #[test]
    fn many_spellings_are_broken_in_one_pass() {
        let text = "<|im_end|>".repeat(200_000);
        let spans: Vec<Range<usize>> = (0..200_000).map(|n| n * 10..n * 10 + 10).collect();
        let broken = with_hidden(&text, &spans, '\u{100000}').unwrap();
        assert_eq!(broken, "<\u{100000}|im_end|>".repeat(200_000));
    }

    /// The text is looked at as often for ten times as many spellings, whether they stand apart or overlap.
    #[test]
    fn the_work_grows_with_the_text_and_not_with_its_spellings() {
        let tokenizer = Tokenizer::bytes();
        for (spelling, looks) in [("<|im_end|>", 2), ("<|im_<|im_end|>end|>", 2)] {
            for many in [100, 1_000] {
                let mut text = spelling.repeat(many);
                let (whole, mut looked, mut read) = (text.len(), 0, 0);
                let find = |text: &str| {
                    (looked, read) = (looked + 1, read + text.len());
                    tokenizer.special_spans(text)
                };
                let count = break_found(find, &mut text, '\u{100000}').unwrap();
                assert_eq!((count, looked), (many, looks), "{spelling} {many} times");
                assert!(read <= 2 * looks * whole, "{read} bytes of {whole}");
            }
        }
    }

    #[test]
    fn unused_characters_avoid_the_texts() {
        let found = unused_characters(&["\u{100000}", "x\u{100002}"]);
        assert_eq!(found, Some(['\u{100001}', '\u{100003}']));
        let all: String = PRIVATE.skip(2).collect();
        assert_eq!(
            unused_characters(&[&all]),
            Some(['\u{100000}', '\u{100001}'])
        );
        assert_eq!(unused_characters::<3>(&[&all]), None);
    }
}
