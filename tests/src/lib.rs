//! What the suites share: the judge, the reader of golden references, and how the engine is made to run them.

#![forbid(unsafe_code)]

pub mod engine;
pub mod method;
pub mod methods;
pub mod oracle;
pub mod outside;
pub mod plan;
pub mod reference;
pub mod skipped;
