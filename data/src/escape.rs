//! Content that spells special tokens, kept from becoming them.
//!
//! Users' text may hold `<|im_end|>`. Inside a rendered conversation it must not close a turn, while the template's
//! own tokens must. So a character that occurs nowhere else is put inside each such spelling before rendering; the
//! tokenizer then cuts out the template's tokens, drops the character, and reads the rest as plain text.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::message::Message;
use crate::tokenizer::Tokenizer;

/// Characters without meaning of their own (private use, plane 16).
const PRIVATE: RangeInclusive<char> = '\u{100000}'..='\u{10FFFD}';

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
pub(crate) fn escape(tokenizer: &Tokenizer, messages: &[Message], hidden: char) -> Option<Escaped> {
    if count(tokenizer, messages) == 0 {
        return None;
    }
    let mut escaped = Escaped {
        messages: messages.to_vec(),
        hidden,
        count: 0,
    };
    for message in &mut escaped.messages {
        escaped.count += break_spellings(tokenizer, &mut message.content, hidden);
        if let Some(name) = &mut message.name {
            escaped.count += break_spellings(tokenizer, name, hidden);
        }
    }
    Some(escaped)
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

/// Breaking one spelling can uncover another that overlapped it, so it repeats; each round adds characters that no
/// special token holds.
fn break_spellings(tokenizer: &Tokenizer, text: &mut String, hidden: char) -> usize {
    let mut count = 0;
    loop {
        let spans = tokenizer.special_spans(text);
        if spans.is_empty() {
            return count;
        }
        count += spans.len();
        for span in spans.into_iter().rev() {
            let spelling = &text[span.clone()];
            let blank = spelling.len() - spelling.trim_start().len();
            let first = spelling[blank..].chars().next().map_or(0, char::len_utf8);
            text.insert(span.start + blank + first, hidden);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spellings_are_all_broken() {
        let tokenizer = Tokenizer::bytes();
        let hidden = '\u{100000}';
        let messages = [Message::user("<|im_<|im_end|>end|> <|im_start|>")];
        let escaped = escape(&tokenizer, &messages, hidden).expect("there are spellings");
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
            None
        );
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
