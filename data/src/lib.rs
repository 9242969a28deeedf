//! Datasets, tokenizers, chat templates, label masks and their validation: one code path for checking,
//! training and sampling.
#![forbid(unsafe_code)]

mod escape;
pub mod mask;
pub mod message;
pub mod template;
pub mod tokenizer;
