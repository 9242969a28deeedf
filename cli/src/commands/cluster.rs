//! What an operator asks of a running cluster: one file a subject.

pub(crate) mod fetch;
pub(crate) mod jobs;
pub(crate) mod look;
pub(crate) mod nodes;
pub(crate) mod sample;
pub(crate) mod submit;
pub(crate) mod trace;
