//! Datasets, tokenizers, chat templates, label masks and their validation: one code path for checking,
//! training and sampling.
#![forbid(unsafe_code)]

pub mod check;
pub mod contained;
pub mod dataset;
mod escape;
pub mod formats;
pub mod job_data;
mod lines;
pub mod mask;
pub mod mask_view;
pub mod message;
pub mod order;
pub mod overlap;
pub mod packed;
pub mod regular;
pub mod report;
pub mod rows;
mod strict_json;
pub mod template;
pub mod tokenizer;
