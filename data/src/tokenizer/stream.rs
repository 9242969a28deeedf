//! Decoding token by token without ever cutting a character.
//!
//! A byte-level vocabulary says which bytes a token stands for: bytes are collected and given out as soon as they
//! are whole characters. Other vocabularies (byte fallback, leading spaces that depend on the neighbour) are decoded
//! again with the tokens last shown as context, and what is new is given out.

use tokenizers::DecoderWrapper;

use super::special::char_byte;
use super::{Tokenizer, TokenizerError};

/// Tokens that may end in U+FFFD before it is believed: it may be text, or a character that is not whole yet.
const LONGEST_WAIT: usize = 16;

/// Turns ids into text one at a time; what it returned, joined, is what [`Tokenizer::decode`] gives for all.
#[derive(Debug)]
pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    pending: Pending,
}

#[derive(Debug)]
enum Pending {
    /// Bytes that are not a whole character yet.
    Bytes(Vec<u8>),
    /// Ids, of which the first `shown` were given out and serve as context.
    Ids { ids: Vec<u32>, shown: usize },
}

impl<'a> Stream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Self {
        let byte_level = matches!(
            tokenizer.inner.get_decoder(),
            Some(DecoderWrapper::ByteLevel(_))
        );
        let pending = if byte_level {
            Pending::Bytes(Vec::new())
        } else {
            Pending::Ids {
                ids: Vec::new(),
                shown: 0,
            }
        };
        Self {
            tokenizer,
            skip_special,
            pending,
        }
    }

    /// Takes the next id and returns the text that became whole; empty while a character is incomplete.
    ///
    /// # Errors
    /// When the library refuses the ids.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        match &mut self.pending {
            Pending::Bytes(bytes) => {
                bytes.extend(token_bytes(self.tokenizer, id, self.skip_special));
                Ok(whole_characters(bytes))
            }
            Pending::Ids { ids, shown } => {
                ids.push(id);
                let before = self.tokenizer.decode(&ids[..*shown], self.skip_special)?;
                let now = self.tokenizer.decode(ids, self.skip_special)?;
                let waiting = ids.len() - *shown;
                let whole = !now.ends_with(char::REPLACEMENT_CHARACTER) || waiting >= LONGEST_WAIT;
                match now.strip_prefix(before.as_str()) {
                    Some(new) if whole && !new.is_empty() => {
                        ids.drain(..*shown);
                        *shown = ids.len();
                        Ok(new.to_owned())
                    }
                    Some(_) | None => Ok(String::new()),
                }
            }
        }
    }

    /// Returns what is left at the end, an incomplete character as U+FFFD.
    ///
    /// # Errors
    /// When the library refuses the ids.
    pub fn finish(&mut self) -> Result<String, TokenizerError> {
        match &mut self.pending {
            Pending::Bytes(bytes) => {
                let left = String::from_utf8_lossy(bytes).into_owned();
                bytes.clear();
                Ok(left)
            }
            Pending::Ids { ids, shown } => {
                let before = self.tokenizer.decode(&ids[..*shown], self.skip_special)?;
                let now = self.tokenizer.decode(ids, self.skip_special)?;
                let left = match now.strip_prefix(before.as_str()) {
                    Some(new) => new.to_owned(),
                    None => self.tokenizer.decode(&ids[*shown..], self.skip_special)?,
                };
                ids.clear();
                *shown = 0;
                Ok(left)
            }
        }
    }
}

/// The bytes a token of a byte-level vocabulary stands for; a token outside that alphabet stands for its own text.
fn token_bytes(tokenizer: &Tokenizer, id: u32, skip_special: bool) -> Vec<u8> {
    let added = tokenizer.inner.get_added_vocabulary();
    let Some(token) = tokenizer.id_to_token(id) else {
        return Vec::new();
    };
    if skip_special && added.is_special_token(&token) {
        return Vec::new();
    }
    token
        .chars()
        .map(char_byte)
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.into_bytes())
}

/// Takes the whole characters off the front, bytes that can begin none as U+FFFD.
fn whole_characters(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        done += chunk.valid().len();
        let invalid = chunk.invalid();
        let at_end = done + invalid.len() == bytes.len();
        let incomplete = std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
        if invalid.is_empty() || (at_end && incomplete) {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        done += invalid.len();
    }
    bytes.drain(..done);
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use crate::tokenizer::{Special, Tokenizer};

    fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
        let mut stream = tokenizer.stream(false);
        let mut parts: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        parts.push(stream.finish().unwrap());
        parts
    }

    #[test]
    fn a_character_of_four_tokens_comes_whole() {
        let tokenizer = Tokenizer::bytes();
        let ids = tokenizer.encode("a😀b", Special::Plain).unwrap();
        assert_eq!(streamed(&tokenizer, &ids), ["a", "", "", "", "😀", "b", ""]);
    }

    #[test]
    fn a_cut_character_comes_at_the_end() {
        let tokenizer = Tokenizer::bytes();
        assert_eq!(streamed(&tokenizer, &[0xF0, 0x9F]), ["", "", "\u{fffd}"]);
    }

    proptest! {
        #[test]
        fn parts_joined_are_the_whole(text in "\\PC{0,40}|[\u{fffd}a-c😀é\n ]{0,20}") {
            let tokenizer = Tokenizer::bytes();
            let ids = tokenizer.encode(&text, Special::Plain).unwrap();
            prop_assert_eq!(streamed(&tokenizer, &ids).concat(), text);
        }

        #[test]
        fn arbitrary_ids_never_panic_and_lose_nothing(ids in proptest::collection::vec(0u32..300, 0..40)) {
            let tokenizer = Tokenizer::bytes();
            let parts = streamed(&tokenizer, &ids);
            prop_assert_eq!(parts.concat(), tokenizer.decode(&ids, false).unwrap());
        }
    }
}
