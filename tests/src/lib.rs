//! What the suites share: the judge, the reader of golden references, and how the engine is made to run them.

pub mod engine;
pub mod oracle;
pub mod reference;
