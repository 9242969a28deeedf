//! Text to token ids and back, by one code path for checking, training and sampling.
//!
//! A [`Tokenizer`] comes from a `tokenizer.json` or from the metadata of a GGUF file. It never adds special
//! tokens by itself: a chat template writes its own, and raw text gets its start token from
//! [`Tokenizer::encode_raw`], so that a start token cannot come twice.

mod bytes;
mod export;
mod gguf;
mod json;
mod parts;
mod special;
mod stream;

use tokenizers::{AddedVocabulary, Model, OffsetType, PreTokenizedString, PreTokenizer};

use crate::contained::contained;

pub use bytes::{byte_tokenizer_config, byte_tokenizer_json};
pub use gguf::GgufTokenizer;
pub use special::{Special, SpecialIds};
pub use stream::Stream;

/// Why a tokenizer cannot be built or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file is not JSON of the expected form.
    #[error("{file} cannot be read as a tokenizer: {reason}")]
    Json {
        /// Name of the file.
        file: &'static str,
        /// What the reader said.
        reason: String,
    },
    /// Another kind of tokenizer than byte-pair encoding.
    #[error(
        "tokenizer model `{model}` is not supported; supported: byte-pair encoding (`model.type` is `BPE` in tokenizer.json, \
         tokenizer.ggml.model is `gpt2` in GGUF)"
    )]
    Model {
        /// What the file names.
        model: String,
    },
    /// A GGUF file cuts text by rules that are not known here.
    #[error(
        "tokenizer.ggml.pre is `{pre}`, a way to cut text that is not supported; supported: {supported}"
    )]
    PreTokenizer {
        /// What the file names.
        pre: String,
        /// The names that are known.
        supported: String,
    },
    /// Vocabulary, merges or special tokens contradict one another.
    #[error("tokenizer vocabulary is inconsistent: {reason}")]
    Vocabulary {
        /// What contradicts what.
        reason: String,
    },
    /// The library refused a text.
    #[error("text of {bytes} bytes cannot be tokenised: {reason}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// What the library said.
        reason: String,
    },
    /// The model has no row for a token.
    #[error(
        "token {token:?} has id {id}, but the model's embedding has {vocabulary} rows (ids 0 to {}): \
         it was added to the tokenizer and not to the model",
        .vocabulary.saturating_sub(1)
    )]
    Beyond {
        /// The token.
        token: String,
        /// Its id.
        id: u32,
        /// Rows of the model's embedding.
        vocabulary: usize,
    },
    /// The library refused a list of ids.
    #[error("{count} token ids cannot be decoded: {reason}")]
    Decode {
        /// Number of ids.
        count: usize,
        /// What the library said.
        reason: String,
    },
}

/// One token and the bytes of the text it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its id.
    pub(crate) id: u32,
    /// First byte in the text.
    pub(crate) start: usize,
}

/// A byte-pair tokenizer with its special tokens.
#[derive(Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens again, told to read special ones as plain text.
    plain: AddedVocabulary,
    special: SpecialIds,
    special_starts: [bool; 256],
    unspellable: Option<[bool; 256]>,
    vocab_size: usize,
    chat_template: Option<String>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size)
            .field("special", &self.special)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds from the bytes of `tokenizer.json` and, if there is one, of `tokenizer_config.json`.
    ///
    /// # Errors
    /// When a file is not valid, the model is not byte-pair encoding, or a named special token is unknown.
    pub fn from_json(tokenizer: &[u8], config: Option<&[u8]>) -> Result<Self, TokenizerError> {
        json::build(tokenizer, config)
    }

    /// Builds from the metadata of a GGUF file.
    ///
    /// # Errors
    /// When model or pre-tokenizer are not supported, or vocabulary and merges contradict one another.
    pub fn from_gguf(parts: &GgufTokenizer) -> Result<Self, TokenizerError> {
        gguf::build(parts)
    }

    /// The byte tokenizer of tiny models: ids 0 to 255 are bytes, then `<|endoftext|>`, `<|im_start|>`, `<|im_end|>`.
    ///
    /// # Panics
    /// Never: its parts are constants.
    #[must_use]
    pub fn bytes() -> Self {
        Self::from_json(
            byte_tokenizer_json().as_bytes(),
            Some(byte_tokenizer_config().as_bytes()),
        )
        .expect("the byte tokenizer is well formed")
    }

    fn assemble(
        inner: tokenizers::Tokenizer,
        special: SpecialIds,
        vocab_size: usize,
        chat_template: Option<String>,
    ) -> Self {
        let mut plain = inner.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        let mut tokenizer = Self {
            plain,
            special,
            special_starts: special::first_bytes(inner.get_added_vocabulary()),
            unspellable: special::unspellable_bytes(&inner),
            vocab_size,
            chat_template,
            inner,
        };
        tokenizer.inner.with_padding(None);
        tokenizer
    }

    /// Token ids of a text; no token is added at its ends.
    ///
    /// # Errors
    /// When the library refuses the text.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let pieces = self.cut(text, special, None, OffsetType::None)?;
        Ok(pieces.into_iter().map(|piece| piece.id).collect())
    }

    /// Token ids of text that no template wraps: as [`Self::encode`], after the start token where the model wants one.
    ///
    /// # Errors
    /// When the library refuses the text.
    pub fn encode_raw(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode(text, special)?;
        if let Some(bos) = self.raw_start(ids.first().copied()) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The start token that raw text beginning with `first` still lacks.
    pub(crate) fn raw_start(&self, first: Option<u32>) -> Option<u32> {
        let bos = self.special.bos.filter(|_| self.special.add_bos)?;
        (first != Some(bos)).then_some(bos)
    }

    /// Tokens of a text with the byte each begins at.
    pub(crate) fn pieces(
        &self,
        text: &str,
        special: Special,
    ) -> Result<Vec<Piece>, TokenizerError> {
        self.cut(text, special, None, OffsetType::Byte)
    }

    /// As [`Self::pieces`] with special tokens parsed, but `hidden` characters only keep a special token from being
    /// seen and then vanish. Offsets count the text as given.
    pub(crate) fn pieces_hiding(
        &self,
        text: &str,
        hidden: char,
    ) -> Result<Vec<Piece>, TokenizerError> {
        self.cut(text, Special::Parse, Some(hidden), OffsetType::Byte)
    }

    /// Tokens of a text. A pattern of the tokenizer's own can make the library panic: that is an error here.
    fn cut(
        &self,
        text: &str,
        special: Special,
        hidden: Option<char>,
        offsets: OffsetType,
    ) -> Result<Vec<Piece>, TokenizerError> {
        unwinding(|| {
            let mut split = self.split(text, special);
            if let Some(hidden) = hidden {
                split
                    .normalize(|part| {
                        if part.get().contains(hidden) {
                            part.filter(|c| c != hidden);
                        }
                        Ok(())
                    })
                    .map_err(|error| encode_error(text.len(), &error))?;
            }
            self.finish(split, offsets, text.len())
        })
        .unwrap_or_else(|reason| Err(encode_error(text.len(), &reason)))
    }

    /// Cuts added tokens out of the text and normalises the rest.
    fn split(&self, text: &str, special: Special) -> PreTokenizedString {
        let added = match special {
            Special::Parse => self.inner.get_added_vocabulary(),
            Special::Plain => &self.plain,
        };
        added.extract_and_normalize(self.inner.get_normalizer(), text)
    }

    fn finish(
        &self,
        mut split: PreTokenizedString,
        offsets: OffsetType,
        bytes: usize,
    ) -> Result<Vec<Piece>, TokenizerError> {
        let model = self.inner.get_model();
        if let Some(rule) = self.inner.get_pre_tokenizer() {
            rule.pre_tokenize(&mut split)
                .map_err(|error| encode_error(bytes, &error))?;
        }
        split
            .tokenize(|part| model.tokenize(part.get()))
            .map_err(|error| encode_error(bytes, &error))?;
        let encoding = split
            .into_encoding(None, 0, offsets)
            .map_err(|error| encode_error(bytes, &error))?;
        Ok(encoding
            .get_ids()
            .iter()
            .zip(encoding.get_offsets())
            .map(|(&id, &(start, _))| Piece { id, start })
            .collect())
    }

    /// Text of token ids; ids beyond the vocabulary are left out.
    ///
    /// # Errors
    /// When the library refuses the ids.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        unwinding(|| self.inner.decode(ids, skip_special))
            .and_then(|decoded| decoded.map_err(|error| error.to_string()))
            .map_err(|reason| TokenizerError::Decode {
                count: ids.len(),
                reason,
            })
    }

    /// The ids again, when a model of a `vocabulary` of so many has a row for each.
    ///
    /// # Errors
    /// [`TokenizerError::Beyond`] with the first that lies beyond.
    pub fn within(&self, ids: Vec<u32>, vocabulary: usize) -> Result<Vec<u32>, TokenizerError> {
        match ids.iter().find(|&&id| id as usize >= vocabulary) {
            None => Ok(ids),
            Some(&id) => Err(TokenizerError::Beyond {
                token: self.id_to_token(id).unwrap_or_default(),
                id,
                vocabulary,
            }),
        }
    }

    /// Starts decoding ids one at a time.
    #[must_use]
    pub fn stream(&self, skip_special: bool) -> Stream<'_> {
        Stream::new(self, skip_special)
    }

    /// One more than the largest id.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The id of a token by its text in the vocabulary.
    #[must_use]
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The text of a token in the vocabulary (byte-level encoded where the tokenizer is).
    #[must_use]
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The ids with a role: start, end, unknown, padding.
    #[must_use]
    pub fn special(&self) -> &SpecialIds {
        &self.special
    }

    /// The end-of-text token.
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// The start-of-text token.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// Ids that end an answer: the end token and the end-of-turn tokens of known chat formats, ascending.
    #[must_use]
    pub fn stop_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = special::END_OF_TURN
            .iter()
            .filter_map(|token| self.token_to_id(token))
            .chain(self.special.eos)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The chat template that came with the tokenizer.
    #[must_use]
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// Whether the text holds bytes that no token of this vocabulary can spell, so that they would be lost.
    #[must_use]
    pub fn loses_text(&self, text: &str) -> bool {
        self.unspellable
            .as_ref()
            .is_some_and(|missing| text.bytes().any(|byte| missing[usize::from(byte)]))
    }
}

/// Runs a call of the library; a panic in it becomes its message.
fn unwinding<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    contained(call).map_err(|reason| format!("the tokenizer library gave up: {reason}"))
}

fn encode_error(bytes: usize, error: &dyn std::fmt::Display) -> TokenizerError {
    TokenizerError::Encode {
        bytes,
        reason: error.to_string(),
    }
}
