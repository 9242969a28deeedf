//! A tokenizer as a GGUF file carries it: vocabulary, token kinds, merges, and the names of its rules.

/// The `tokenizer.*` metadata of a GGUF file; the model loader fills it, the tokenizer is built from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GgufTokenizer {
    /// `tokenizer.ggml.model`: only `gpt2` (byte-level BPE) is accepted.
    pub model: String,
    /// `tokenizer.ggml.pre`: how text is cut before merging (`smollm`, `gpt-2`, `llama-bpe`, `qwen2`).
    pub pre: String,
    /// `tokenizer.ggml.tokens`: the text of each id, byte-level encoded.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; may be empty.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges`: pairs separated by one space, best first.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unk: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub pad: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; absent counts as false.
    pub add_bos: bool,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}
