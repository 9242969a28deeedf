//! A tokenizer of single bytes, written as the files of a model folder: for tiny models, tests and offline demos.

use serde_json::{Map, Value, json};

use super::special::byte_char;

const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// The `tokenizer.json` of the byte tokenizer: 256 bytes and three special tokens, no merges.
#[must_use]
pub fn byte_tokenizer_json() -> String {
    let mut vocab = Map::new();
    for byte in 0..=u8::MAX {
        vocab.insert(byte_char(byte).to_string(), json!(byte));
    }
    let mut added = Vec::new();
    for (id, token) in (256..).zip(SPECIAL) {
        vocab.insert(token.to_owned(), json!(id));
        added.push(json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        }));
    }
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false,
    });
    let file: Value = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": [],
        },
    });
    format!("{file:#}\n")
}

/// The `tokenizer_config.json` beside it: `<|im_end|>` ends a turn, no start token is added.
#[must_use]
pub fn byte_tokenizer_config() -> String {
    let file = json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": false,
        "bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "pad_token": SPECIAL[2], "unk_token": SPECIAL[0],
        "clean_up_tokenization_spaces": false,
    });
    format!("{file:#}\n")
}

#[cfg(test)]
mod tests {
    use crate::tokenizer::{Special, Tokenizer};

    #[test]
    fn every_byte_is_its_own_id() {
        let tokenizer = Tokenizer::bytes();
        assert_eq!(tokenizer.vocab_size(), 259);
        let text = "né 😀\n<|im_end|>";
        let ids = tokenizer.encode(text, Special::Parse).expect("encodes");
        let mut expected: Vec<u32> = "né 😀\n".bytes().map(u32::from).collect();
        expected.push(258);
        assert_eq!(ids, expected);
        assert_eq!(tokenizer.decode(&ids, false).expect("decodes"), text);
        assert_eq!(tokenizer.decode(&ids, true).expect("decodes"), "né 😀\n");
    }
}
