//! Special tokens: which ids have a role, and how text that spells one is read.

use std::ops::Range;

use tokenizers::{AddedVocabulary, DecoderWrapper, OffsetReferential, OffsetType};

use super::Tokenizer;

/// How text that spells a special token is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Special {
    /// As the special token: for text of a template, or data that is trusted to hold markup.
    Parse,
    /// As plain text: for content that users wrote.
    #[default]
    Plain,
}

/// Token ids with a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Start of text.
    pub bos: Option<u32>,
    /// End of text or of a turn.
    pub eos: Option<u32>,
    /// Unknown text.
    pub unk: Option<u32>,
    /// Padding; never produced here, named for templates.
    pub pad: Option<u32>,
    /// Whether raw text begins with the start token.
    pub add_bos: bool,
}

/// Tokens that end a turn in known chat formats.
pub(super) const END_OF_TURN: [&str; 6] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<|end|>",
];

impl Tokenizer {
    /// Where special tokens stand in a text, as byte ranges in order.
    pub(crate) fn special_spans(&self, text: &str) -> Vec<Range<usize>> {
        if !text.bytes().any(|b| self.special_starts[usize::from(b)]) {
            return Vec::new();
        }
        let added = self.inner.get_added_vocabulary();
        let known = added.get_added_tokens_decoder();
        let split = added.extract_and_normalize(self.inner.get_normalizer(), text);
        split
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .filter(|(_, _, tokens)| {
                let token = tokens.as_ref().and_then(|tokens| tokens.first());
                // By its id: a normalised token stands in the text by another spelling than its own.
                token
                    .and_then(|token| known.get(&token.id))
                    .is_some_and(|token| token.special)
            })
            .map(|(_, (start, end), _)| start..end)
            .collect()
    }
}

/// The bytes that special tokens begin with: text without any of them holds no special token. Where one is looked for
/// in normalised text, any byte may become its first.
pub(super) fn first_bytes(added: &AddedVocabulary) -> [bool; 256] {
    let mut starts = [false; 256];
    for token in added.get_added_tokens_decoder().values() {
        if token.special && token.normalized {
            return [true; 256];
        }
        if let Some(&first) = token.content.as_bytes().first().filter(|_| token.special) {
            starts[usize::from(first)] = true;
        }
    }
    starts
}

/// The bytes that a byte-level vocabulary lacks; none when it is complete or spells text another way.
pub(super) fn unspellable_bytes(tokenizer: &tokenizers::Tokenizer) -> Option<[bool; 256]> {
    if !matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
        return None;
    }
    let mut missing = [false; 256];
    for (byte, slot) in (0..=u8::MAX).zip(&mut missing) {
        *slot = tokenizer
            .token_to_id(&byte_char(byte).to_string())
            .is_none();
    }
    missing.contains(&true).then_some(missing)
}

/// The character that byte-level tokenizers write a byte as: printable Latin-1 as itself, the rest from U+0100 on.
pub(super) fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + rank).expect("below U+0200, so not a surrogate")
}

/// The byte that a character of the byte-level alphabet stands for.
pub(super) fn char_byte(character: char) -> Option<u8> {
    static TABLE: std::sync::LazyLock<std::collections::BTreeMap<char, u8>> =
        std::sync::LazyLock::new(|| (0..=u8::MAX).map(|byte| (byte_char(byte), byte)).collect());
    TABLE.get(&character).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_map_to_the_characters_that_gpt2_chose() {
        assert_eq!(byte_char(b' '), 'Ġ');
        assert_eq!(byte_char(b'\n'), 'Ċ');
        assert_eq!(byte_char(b'A'), 'A');
        assert_eq!(byte_char(0xAD), 'Ń');
        let all: std::collections::BTreeSet<char> = (0..=u8::MAX).map(byte_char).collect();
        assert_eq!(all.len(), 256);
    }
}
