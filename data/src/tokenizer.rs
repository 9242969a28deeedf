//! Text to token ids and back.

mod gguf;

pub use gguf::GgufTokenizer;
