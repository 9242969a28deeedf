//! A tokenizer as the files of a model folder, for models that come without them.

use serde_json::{Map, Value, json};

use super::{Tokenizer, TokenizerError};

impl Tokenizer {
    /// The text of `tokenizer.json`.
    ///
    /// # Errors
    /// When the library cannot write its own form.
    pub fn json(&self) -> Result<String, TokenizerError> {
        self.inner
            .to_string(false)
            .map_err(|error| TokenizerError::Vocabulary {
                reason: error.to_string(),
            })
    }

    /// The text of `tokenizer_config.json`: the tokens with a role, and the chat template.
    #[must_use]
    pub fn config_json(&self) -> String {
        let special = self.special();
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
        config.insert("add_bos_token".into(), json!(special.add_bos));
        config.insert("clean_up_tokenization_spaces".into(), json!(false));
        let roles = [
            ("bos_token", special.bos),
            ("eos_token", special.eos),
            ("unk_token", special.unk),
            ("pad_token", special.pad),
        ];
        for (role, id) in roles {
            if let Some(token) = id.and_then(|id| self.id_to_token(id)) {
                config.insert(role.into(), json!(token));
            }
        }
        if let Some(template) = self.chat_template() {
            config.insert("chat_template".into(), json!(template));
        }
        format!("{:#}\n", Value::Object(config))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::super::Special;
    use super::*;

    #[test]
    fn what_is_written_reads_text_the_same_way() {
        let tokenizer = Tokenizer::bytes();
        let (json, config) = (tokenizer.json().unwrap(), tokenizer.config_json());
        let again = Tokenizer::from_json(json.as_bytes(), Some(config.as_bytes())).unwrap();
        assert_eq!(again.special(), tokenizer.special());
        assert_eq!(again.chat_template(), tokenizer.chat_template());
        let text = "<|im_start|>user\nGrüße 12<|im_end|>";
        for special in [Special::Parse, Special::Plain] {
            let ids = tokenizer.encode(text, special).unwrap();
            assert_eq!(again.encode(text, special).unwrap(), ids);
        }
    }
}
