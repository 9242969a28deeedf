//! Datasets, tokenizers, chat templates, label masks and their validation: one code path for checking,
//! training and sampling.
#![forbid(unsafe_code)]

pub mod tokenizer;
